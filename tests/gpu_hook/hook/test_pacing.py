"""Launches that wait: by budget, by cap, by peers' activity pages; and their resumption."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import (
    ActivityPageKind,
    ActivityPageNotice,
    AgentPage,
    Gate,
    HookPage,
    MoveOutcome,
    Pace,
    ResidencyMode,
    WorkloadClass,
)

MIB = 1 << 20
MS = 1_000_000
US = 1000
OPPORTUNISTIC, PRODUCTION = WorkloadClass.OPPORTUNISTIC, WorkloadClass.PRODUCTION
WARM = "spins('kernel', 1, 100) or wait()"


@pytest.fixture
def kernel(a_paced_kernel: Any) -> Any:
    """Make a kernel whose spins of 100 µs are known already."""
    a_paced_kernel.order(Pace.MEASURE)
    assert a_paced_kernel.program(f"[{WARM} for _ in range(5)]") == [0] * 5
    a_paced_kernel.occupied()
    return a_paced_kernel


@pytest.fixture
def a_peer(kernel: Any, activity_files: Any) -> Iterator[Any]:
    """Make the activity page of production beside the kernel, on device 0."""
    with activity_files.ActivityFile(has_magic=True) as activity:
        activity.show(1, time.monotonic_ns())
        activity_files.send(kernel.connection, ActivityPageNotice(ActivityPageKind.PEER, 0, 0, 0), activity.reader)
        activity_files.send(
            kernel.connection, ActivityPageNotice(ActivityPageKind.GONE, 99)
        )  # refused when the one before is in force
        log = kernel.node.log
        kernel.agent.wait_for(lambda: log.exists() and "event=activity_page_refused" in log.read_text())
        assert "memfd:activity page" in Path(f"/proc/{kernel.program.pid}/maps").read_text()
        yield activity


def test_launches_keep_within_what_is_allowed(kernel: Any) -> None:
    start = kernel.occupied()
    kernel.order(Pace.TIME, allowed=start + 10 * MS)
    kernel.program.ask("spins('kernel', 300, 100) or wait()")
    kernel.agent.wait_for(kernel.waits)
    assert 10 * MS * 0.99 <= kernel.occupied() - start <= 12 * MS  # a batch more
    kernel.order(Pace.TIME)
    assert kernel.program.answer() == 0
    assert kernel.occupied() - start >= 30 * MS * 0.99
    assert kernel.word(HookPage.THROTTLED) > 0
    assert not kernel.waits()


def test_launches_behind_more_milestones_than_there_is_room_for_are_measured(kernel: Any) -> None:
    """Each launch comes late enough to need milestones of its own, and the stream passes none meanwhile."""
    start = kernel.occupied()
    late = "[time.sleep(50e-6) or spins('kernel', 1, 100) for _ in range(100)]"
    assert kernel.program(f"[spins('kernel', 1, 200_000), {late}, wait()][2]") == 0
    assert kernel.occupied() - start >= (200 + 10) * MS * 0.99


def test_the_cap_holds(kernel: Any) -> None:
    kernel.order(Pace.TIME, cap=2, batch_us=200)
    kernel.program.ask("spins('kernel', 5000, 100) or wait()")
    seen, end = set(), kernel.word(HookPage.LAUNCHES) + 5000
    kernel.agent.wait_for(lambda: seen.add(kernel.half(HookPage.IN_FLIGHT)) or kernel.word(HookPage.LAUNCHES) >= end)
    assert kernel.program.answer() == 0
    assert max(seen) == 2


def test_throttled_time_of_threads_is_not_added_up(kernel: Any) -> None:
    kernel.order(Pace.TIME, allowed=0)
    before = time.monotonic_ns()
    kernel.program.ask("in_threads(4, lambda: use(0) or spins('kernel', 1, 100))")
    kernel.agent.wait_for(lambda: kernel.half(HookPage.WAITING_LAUNCHES) == 4)
    kernel.agent.wait_for(lambda: kernel.word(HookPage.THROTTLED) > 50 * MS)
    kernel.order(Pace.TIME)
    assert kernel.program.answer() == [0] * 4
    assert kernel.word(HookPage.THROTTLED) <= time.monotonic_ns() - before


def test_work_stops_beside_active_production(kernel: Any, a_peer: Any) -> None:
    kernel.order(Pace.TIME, beside=0)
    kernel.program.ask(WARM)
    kernel.agent.wait_for(kernel.waits)
    a_peer.show(0, time.monotonic_ns())
    assert kernel.program.answer() == 0
    a_peer.show(1, time.monotonic_ns())
    kernel.program.ask(WARM)
    kernel.agent.wait_for(kernel.waits)
    kernel.order(Pace.TIME)  # a budget beside it
    assert kernel.program.answer() == 0


def test_work_begins_in_pauses_of_the_right_age(kernel: Any, a_peer: Any) -> None:
    hour = 1_800_000_000  # two of them fit into the word
    kernel.order(Pace.TIME, beside=0, gaps=(hour, hour, 2 * hour))
    a_peer.show(0, time.monotonic_ns())
    kernel.program.ask(WARM)
    kernel.agent.wait_for(kernel.waits)
    kernel.order(Pace.TIME, beside=0, gaps=(0, hour, 2 * hour))
    assert kernel.program.answer() == 0
    kernel.order(Pace.TIME, beside=0, gaps=(hour, hour, 1000))  # old pauses are safe again
    a_peer.show(0, time.monotonic_ns())
    assert kernel.program(WARM) == 0


def test_devices_are_paced_apart(kernel: Any) -> None:
    kernel.order(Pace.TIME, allowed=0, device=0)
    kernel.order(Pace.TIME, device=1)
    work = "[use(1), spins('kernel', 20, 100), wait()]"
    kernel.program.ask(f"[threading.Thread(target=lambda: use(0) or {WARM}).start()] and {work}")
    assert kernel.program.answer() == [0, 0, 0]
    kernel.agent.wait_for(lambda: kernel.waits(0))
    assert not kernel.waits(1)
    assert kernel.occupied(1) >= 2 * MS * 0.99
    kernel.agent.wait_for(lambda: kernel.word(HookPage.LAUNCHES, 1) == 20)
    kernel.order(Pace.OFF, device=0)
    kernel.agent.wait_for(lambda: not kernel.waits(0))


def test_a_closed_gate_counts_as_throttled(kernel: Any) -> None:
    kernel.order(Pace.TIME, gate=Gate.CLOSED)
    before = kernel.word(HookPage.THROTTLED)
    kernel.program.ask(WARM)
    kernel.agent.wait_for(kernel.waits)
    kernel.order(Pace.TIME)
    assert kernel.program.answer() == 0
    assert kernel.word(HookPage.THROTTLED) > before


@pytest.mark.parametrize("gate", Gate)
@pytest.mark.parametrize("pace", [Pace.OFF, Pace.TIME])
def test_production_goes_on_when_its_agent_dies(gate: Gate, pace: Pace, kernel: Any) -> None:
    kernel.agent.set_workload_class(PRODUCTION)
    kernel.order(pace, allowed=0, gate=gate)
    kernel.program.ask(f"[{WARM} for _ in range(20)]")
    kernel.agent.stop()
    assert kernel.program.answer() == [0] * 20


@pytest.mark.parametrize("gate", Gate)
@pytest.mark.parametrize("pace", [Pace.OFF, Pace.TIME])
def test_opportunistic_work_stops_when_its_agent_dies(gate: Gate, pace: Pace, kernel: Any) -> None:
    kernel.agent.set_workload_class(OPPORTUNISTIC)
    kernel.order(pace, gate=gate)
    kernel.agent.stop()
    kernel.agent.wait_for(lambda: "event=not_registered" in kernel.node.log.read_text())
    kernel.program.ask(WARM)
    kernel.agent.wait_for(lambda: kernel.program.is_asleep())
    kernel.agent.start()  # its pages say OPEN, and nothing of pace
    assert kernel.program.answer() == 0


def test_a_waiting_launch_can_be_swapped_out(kernel: Any, make_orders: Callable[..., Any]) -> None:
    mode = struct.pack("=I", ResidencyMode.VMM)
    kernel.connection.agent_page[AgentPage.RESIDENCY_MODE : AgentPage.RESIDENCY_MODE + 4] = mode
    kernel.order(Pace.TIME, allowed=0)
    kernel.program.ask(WARM)
    kernel.agent.wait_for(kernel.waits)
    with make_orders(kernel.agent, kernel.connection, [8 * MIB], drain_milliseconds=10_000) as orders:
        assert orders.swap_out().outcome is MoveOutcome.DONE
        kernel.order(Pace.TIME)
        assert orders.swap_in().outcome is MoveOutcome.DONE
    assert kernel.program.answer() == 0
    kernel.occupied()


def test_a_swap_finds_no_batch_in_the_way(kernel: Any, make_orders: Callable[..., Any]) -> None:
    mode = struct.pack("=I", ResidencyMode.VMM)
    kernel.connection.agent_page[AgentPage.RESIDENCY_MODE : AgentPage.RESIDENCY_MODE + 4] = mode
    kernel.order(Pace.TIME, cap=8, batch_us=300)
    kernel.program.ask("spins('kernel', 3000, 100) or wait()")
    with make_orders(kernel.agent, kernel.connection, [8 * MIB], drain_milliseconds=30_000) as orders:
        for _ in range(3):
            assert orders.swap_out().outcome is MoveOutcome.DONE
            assert orders.swap_in().outcome is MoveOutcome.DONE
    assert kernel.program.answer() == 0
    assert kernel.occupied() >= 300 * MS * 0.98


@pytest.mark.parametrize("workload", WorkloadClass)
def test_garbage_in_the_page_neither_crashes_nor_holds_for_ever(workload: WorkloadClass, kernel: Any) -> None:
    chance = random.Random(7)
    words = (AgentPage.PACE, *range(AgentPage.ALLOWED, AgentPage.DEVICE_BYTES, 4))
    kernel.agent.set_workload_class(workload)
    kernel.program.ask(f"[{WARM} for _ in range(200)] + spins('graph', 3, 100) * [1]")
    for _ in range(200):
        for offset in words:
            kernel.agent.write_half(0, offset, chance.choice((0, 1, 2, 3, 0xFFFFFFFF, chance.getrandbits(32))))
        kernel.agent.set_gate(chance.choice((0, 1, 2, 3, 0xFFFFFFFF)))
        kernel.agent.wait_for_news(0.002)
    kernel.agent.stop()
    if workload is not PRODUCTION:
        kernel.agent.start()
    assert kernel.program.answer() == [0] * 200


def test_counts_go_on_under_the_next_agent(kernel: Any) -> None:
    assert kernel.program("spins('kernel', 50, 100) or wait()") == 0
    want = kernel.occupied()
    kernel.agent.stop()
    kernel.agent.start()
    kernel.register_again()
    kernel.agent.wait_for(lambda: kernel.word(HookPage.OCCUPIED) == want)
