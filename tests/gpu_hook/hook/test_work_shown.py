"""Work of real launches, as a process's activity page shows it and as its samples compare it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpu_load import GpuLoad, Load, compile_load

from jupyter_aliquot.gpu_hook import paths
from jupyter_aliquot.gpu_hook.protocol.codec import ActivityPage, AgentPage, Gate, HookPage, Pace, WorkloadClass

MIB = 1 << 20
MS = 1_000_000


@pytest.fixture(scope="session")
def load_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_load(tmp_path_factory.mktemp("load"), paths.softgpu_driver().cuda)


@pytest.fixture
def start_load(load_program: Path) -> Iterator[Callable[[Load, dict[str, str]], GpuLoad]]:
    """Start a load in that environment, ready to go."""
    loads: list[GpuLoad] = []

    def start(load: Load, env: dict[str, str]) -> GpuLoad:
        loads.append(GpuLoad(load_program, load, env))
        return loads[-1].wait_ready()

    yield start
    for load in loads:
        load.kill()


def measure(agent: Any, pid: int) -> Any:
    """Measure the process's launches from now on; they wait for nothing."""
    connection = agent.process(pid)
    agent.set_workload_class(WorkloadClass.PRODUCTION)
    agent.write_half(0, AgentPage.BATCH, 1000)
    agent.write_half(0, AgentPage.PACE, Pace.MEASURE)
    agent.set_gate(Gate.PACED)
    return connection


def grant(node: Any) -> Any:
    outsider = node.outsider()
    assert outsider("begin()") == 0
    return node.grant((outsider("uuid(0)"), 64 * MIB))


@pytest.mark.parametrize("kind", ["kernel", "ex", "cooperative", "graph"])
def test_the_activity_page_shows_all_work_and_each_pause(
    a_node: Any, start_load: Callable[..., GpuLoad], activity_files: Any, kind: str
) -> None:
    agent = grant(a_node)
    load = start_load(Load(length_us=2000, launches=5, pause_us=30_000, steps=6, kind=kind), a_node.hooked_env)
    connection = measure(agent, load.pid)
    with activity_files.ActivityFile() as activity:
        activity_files.hand_own(connection, activity)
        agent.wait_for(lambda: activity.is_mapped)
        load.go()
        load.wait_done()
        agent.wait_for(lambda: connection.word(0, HookPage.IN_FLIGHT) & 0xFFFFFFFF == 0 == activity.is_active())
        occupied = connection.word(0, HookPage.OCCUPIED)
        shown = [end - start for start, end in activity.intervals()]
        assert occupied > 6 * 10 * MS * 0.95
        assert sum(shown) + activity.word(ActivityPage.LOST) == pytest.approx(occupied, rel=0.01)
        assert activity.word(ActivityPage.INTERVAL_COUNT) >= 6
        assert max(shown) < occupied / 2  # no pause was taken for work
        assert activity.is_active() == 0
        assert (
            activity.word(ActivityPage.SINCE) >= activity.intervals()[-1][1] - MS
        )  # device time is mapped to the host's


def test_the_activity_page_is_active_as_long_as_work_lasts(
    a_node: Any, start_load: Callable[..., GpuLoad], activity_files: Any
) -> None:
    agent = grant(a_node)
    load = start_load(Load(length_us=1000, launches=1200, pause_us=60_000_000), a_node.hooked_env)
    connection = measure(agent, load.pid)
    with activity_files.ActivityFile() as activity:
        activity_files.hand_own(connection, activity)
        load.go()
        agent.wait_for(lambda: activity.is_active() == 1 and bool(activity.intervals()))
        agent.wait_for(lambda: activity.is_active() == 0)
        assert (
            activity.word(ActivityPage.SINCE) >= activity.intervals()[-1][1] - MS
        )  # device time is mapped to the host's


class Samples:
    """The sums of samples on the page, between two readings."""

    WORDS = HookPage.SAMPLED, HookPage.SAMPLED_SOLO, HookPage.SAMPLES

    def __init__(self, agent: Any, connection: Any) -> None:
        self._agent, self._connection = agent, connection
        self._before = self._read()

    def _read(self) -> list[int]:
        taken, alone, both = (self._connection.word(0, word) for word in self.WORDS)
        return [taken, alone, both & 0xFFFFFFFF]

    @property
    def without_baseline(self) -> int:
        return int(self._connection.word(0, HookPage.SAMPLES) >> 32)

    def stretch(self, count: int) -> float:
        """Return the slowdown of the next so many samples."""
        self._before = self._read()
        self._agent.wait_for(lambda: self._read()[2] >= self._before[2] + count, 60)
        taken, alone, _ = (after - before for before, after in zip(self._before, self._read(), strict=True))
        return taken / alone if alone else 0.0


def test_stretch_is_what_a_peer_costs(a_node: Any, start_load: Callable[..., GpuLoad]) -> None:
    agent = grant(a_node)
    load = start_load(Load(length_us=3000, launches=4), a_node.hooked_env)
    connection = measure(agent, load.pid)
    samples = Samples(agent, connection)
    load.go()
    assert samples.stretch(12) == 0.0  # the time that they take alone is unknown
    assert samples.without_baseline == 1
    agent.write_half(0, AgentPage.SOLO_WINDOW, 5)
    agent.wait_for(lambda: samples.without_baseline == 0, 60)
    assert samples.stretch(6) == 0.0  # in a window there is nothing to compare
    agent.write_half(0, AgentPage.SOLO_WINDOW, 6)
    alone = samples.stretch(12)
    peer = start_load(Load(length_us=3000, launches=100), a_node.plain_env)
    peer.go()
    peer.wait_steps(1)
    beside = samples.stretch(40)
    peer.stop()
    peer.kill()
    samples.stretch(2)  # those that had begun beside it
    again = samples.stretch(12)
    load.stop()
    assert 0.5 < alone < 1.35  # a busy machine's software GPU is not exact
    assert beside > 1.4
    assert beside > 1.3 * max(alone, again)
