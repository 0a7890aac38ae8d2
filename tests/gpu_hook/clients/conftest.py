"""Places where unmodified GPU programs run.

These are the software GPU bare, and a kernel of a node agent, behind the hook.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.client.client import AgentClientError, query
from jupyter_aliquot.gpu_hook.paths import Driver, PathError, RuntimeDir, shim_dir, softgpu_driver, softgpu_state_path

MIB = 1 << 20
DEVICE_BYTES = 1024 * MIB
QUOTA_BYTES = DEVICE_BYTES // 2  # of a kernel in its place
_PROGRAM = Path(__file__).parents[1] / "hook" / "gpu_program.py"
_DEADLINE_SECONDS = 90.0


def until(claim: Callable[[], Any]) -> Any:
    """Wait for a claim to hold, and return its value."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not (found := claim()):
        assert time.monotonic() < deadline, f"the claim did not come true: {found!r}"
        time.sleep(0.02)
    return found


@dataclass
class Program:
    """gpu_program.py; ``program("alloc(1024)")`` is the value of that expression there."""

    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        return self.process.pid

    def __call__(self, expression: str) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer["value"]


@dataclass
class Place:
    """A place for programs: an environment that leads to a GPU, and another view of its use."""

    env: dict[str, str]
    total_bytes: int
    ledger: Callable[[], int] | None = None  # the agent's: bytes charged to the kernel
    processes: list[subprocess.Popen[Any]] = field(default_factory=list)
    until = staticmethod(until)

    @property
    def is_hooked(self) -> bool:
        return self.ledger is not None

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        env = {**self.env, **options.pop("env", {})}
        process = subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, **options)
        self.processes.append(process)
        return process

    def program(self) -> Program:
        """Start a process that uses the first device."""
        program = Program(self.start([sys.executable, str(_PROGRAM)], stdin=subprocess.PIPE))
        assert program("begin()") == 0
        return program

    def run(self, code: str, **env: str) -> Any:
        """Run Python code to its end; return its output, as JSON."""
        done = self.start([sys.executable, "-c", code], env=env)
        output, _ = done.communicate(timeout=_DEADLINE_SECONDS)
        assert done.returncode == 0
        return json.loads(output)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


class Node:
    """A node agent on a software GPU, and a connection that holds what it reserves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [
            sys.executable,
            "-m",
            "jupyter_aliquot.gpu_hook.agent",
            "--driver",
            "softgpu",
            "--runtime-dir",
            str(folder),
        ]
        command += ["--softgpu-memory", str(DEVICE_BYTES), "--softgpu-devices", "2"]
        self.agent = subprocess.Popen([*command, "--log-file", str(folder / "agent.log")], env=clean_environment())
        until(self._answers)
        self._holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._holder.connect(str(folder / "agent.sock"))
        self._lines = self._holder.makefile("rb")

    def kernel(self, kernel_id: str) -> Place:
        """Return a place with half of a device."""
        request = {"id": 1, "op": "reserve", "kernel_id": kernel_id, "owner": "ada", "hundredths": 50}
        self._holder.sendall(json.dumps(request).encode() + b"\n")
        env = dict(json.loads(self._lines.readline())["grant"]["env"])
        env["LD_LIBRARY_PATH"] = env.pop("LD_LIBRARY_PATH_PREPEND")
        return Place({**clean_environment(), **env}, QUOTA_BYTES, lambda: self._charged(kernel_id))

    def close(self) -> None:
        self._lines.close()
        self._holder.close()
        self.agent.send_signal(signal.SIGKILL)
        self.agent.wait()
        remove_state(softgpu_state_path(RuntimeDir(self.folder)))

    def _answers(self) -> bool:
        assert self.agent.poll() is None, (self.folder / "agent.log").read_text()
        try:
            return bool(query("hello", runtime_dir=self.folder, version=1, name="test"))
        except AgentClientError:
            return False

    def _charged(self, kernel_id: str) -> int:
        kernels = query("status", runtime_dir=self.folder)["kernels"]
        return sum(d["charged_bytes"] for k in kernels if k["kernel_id"] == kernel_id for d in k["devices"])


def clean_environment() -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("ALIQUOT_", "LD_", "CUDA_"))}
    return {**env, "ALIQUOT_SOFTGPU_CONTEXT": "0"}


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Make a folder with a short path, since it holds sockets."""
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _node(folder: Path) -> Iterator[Node]:
    _driver()
    if not (shim_dir() / "libcuda.so.1").exists():
        pytest.skip(f"no hook at {shim_dir()}")
    node = Node(folder)
    yield node
    node.close()


@contextlib.contextmanager
def _bare_place(folder: Path) -> Iterator[Place]:
    state = Path("/dev/shm") / f"{folder.name}-bare"
    shape = {"STATE": str(state), "DEVICES": "2", "MEMORY": str(DEVICE_BYTES)}
    env = {f"ALIQUOT_SOFTGPU_{name}": value for name, value in shape.items()}
    place = Place({**clean_environment(), **env, "LD_LIBRARY_PATH": str(_driver().cuda.parent)}, DEVICE_BYTES)
    yield place
    place.close()
    state.unlink(missing_ok=True)


def _driver() -> Driver:
    try:
        return softgpu_driver()
    except PathError as error:
        pytest.skip(f"no software GPU: {error}")


@pytest.fixture
def a_folder() -> Iterator[Path]:
    with _folder() as folder:
        yield folder


@pytest.fixture
def a_node(a_folder: Path) -> Iterator[Node]:
    with _node(a_folder) as node:
        yield node


@pytest.fixture
def make_kernel(a_node: Node) -> Iterator[Callable[[str], Place]]:
    """Make kernels of the node, by name."""
    places: list[Place] = []

    def make(kernel_id: str) -> Place:
        places.append(a_node.kernel(kernel_id))
        return places[-1]

    yield make
    for place in places:
        place.close()


@pytest.fixture
def a_kernel(make_kernel: Callable[[str], Place]) -> Place:
    return make_kernel("k")


@pytest.fixture
def a_bare_place(a_folder: Path) -> Iterator[Place]:
    with _bare_place(a_folder) as place:
        yield place


@pytest.fixture(params=["bare", "hooked"])
def a_place(request: pytest.FixtureRequest) -> Place:
    """Run the test in both places, one after the other."""
    place = request.getfixturevalue("a_bare_place" if request.param == "bare" else "a_kernel")
    assert isinstance(place, Place)
    return place


@pytest.fixture(scope="module", params=["bare", "hooked"])
def a_lasting_place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Run all tests of a file in both places: for programs that are slow to start."""
    with _folder() as folder:
        if request.param == "bare":
            with _bare_place(folder) as place:
                yield place
        else:
            with _node(folder) as node:
                place = node.kernel("k")
                yield place
                place.close()
