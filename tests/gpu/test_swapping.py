"""A kernel that the node agent swaps on this machine's GPU: the same bytes, and the memory is free meanwhile."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "gpu_hook" / "hook" / "cycles.c"
MIB = 1 << 20
FREE = 1  # of what info() answers
PATIENCE_SECONDS = 60.0


def cuda_include() -> Path:
    """As tools/gpu_tests.py finds it for the build."""
    folders = [Path(folder) / "nvidia/cu13/include" for folder in sys.path]
    for folder in [*folders, *sorted(Path("/usr/local").glob("cuda*/include"))]:
        if (folder / "cuda.h").exists():
            return folder
    pytest.skip("cuda.h was not found: pip install 'nvidia-cuda-runtime==13.0.*'")


class Worker:
    """cycles.c in a kernel: four threads that know what every byte must be."""

    def __init__(self, program: Path, env: dict[str, str]) -> None:
        pipes: dict[str, Any] = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
        env = {**env, "BUILTINS": str(ROOT / "gpu_hook" / "builtins.ptx")}
        self.process = subprocess.Popen([str(program), "4", "1"], env=env, text=True, bufsize=1, **pipes)
        assert self._line() == "ready"

    def ask(self, question: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{question}\n")
        return self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        return line.strip()


@pytest.fixture
def a_worker(a_kernel: Any, tmp_path: Path) -> Iterator[Worker]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed: install gcc"
    command = [compiler, "-std=gnu11", "-O2", "-w", "-pthread", f"-I{cuda_include()}", str(PROGRAM)]
    subprocess.run([*command, str(a_kernel.node.driver.cuda), "-o", str(tmp_path / "cycles")], check=True)
    worker = Worker(tmp_path / "cycles", a_kernel.env)
    yield worker
    worker.process.kill()
    worker.process.communicate()


def wait_for(claim: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not claim():
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:g} s: {what}"
        time.sleep(0.05)


def swap_out(kernel: Any) -> None:
    """Nothing is open in it, and it is asked out until it is idle enough to go."""
    from aliquot.gpu_hook.client import AgentClientError

    kernel.node.ask("activity", kernel_id=kernel.id, open=0, work=0, since=None, input=None)

    def is_out() -> bool:
        if kernel.status()["residency"]["state"] == "swapped":
            return True
        try:
            kernel.node.ask("swap_out", kernel_id=kernel.id)
        except AgentClientError:  # it was at work a moment ago
            return False
        return False

    wait_for(is_out, "the kernel is swapped out")


def test_a_swapped_kernel_finds_its_bytes_again(a_kernel: Any, a_worker: Worker) -> None:
    outsider = a_kernel.program(is_hooked=False)
    assert outsider("begin()") == 0
    for _ in range(3):
        assert a_worker.ask("pause") == "paused"
        before = a_worker.ask("hash")
        full = outsider("info()")[FREE]
        swap_out(a_kernel)
        swapped = a_kernel.status()["residency"]["swapped_bytes"]
        assert swapped > 4 * MIB
        assert outsider("info()")[FREE] >= full + swapped - 2 * MIB
        assert a_worker.ask("hash") == before  # its first call wakes it
        assert a_kernel.status()["residency"]["state"] != "swapped"
        assert a_worker.ask("work") == "at work"
    _, complaints = a_worker.process.communicate(timeout=PATIENCE_SECONDS)
    assert (a_worker.process.returncode, complaints) == (0, "")
