"""Sampled measuring: while the agent wants samples only, launches need hardly any timing events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import AgentPage, Gate, Pace

MS = 1_000_000
LAUNCHES = 200
NEW_FUNCTION_SAMPLES = 4
PLAY = 60 * MS  # as in test_metering.py: the host is slow now and then
LATE = 200 * MS  # half of the time without work between the launches: the software GPU may be late with each of them

SPARSE = {
    "waits after each launch": "[spins('kernel', 1, {us}, {stream}) or wait() for _ in range({count})]",
    "waits after each graph": "[spins('graph', 1, {us}, {stream}) or wait() for _ in range({count})]",
    "waits elsewhere": "[spins('kernel', 1, {us}, {stream}) or clock.sleep(0.002) for _ in range({count})]",
}
STREAMS = {"stream": "make_stream()", "legacy": "0", "legacy beside streams": "make_stream(0) and 0"}


class Sampled:
    """A paced kernel whose records of events are counted by the software GPU's log."""

    def __init__(self, make_node: Callable[..., Any], paced_kernel: Any, log: Path) -> None:
        self.kernel = paced_kernel(make_node(devices=1, memory="256MiB", log=log))
        self._log = log
        assert self.kernel.program("globals().update(clock=__import__('time'))") is None

    def order(self, is_sampled: bool, **others: Any) -> None:
        self.kernel.agent.write_half(0, AgentPage.IS_SAMPLED, is_sampled)
        self.kernel.order(others.pop("pace", Pace.MEASURE), batch_us=100_000, **others)

    def records(self) -> int:
        ends, pid = " function=cuEventRecord", f"pid={self.kernel.program.pid} "
        return sum(pid in line and line.endswith(ends) for line in self._log.read_text().splitlines())

    def run(self, how: str, stream: int, microseconds: int, count: int = LAUNCHES) -> tuple[int, int]:
        """Return the records of the launches, and their occupied time."""
        records, occupied = self.records(), self.kernel.occupied()
        work = SPARSE[how].format(us=microseconds, stream=stream, count=count)
        assert not any(self.kernel.program(work))
        occupied = self.kernel.occupied() - occupied
        return self.records() - records, occupied


@pytest.fixture
def a_sampled_kernel(make_node: Callable[..., Any], paced_kernel: Any, tmp_path: Path) -> Sampled:
    return Sampled(make_node, paced_kernel, tmp_path / "softgpu.log")


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
@pytest.mark.parametrize("how", SPARSE)
def test_sparse_launches_take_few_events_and_count_in_full(how: str, stream: str, a_sampled_kernel: Sampled) -> None:
    sampled = a_sampled_kernel
    stream = sampled.kernel.program(stream)
    sampled.order(is_sampled=False)
    records, _ = sampled.run(how, stream, 100)
    assert records >= LAUNCHES
    sampled.order(is_sampled=True)
    records, occupied = sampled.run(how, stream, 100)
    assert records <= LAUNCHES // 4
    assert LAUNCHES * 0.1 * MS * 0.9 <= occupied <= LAUNCHES * 0.1 * MS + LATE


def test_sampled_work_is_exact_where_launches_follow_each_other(a_sampled_kernel: Sampled) -> None:
    kernel = a_sampled_kernel.kernel
    a_sampled_kernel.order(is_sampled=True)
    stream = kernel.program("make_stream()")
    assert kernel.program(f"spins('kernel', 4, 1000, {stream}) or wait()") == 0
    before = kernel.occupied()
    assert kernel.program(f"spins('kernel', 40, 1000, {stream}) or wait()") == 0
    assert 40 * MS * 0.99 <= kernel.occupied() - before <= 40 * MS + PLAY


def test_the_next_launch_is_measured_once_samples_are_not_enough(a_sampled_kernel: Sampled) -> None:
    sampled = a_sampled_kernel
    stream = sampled.kernel.program("make_stream()")
    sampled.order(is_sampled=True)
    sampled.run("waits after each launch", stream, 100)
    sampled.order(is_sampled=False)
    records, _ = sampled.run("waits after each launch", stream, 100)
    assert records >= LAUNCHES


def test_held_back_work_is_measured_whatever_the_word_says(a_sampled_kernel: Sampled) -> None:
    sampled = a_sampled_kernel
    stream = sampled.kernel.program("make_stream()")
    sampled.order(is_sampled=True, pace=Pace.TIME)
    records, _ = sampled.run("waits after each launch", stream, 100)
    assert records >= LAUNCHES


def test_a_new_function_is_measured_first(a_sampled_kernel: Sampled) -> None:
    sampled = a_sampled_kernel
    stream = sampled.kernel.program("make_stream()")
    sampled.order(is_sampled=True)
    records, occupied = sampled.run("waits after each launch", stream, 3000, NEW_FUNCTION_SAMPLES)
    assert records >= NEW_FUNCTION_SAMPLES
    assert 12 * MS * 0.99 <= occupied <= 12 * MS + PLAY


def test_sampled_work_of_a_context_that_ends_counts(a_sampled_kernel: Sampled) -> None:
    sampled, kernel = a_sampled_kernel, a_sampled_kernel.kernel
    sampled.order(is_sampled=True)
    assert kernel.program("globals().update(context=new_context()[1], stream=make_stream()) or 0") == 0
    assert not any(kernel.program("[spins('kernel', 1, 1000, stream) or wait() for _ in range(20)]"))
    assert kernel.program("end_context(context) or use(0)") == 0
    assert 20 * MS * 0.9 <= kernel.occupied() <= 20 * MS + PLAY
    kernel.agent.set_gate(Gate.OPEN)
