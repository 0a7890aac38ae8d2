"""A kernel on this machine's GPU: a real node agent, a memory limit, and programs.

The programs run through the hook or next to it. `make test-gpu` runs these tests; ALIQUOT_GPU names
the driver. Nothing here changes a device's settings. No test takes more than the limit, except one
that fills the device to see a kernel leave it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
GPU_PROGRAM = HERE.parent / "gpu_hook" / "hook" / "gpu_program.py"
GIB = 1 << 30
QUOTA_BYTES = {"nvidia": 4 * GIB, "softgpu": GIB // 2}
SOFTGPU_MEMORY = "1GiB"
SECONDS = 400
_UNKNOWN = re.compile(r"event=unknown_symbol name=(\w+)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep or skip the tests of this folder. Called by pytest."""
    reason = "needs a GPU with NVIDIA's driver: make test-gpu"
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if not os.environ.get("ALIQUOT_GPU"):
                item.add_marker(pytest.mark.skip(reason=reason))


class Program:
    """A running gpu_program.py; ``program("alloc(1024)")`` returns that expression's value there."""

    def __init__(self, env: dict[str, str]) -> None:
        command = [sys.executable, str(GPU_PROGRAM)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True, bufsize=1
        )

    def __call__(self, expression: str) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the program ended with {self.process.wait()}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def end_input(self) -> None:
        """Close the program's input; it then ends by itself."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.stdin = None

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class Kernel:
    """A notebook kernel from the hook's view: a reservation, and the environment of its processes."""

    def __init__(self, node: Node, grant: dict[str, Any], log: Path) -> None:
        self.node, self.log = node, log
        self.id: str = grant["kernel_id"]
        self.quota: int = grant["devices"][0]["quota_bytes"]
        self.env = dict(node.bare_env)
        for name, value in grant["env"].items():
            plain = name.removesuffix("_PREPEND")
            rest = self.env.get(plain) if plain != name else None
            self.env[plain] = f"{value}:{rest}" if rest else value
        self.env["ALIQUOT_HOOK_LOG"] = str(log)
        self._programs: list[Program] = []

    def run(self, source: str, is_hooked: bool = True, **env: str) -> Any:
        """Run a program to its end; return the value of its last line, which is JSON."""
        whole = {**(self.env if is_hooked else self.node.bare_env), **env}
        program = self.log.with_name("program.py")  # a file: the processes that it spawns import it
        program.write_text(source)
        command = [sys.executable, str(program)]
        done = subprocess.run(command, env=whole, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
        return json.loads(done.stdout.strip().splitlines()[-1])

    def program(self, is_hooked: bool = True) -> Program:
        self._programs.append(Program(self.env if is_hooked else self.node.bare_env))
        return self._programs[-1]

    def status(self) -> dict[str, Any]:
        kernels = self.node.ask("status")["kernels"]
        return next(one for one in kernels if one["kernel_id"] == self.id)

    def usable(self) -> int:
        """Return the bytes that one process of it can allocate.

        They are the memory limit less its context, as the agent counts it.
        """
        part = self.status()["devices"][0]
        measured = {one["uuid"]: one["context_bytes"] for one in self.node.ask("status")["devices"]}
        return self.quota - max(measured[part["uuid"]], part["context_bytes"])

    def unknown_symbols(self) -> list[str]:
        """Return functions that programs got from the driver and that the hook's table lacks."""
        return sorted(set(_UNKNOWN.findall(self.log.read_text()))) if self.log.exists() else []

    def close(self) -> None:
        for program in self._programs:
            program.close()


class Node:
    """A node agent in a folder of its own."""

    def __init__(self, kind: str, folder: Path) -> None:
        from jupyter_aliquot.gpu_hook import paths
        from jupyter_aliquot.gpu_hook.client import client

        self.kind, self.folder = kind, folder
        self.driver = paths.choose_driver(kind)
        self._client = client
        options = ["--driver", kind, *(["--softgpu-memory", SOFTGPU_MEMORY] if kind == "softgpu" else [])]
        client.start_agent(folder, arguments=options, exit_when_idle_seconds=60, seconds=60)
        dropped = ("ALIQUOT_", "LD_PRELOAD", "LD_AUDIT", "CUDA_VISIBLE_DEVICES")
        self.bare_env = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        if kind == "softgpu":
            self.bare_env["LD_LIBRARY_PATH"] = str(self.driver.cuda.parent)
            self.bare_env["ALIQUOT_SOFTGPU_STATE"] = str(paths.softgpu_state_path(paths.RuntimeDir(folder)))
        self.socket_path = paths.RuntimeDir(folder).agent_socket

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        return dict(self._client.query(op, runtime_dir=self.folder, **fields))

    def close(self) -> None:
        self._client.query("shutdown", runtime_dir=self.folder)


@pytest.fixture(scope="module")
def a_node() -> Iterator[Node]:
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    node = Node(os.environ["ALIQUOT_GPU"], folder)
    yield node
    node.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def a_kernel(a_node: Node, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Kernel]:
    """Half a device with a memory limit. At the end, no unknown function may have passed the hook."""
    with _reserved(a_node, tmp_path, request.node.nodeid) as kernel:
        yield kernel


@pytest.fixture
def a_kernel_that_stays(a_node: Node, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Kernel]:
    """A kernel as above, with memory that never leaves its device, as CUDA IPC needs it."""
    with _reserved(a_node, tmp_path, request.node.nodeid, residency="off") as kernel:
        yield kernel


@contextmanager
def _reserved(a_node: Node, tmp_path: Path, test: str, **more: Any) -> Iterator[Kernel]:
    name = f"k{abs(hash(test)) % 10**8}"
    asked = {"id": 1, "op": "reserve", "kernel_id": name, "owner": "test", "hundredths": 50, "label": ""}
    asked |= {"memory_limit": QUOTA_BYTES[a_node.kind], "attributes": {}, **more}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as holder:  # the reservation lives while this is open
        holder.connect(str(a_node.socket_path))
        holder.sendall(json.dumps(asked).encode() + b"\n")
        answer = json.loads(holder.makefile("rb").readline())
        assert answer.get("ok"), answer
        kernel = Kernel(a_node, answer["grant"], tmp_path / "hook.log")
        yield kernel
        kernel.close()
        a_node.ask("release", kernel_id=name)
        assert kernel.unknown_symbols() == []


@pytest.fixture
def needs() -> Callable[..., None]:
    """Skip if a framework is not installed, or the GPU executes nothing."""

    def check(*modules: str) -> None:
        for module in modules:
            if importlib.util.find_spec(module) is None:
                pytest.skip(f"{module} is not installed in {sys.executable}")
        if os.environ["ALIQUOT_GPU"] == "softgpu":
            pytest.skip("the software GPU executes no compiled GPU code, and the CUDA runtime refuses it")

    return check
