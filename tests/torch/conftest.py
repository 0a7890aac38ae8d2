"""PyTorch's own wheel on the software GPU, through the hook, under a real node agent.

The genuine CUDA runtime does not start on a software GPU, so a stand-in of ours is preloaded for these tests alone.
PyTorch is several gigabytes: `make test-torch` makes an environment for it, named in ALIQUOT_TORCH_PYTHON.
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
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.client.client import query
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, softgpu_driver, softgpu_state_path

RUNTIME = Path(__file__).parent / "runtime"
SECONDS = 120
_PRELUDE = """
import json, sys, torch
MIB = 1 << 20
result = None
"""
_POSTLUDE = """
if __name__ == "__main__":
    print(json.dumps(result), flush=True)
"""


@pytest.fixture(scope="session")
def torch_python() -> str:
    """The Python that has PyTorch."""
    python = os.environ.get("ALIQUOT_TORCH_PYTHON", "")
    if not python:
        pytest.skip("PyTorch's CUDA wheel is several GB: make test-torch installs it and runs this")
    return python


@pytest.fixture(scope="session")
def stand_in(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled stand-in for libcudart.so.13."""
    find = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    site = subprocess.run([torch_python, "-c", find], capture_output=True, text=True, check=True).stdout.strip()
    include = Path(site) / "nvidia/cu13/include"
    library = tmp_path_factory.mktemp("runtime") / "libcudart.so.13"
    flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
    flags += ["-Wno-deprecated-declarations", "-fvisibility=hidden", "-shared", "-fPIC", "-isystem", str(include)]
    link = ["-Wl,-soname,libcudart.so.13", f"-Wl,--version-script,{RUNTIME / 'symbols.map'}", "-ldl", "-lpthread"]
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed: install gcc"
    sources = [str(source) for source in sorted(RUNTIME.glob("*.c"))]
    subprocess.run([compiler, *flags, *sources, *link, "-o", str(library)], check=True)
    return library


class Kernel:
    """A reservation of the agent, held by a connection, and PyTorch programs in it."""

    def __init__(self, folder: Path, kernel_id: str, python: str, stand_in: Path) -> None:
        self.folder, self.id, self.python, self.stand_in = folder, kernel_id, python, stand_in
        self.processes: list[subprocess.Popen[str]] = []
        self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.connection.connect(str(folder / "agent.sock"))
        self.lines = self.connection.makefile("rb")

    def reserve(self, hundredths: int, **more: Any) -> None:
        answer = self.ask("reserve", owner="ada", hundredths=hundredths, **more)
        self.grant: dict[str, str] = answer["grant"]["env"]

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """Return the agent's answer to an operation on this kernel."""
        question = {"id": 1, "op": op, "kernel_id": self.id, **fields}
        self.connection.sendall(json.dumps(question).encode() + b"\n")
        while "event" in (answer := json.loads(self.lines.readline())):
            pass
        return answer

    def environment(self, **extra: str) -> dict[str, str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("ALIQUOT_", "LD_", "CUDA_", "PYTORCH_"))}
        for name, value in self.grant.items():
            env[name.removesuffix("_PREPEND")] = value
        return {**env, "LD_PRELOAD": str(self.stand_in), **extra}

    def start(self, code: str, **extra: str) -> subprocess.Popen[str]:
        """Start a program that exchanges lines with the test.

        It is a file, since spawned children import it again.
        """
        program = self.folder / f"program-{len(self.processes)}.py"
        program.write_text(_PRELUDE + textwrap.dedent(code) + _POSTLUDE)
        self.processes.append(
            subprocess.Popen(
                [self.python, str(program)],
                env=self.environment(**extra),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        return self.processes[-1]

    def run(self, code: str, **extra: str) -> Any:
        """Run a program; return its ``result``."""
        process = self.start(code, **extra)
        output, errors = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, f"exit {process.returncode}\n{output}\n{errors}"
        return json.loads(output.splitlines()[-1])

    def status(self) -> dict[str, Any]:
        kernels: list[dict[str, Any]] = query("status", runtime_dir=self.folder)["kernels"]
        return next(kernel for kernel in kernels if kernel["kernel_id"] == self.id)

    def charged(self, device: int = 0) -> int:
        return int(self.status()["devices"][device]["charged_bytes"])

    def close(self) -> None:
        """End the program's group without a wait for its pipes, which its spawned children hold."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        self.lines.close()
        self.connection.close()


@pytest.fixture
def make_kernel(torch_python: str, stand_in: Path) -> Iterator[Callable[..., Kernel]]:
    """Return a factory of kernels on one node: two software GPUs of 1 GiB."""
    softgpu_driver()
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    command = [sys.executable, "-m", "jupyter_aliquot.gpu_hook.agent", "--driver=softgpu", "--softgpu-memory=1GiB"]
    command += ["--softgpu-devices=2", "--overcommit=4", "--lease-hold=0.5"]
    command += [f"--runtime-dir={folder}", f"--log-file={folder / 'agent.log'}"]
    agent = subprocess.Popen(command)
    deadline = time.monotonic() + 20
    while not (folder / "agent.sock").exists():
        assert agent.poll() is None, "the agent ended"
        assert time.monotonic() < deadline, "the agent did not start in time"
        time.sleep(0.02)
    kernels: list[Kernel] = []

    def make(hundredths: int = 50, **more: Any) -> Kernel:
        kernels.append(Kernel(folder, f"k{len(kernels)}", torch_python, stand_in))
        kernels[-1].reserve(hundredths, **more)
        return kernels[-1]

    try:
        yield make
    finally:
        for kernel in kernels:
            kernel.close()
        agent.terminate()
        agent.wait(10)
        remove_state(softgpu_state_path(RuntimeDir(folder)))
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def a_kernel(make_kernel: Callable[..., Kernel]) -> Kernel:
    """Half a GPU: 512 MiB."""
    return make_kernel(50)
