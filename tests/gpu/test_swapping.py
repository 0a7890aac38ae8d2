"""A kernel that the node agent swaps on this machine's GPU.

It keeps the same bytes, and the memory is free meanwhile.
"""

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
sys.path.insert(0, str(ROOT / "tools"))
from gpu_headers import header_folder  # noqa: E402

PROGRAM = ROOT / "tests" / "gpu_hook" / "hook" / "cycles.c"
MIB = 1 << 20
OUT_OF_MEMORY = 2
TRAINS = """
import hashlib, sys, torch
torch.manual_seed(3)
torch.use_deterministic_algorithms(True)
net = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10)).cuda()
optimizer = torch.optim.Adam(net.parameters())
x, y = torch.randn(256, 512).cuda(), torch.randint(0, 10, (256,)).cuda()
losses = []
for step in range(50):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
    if step % 5 == 4:
        torch.cuda.synchronize()
        print("paused", flush=True)
        sys.stdin.readline()
weights = b"".join(p.detach().cpu().numpy().tobytes() for p in net.parameters())
print([float(loss) for loss in losses], hashlib.sha256(weights).hexdigest(), flush=True)
"""
FREE = 1  # of the answer of info()
PATIENCE_SECONDS = 60.0


class Worker:
    """cycles.c in a kernel: four threads that know every byte's value."""

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
    command = [compiler, "-std=gnu11", "-O2", "-w", "-pthread", f"-I{header_folder('cuda.h')}", str(PROGRAM)]
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
    """Report that nothing is open in it, and request the swap-out until it is idle enough."""
    from jupyter_aliquot.gpu_hook.client.client import AgentClientError

    kernel.node.ask("activity", kernel_id=kernel.id, open=0, work=0, since=None, input=None)

    def is_out() -> bool:
        if kernel.status()["residency"]["state"] == "swapped":
            return True
        try:
            kernel.node.ask("swap_out", kernel_id=kernel.id)
        except AgentClientError:  # it worked a moment ago
            return False
        return False

    wait_for(is_out, "the kernel is swapped out")


def begin_swap(kernel: Any) -> None:
    """Order the kernel out, and do not wait for it."""
    from jupyter_aliquot.gpu_hook.client.client import AgentClientError

    kernel.node.ask("activity", kernel_id=kernel.id, open=0, work=0, since=None, input=None)

    def is_accepted() -> bool:
        try:
            kernel.node.ask("swap_out", kernel_id=kernel.id)
        except AgentClientError:  # it worked a moment ago
            return False
        return True

    wait_for(is_accepted, "the agent takes the order to swap the kernel out")


def fill(outsider: Any) -> None:
    """Take the device's memory to the last unit of 2 MiB."""
    assert outsider("begin()") == 0
    size = 1024 * MIB
    while size >= 2 * MIB:
        count = outsider("info()")[FREE] // size + 1
        codes = outsider(f"[create({size})[0] for _ in range({count})]")
        assert set(codes) <= {0, OUT_OF_MEMORY}
        size //= 2
    assert outsider(f"create({2 * MIB})")[0] == OUT_OF_MEMORY


def test_a_kernel_leaves_a_device_that_is_full(a_kernel: Any, a_worker: Worker) -> None:
    """The move then allocates no device memory.

    Streams, events and page-locked buffers exist already.
    """
    assert a_worker.ask("pause") == "paused"
    before = a_worker.ask("hash")
    outsider = a_kernel.program(is_hooked=False)
    fill(outsider)
    swap_out(a_kernel)
    assert a_kernel.status()["residency"]["swapped_bytes"] > 4 * MIB
    outsider.close()
    assert a_worker.ask("hash") == before


def test_a_process_that_ends_during_a_move_ends_well(a_kernel: Any) -> None:
    for _ in range(10 if a_kernel.node.kind == "nvidia" else 1):
        program = a_kernel.program()
        assert program("begin()") == 0
        assert program(f"alloc({a_kernel.quota // 2})")[0] == 0
        begin_swap(a_kernel)
        program.end_input()
        assert program.process.wait(PATIENCE_SECONDS) == 0
        wait_for(lambda: a_kernel.status()["devices"][0]["charged_bytes"] == 0, "nothing of it is left")


def test_a_background_thread_wakes_a_swapped_kernel(a_kernel: Any) -> None:
    """No cell runs: the call comes from a thread that the notebook left running."""
    program, amount = a_kernel.program(), 64 * MIB
    assert program("begin()") == 0
    code, pointer = program(f"alloc({amount})")
    assert code == 0
    program("globals().update(go=threading.Event())")
    work = f"go.wait({PATIENCE_SECONDS}) and [use(), call('cuMemsetD8_v2', U64({pointer}), 7, U64({amount}))]"
    program(f"globals().update(end=in_background(lambda: {work}))")
    swap_out(a_kernel)
    assert program("go.is_set()") is False, "and nothing has woken it"
    assert a_kernel.status()["residency"]["state"] == "swapped"
    program("go.set()")
    assert program("end()") == [0, 0]
    assert a_kernel.status()["residency"]["swaps_in"] >= 1
    last = (
        f"(bytes_ := (ctypes.c_ubyte * 4)()) and call('cuMemcpyDtoH_v2', bytes_, U64({pointer + amount - 4}), U64(4))"
    )
    assert program(f"[{last}, list(bytes_)]") == [0, [7] * 4]


def train(env: dict[str, str], folder: Path, between: Callable[[], None]) -> str:
    """Train a small network; call *between* after every fifth of 50 steps.

    Return the result in one line.
    """
    program = folder / "train.py"
    program.write_text(TRAINS)
    env = {**env, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, str(program)], stdin=pipe, stdout=pipe, env=env, text=True, bufsize=1)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        for line in process.stdout:
            if line != "paused\n":
                return line
            between()
            process.stdin.write("go on\n")
    raise AssertionError(f"the training ended with {process.returncode}")


def test_training_that_is_swapped_every_fifth_step_ends_bit_for_bit_the_same(
    a_kernel: Any, tmp_path: Path, needs: Callable[..., None]
) -> None:
    needs("torch")
    want = train(a_kernel.node.bare_env, tmp_path, lambda: None)
    assert train(a_kernel.env, tmp_path, lambda: swap_out(a_kernel)) == want
    assert a_kernel.status()["residency"]["swaps_out"] >= 10


def test_a_swapped_kernel_finds_its_bytes_again(a_kernel: Any, a_worker: Worker) -> None:
    outsider = a_kernel.program(is_hooked=False)
    assert outsider("begin()") == 0
    for _ in range(3 if a_kernel.node.kind == "nvidia" else 1):
        assert a_worker.ask("pause") == "paused"
        before = a_worker.ask("hash")
        full = outsider("info()")[FREE]
        swap_out(a_kernel)
        swapped = a_kernel.status()["residency"]["swapped_bytes"]
        assert swapped > 4 * MIB
        assert outsider("info()")[FREE] >= full + swapped - 2 * MIB
        assert a_worker.ask("hash") == before  # its first call restores it
        assert a_kernel.status()["residency"]["state"] != "swapped"
        assert a_worker.ask("work") == "at work"
    _, complaints = a_worker.process.communicate(timeout=PATIENCE_SECONDS)
    assert (a_worker.process.returncode, complaints) == (0, "")
