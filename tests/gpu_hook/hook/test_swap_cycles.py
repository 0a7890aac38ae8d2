"""A process that works without a pause is swapped out and in, over and over, and never reads a wrong byte."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook import paths
from jupyter_aliquot.gpu_hook.protocol.codec import MoveOutcome, Residency, ResidencyMode

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
MIB = 1 << 20
SOAK = int(os.environ.get("ALIQUOT_SOAK", "1"))
THREADS = 4
SEGMENTS = [64 * MIB, 32 * MIB, 160 * MIB]  # together what the process may hold


@pytest.fixture(scope="session")
def cycles_program(tmp_path_factory: pytest.TempPathFactory, include_dir: Path) -> Path:
    """Build cycles.c, which finds its driver by the loader's path."""
    target = tmp_path_factory.mktemp("cycles") / "cycles"
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed: install gcc"
    command = [compiler, "-std=gnu11", "-O1", "-g", "-w", "-pthread", f"-I{include_dir}", str(HERE / "cycles.c")]
    subprocess.run([*command, str(paths.softgpu_driver().cuda), "-o", str(target)], check=True)
    return target


class Worker:
    """The process: it works until the test ends it."""

    def __init__(self, program: Path, env: dict[str, str], seed: int) -> None:
        self.process = subprocess.Popen(
            [str(program), str(THREADS), str(seed)],
            env={**env, "BUILTINS": str(ROOT / "gpu_hook" / "builtins.ptx")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self.line() == "ready"

    def hash(self) -> str:
        """Return the hash of its memory, taken on the device.

        While it is at work, the next hash differs.
        """
        return self.ask("hash")

    def ask(self, question: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{question}\n")
        return self.line()

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        return line.strip()

    def end(self) -> tuple[int, int, int]:
        """Return the operations, refused allocations, and compared bytes."""
        output, complaints = self.process.communicate(timeout=60)
        assert (self.process.returncode, complaints) == (0, "")
        operations, refused, compared = map(int, output.split())
        return operations, refused, compared


@pytest.fixture
def at_work(make_node: Callable[..., Any], cycles_program: Path, make_orders: Callable[..., Any]) -> Callable[..., Any]:
    """Start a working process of a kernel; yield orders to it."""

    @contextmanager
    def start(
        seed: int, segments: list[int] = SEGMENTS, mode: ResidencyMode = ResidencyMode.VMM, **softgpu: object
    ) -> Iterator[tuple[Worker, Any]]:
        node = make_node(devices=2, memory="256MiB", **softgpu)
        probe = node.outsider()
        assert probe("begin()") == 0
        node.agent.residency_mode = mode
        node.agent.chunk, node.agent.ring, node.agent.host_quota = 4 * MIB, 16 * MIB, 1 << 40
        agent = node.grant(*((probe(f"uuid({device})"), 96 * MIB) for device in range(2)))
        worker = Worker(cycles_program, node.hooked_env, seed)
        try:
            with make_orders(agent, agent.process(worker.process.pid), list(segments)) as orders:
                yield worker, orders
        finally:
            worker.process.kill()
            worker.process.communicate()

    return start


def run_cycles(orders: Any, count: int, seed: int, is_at_work: bool = True) -> int:
    """Swap so often; return the bytes that went out.

    Some stay out until a call waits for them, others come back at once.
    """
    chance, moved_bytes = random.Random(seed), 0
    for _ in range(count):
        moved = orders.swap_out()
        assert (moved.outcome, moved.residency) == (MoveOutcome.DONE, Residency.SWAPPED), moved
        moved_bytes += sum(device.swapped_bytes for device in moved.devices)
        if is_at_work and chance.random() < 0.7:
            orders.await_wake()
        moved = orders.swap_in()
        assert (moved.outcome, moved.residency) == (MoveOutcome.DONE, Residency.RESIDENT), moved
    return moved_bytes


def test_a_hundred_cycles_under_work_are_not_noticed(at_work: Callable[..., Any]) -> None:
    with at_work(seed=1) as (worker, orders):
        moved_bytes = run_cycles(orders, 100, seed=1)
        operations, _, compared = worker.end()
    assert moved_bytes > 100 * MIB
    assert operations > 100
    assert compared > moved_bytes / 100


def test_contents_have_the_same_hash_before_and_after_a_cycle(at_work: Callable[..., Any]) -> None:
    with at_work(seed=2) as (worker, orders):
        for _ in range(3):
            run_cycles(orders, 2, seed=2)
            assert worker.ask("pause") == "paused"
            before = worker.hash()
            run_cycles(orders, 1, seed=2, is_at_work=False)
            assert worker.hash() == before
            assert worker.ask("work") == "at work"
        worker.end()


def test_contents_in_unified_memory_have_the_same_hash_through_random_cycles(at_work: Callable[..., Any]) -> None:
    with at_work(seed=6, mode=ResidencyMode.MANAGED) as (worker, orders):
        moved_bytes = run_cycles(orders, 20, seed=6)
        for _ in range(3):
            moved_bytes += run_cycles(orders, 3, seed=6)
            assert worker.ask("pause") == "paused"
            before = worker.hash()
            run_cycles(orders, 2, seed=6, is_at_work=False)
            assert worker.hash() == before
            assert worker.ask("work") == "at work"
        operations, _, compared = worker.end()
    assert moved_bytes > 20 * MIB
    assert operations > 20
    assert compared > MIB


# Calls that a move makes on threads of its own, and how often a swap out and a swap in fail for them.
FAULTS = {
    "cuStreamCreate@aliquot:1=2": (0, 0),  # the call that allocated first has made them
    "cuEventCreate@aliquot:1=2": (0, 0),
    "cuMemHostRegister_v2@aliquot:1=2": (0, 0),  # a smaller ring will do
    "cuMemcpyDtoHAsync_v2@aliquot:1=719": (1, 0),
    "cuMemcpyDtoHAsync_v2@aliquot:9=719": (1, 0),
    "cuEventSynchronize@aliquot:2=719": (1, 0),
    "cuMemUnmap@aliquot:1=999": (1, 0),
    "cuMemUnmap@aliquot:5=999": (1, 0),
    "cuMemRelease@aliquot:4=999": (0, 0),  # the bytes are out; the driver kept a handle
    "cuMemCreate@aliquot:1=2": (0, 1),
    "cuMemCreate@aliquot:6=2": (0, 1),
    "cuMemMap@aliquot:1=2": (0, 1),
    "cuMemMap@aliquot:6=999": (0, 1),
    "cuMemSetAccess@aliquot:2=999": (0, 0),  # tried again without the peers
    "cuMemSetAccess@aliquot:2=999,cuMemSetAccess@aliquot:3=999": (0, 0),  # a peer that refuses alone, too
    "cuMemSetAccess@aliquot:2=999,cuMemSetAccess@aliquot:3=999,cuMemSetAccess@aliquot:4=999": (0, 1),
    "cuMemcpyHtoDAsync_v2@aliquot:1=719": (0, 1),
    "cuMemcpyHtoDAsync_v2@aliquot:9=719": (0, 1),
}


def move_until_done(move: Callable[[], Any], place_meanwhile: Residency) -> int:
    """Repeat a move until it succeeds; return the number of failures.

    After a failure, all stays in place.
    """
    for failures in range(4):
        moved = move()
        if moved.outcome is MoveOutcome.DONE:
            return failures
        assert moved.residency is place_meanwhile, moved
        assert moved.text, "a failure says what was found"
    raise AssertionError(f"it failed every time: {moved}")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_call_that_fails_within_a_move_loses_nothing(fault: str, at_work: Callable[..., Any]) -> None:
    with at_work(seed=4, faults=fault) as (worker, orders):
        assert worker.ask("pause") == "paused"
        before, failures = worker.hash(), [0, 0]
        for _ in range(2):
            failures[0] += move_until_done(orders.swap_out, Residency.RESIDENT)
            failures[1] += move_until_done(orders.swap_in, Residency.SWAPPED)
            assert worker.hash() == before
        assert worker.ask("work") == "at work"
        worker.end()
    assert tuple(failures) == FAULTS[fault]


def test_segments_that_are_too_small_move_nothing(at_work: Callable[..., Any]) -> None:
    with at_work(seed=5, segments=[2 * MIB]) as (worker, orders):
        assert worker.ask("pause") == "paused"
        before = worker.hash()
        moved = orders.swap_out()
        assert (moved.outcome, moved.residency) == (MoveOutcome.NO_SPACE, Residency.RESIDENT)
        assert moved.wanted_bytes > 2 * MIB
        orders.add_segment(moved.wanted_bytes)
        assert orders.swap_out().outcome is MoveOutcome.DONE
        assert orders.swap_in().outcome is MoveOutcome.DONE
        assert worker.hash() == before
        worker.end()


@pytest.mark.soak(alone="a hundred cycles are above; hundreds")
def test_cycles_by_the_hundreds_under_work_are_not_noticed(at_work: Callable[..., Any]) -> None:
    with at_work(seed=3) as (worker, orders):
        run_cycles(orders, max(150, 50 * SOAK), seed=3)
        worker.end()
