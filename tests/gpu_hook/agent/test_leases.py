"""The choice of resident kernels, by a table of sentences.

This is the pure decision over views: no clock, no agent.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_aliquot.gpu_hook.agent.scheduling.leases import (
    NEVER,
    NOTHING,
    DeviceView,
    Holding,
    KernelView,
    Policy,
    Reason,
    State,
    Want,
    decide,
)

GIB = 1 << 30
POLICY = Policy(hold_seconds=5, quantum_seconds=30, quantum_moves=0, patience_seconds=60, move_seconds=0)
CARD = DeviceView("a", 80 * GIB, out_rate=10 * GIB, in_rate=10 * GIB)
NOW = 1000.0


def resident(name: str, gib: int, *, idle: float | None = 100.0, device: str = "a", **more: object) -> KernelView:
    """Return a kernel that came in long ago.

    ``idle`` is in seconds; None: it has long been busy.
    """
    holding = Holding(device, gib * GIB, swappable_bytes=gib * GIB, guarantee_bytes=80 * GIB)
    since = None if idle is None else NOW - idle
    return replace(KernelView(name, (holding,), idle_since=since), **more)  # type: ignore[arg-type]


def swapped(name: str, gib: int, *, since: float = 0.0, device: str = "a", **more: object) -> KernelView:
    """Return a kernel that is out, with a call that has waited for so many seconds."""
    holding = Holding(device, 0, away_bytes=gib * GIB, guarantee_bytes=80 * GIB)
    view = KernelView(name, (holding,), State.SWAPPED, want=Want.CALL, wants_since=NOW - since)
    return replace(view, **more)  # type: ignore[arg-type]


def outs(*kernels: KernelView, devices: tuple[DeviceView, ...] = (CARD,)) -> list[str]:
    return [out.kernel_id for out in decide(devices, kernels, NOW, POLICY).outs]


def test_nothing_is_swapped_without_pressure() -> None:
    assert decide([CARD], [resident("idle", 40), resident("busy", 40, idle=None)], NOW, POLICY) is NOTHING


def test_a_kernel_comes_in_where_there_is_room() -> None:
    decision = decide([CARD], [resident("idle", 40), swapped("waker", 40)], NOW, POLICY)
    assert (decision.ins, decision.outs) == (("waker",), ())


def test_the_least_valuable_leaves_first() -> None:
    kernels = [resident("young", 30, idle=10), resident("old", 30, idle=100), resident("small", 2, idle=100)]
    assert outs(*kernels, swapped("waker", 40)) == ["old"]


def test_nobody_leaves_in_vain() -> None:
    big, stuck = resident("idle", 30), resident("stuck", 50, movable_at=NEVER)
    decision = decide([CARD], [big, stuck, swapped("waker", 40)], NOW, POLICY)
    assert decision.outs == ()
    assert [wait.reason for wait in decision.waits] == [Reason.STUCK]


def test_who_came_a_moment_ago_stays_a_while() -> None:
    decision = decide([CARD], [resident("young", 60, held_since=NOW - 2), swapped("waker", 40)], NOW, POLICY)
    assert (decision.outs, decision.look_at) == ((), NOW + 3)
    assert decision.waits[0].reason is Reason.HOLD


def test_production_does_not_wait_for_the_hold_of_opportunistic() -> None:
    low = resident("low", 60, idle=None, held_since=NOW - 1, turn_since=NOW - 1, is_production=False)
    assert outs(low, swapped("waker", 40)) == ["low"]


def test_opportunistic_does_not_displace_busy_production() -> None:
    kernels = [resident("high", 60, idle=None), swapped("low", 40, is_production=False)]
    decision = decide([CARD], kernels, NOW, POLICY)
    assert (decision.outs, decision.waits[0].reason) == ((), Reason.BUSY)


@pytest.mark.parametrize(("turn", "want"), [(29, []), (31, ["busy"])])
def test_busy_equals_take_turns(turn: float, want: list[str]) -> None:
    assert outs(resident("busy", 60, idle=None, turn_since=NOW - turn), swapped("waker", 40)) == want


@pytest.mark.parametrize(
    ("ran", "victim", "want"),
    [
        (0, {"ran_seconds": 100}, ["busy"]),
        (29, {"ran_seconds": 31}, ["busy"]),
        (30, {"ran_seconds": 100}, []),  # both have had their first turn
        (0, {"ran_seconds": 29}, []),  # neither has
        (0, {"ran_seconds": 100, "last_turn_seconds": 8}, []),  # its last turn was cut: this one is whole
        (0, {"ran_seconds": 100, "last_turn_seconds": 30}, ["busy"]),
        (0, {"ran_seconds": 100, "held_since": NOW - 4}, []),  # it has just come in
    ],
)
def test_a_young_cell_cuts_the_turn_of_an_old_one(ran: float, victim: dict[str, float], want: list[str]) -> None:
    busy = resident("busy", 60, idle=None, turn_since=NOW - 10, **victim)
    assert outs(busy, swapped("waker", 40, ran_seconds=ran)) == want


def test_a_young_cell_comes_before_an_old_one_until_that_has_waited_too_long() -> None:
    room = replace(CARD, capacity_bytes=40 * GIB)
    young = swapped("young", 40, since=1)
    for waited, want in [(59, "young"), (61, "old")]:
        old = swapped("old", 40, since=waited, ran_seconds=1000)
        assert decide([room], [old, young], NOW, POLICY).ins == (want,)


def test_no_kernel_leaves_that_would_take_the_room_back_at_once() -> None:
    def beyond(since: float) -> KernelView:
        return replace(
            swapped("beyond", 40, since=since),
            holdings=(Holding("a", 0, away_bytes=40 * GIB, guarantee_bytes=20 * GIB),),
        )

    busy = resident("busy", 60, idle=None, ran_seconds=100)
    assert outs(busy, beyond(10)) == []
    assert decide([CARD], [busy, beyond(10)], NOW, POLICY).look_at == NOW + 50
    assert outs(busy, beyond(61)) == ["busy"]


def test_a_cell_that_has_not_called_yet_ends_no_turn() -> None:
    assert outs(resident("busy", 60, idle=None), swapped("waker", 40, want=Want.CELL)) == []
    assert outs(resident("idle", 60), swapped("waker", 40, want=Want.CELL)) == ["idle"]


def test_two_kernels_of_several_devices_never_hold_and_wait() -> None:
    cards = tuple(replace(CARD, uuid=name) for name in "abc")
    first = KernelView(
        "first",
        tuple(Holding(name, 0, away_bytes=50 * GIB) for name in "abc"),
        State.SWAPPED,
        want=Want.CALL,
        wants_since=1,
    )
    second = replace(first, kernel_id="second", wants_since=2)
    assert decide(cards, [first, second], NOW, POLICY).ins == ("first",)
