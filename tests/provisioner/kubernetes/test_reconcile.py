"""The next steps for holders: growth with the queue, the end of idle ones, and GPUs that are emptied first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jupyter_aliquot.provisioner.kubernetes.holding.holders import Pool
from jupyter_aliquot.provisioner.kubernetes.holding.reconcile import (
    End,
    Holder,
    HolderPhase,
    PoolState,
    Steps,
    read_holders,
    reconcile,
    spare_holders,
)

IDLE = 600.0
WAITING, HOLDING, LEAVING, OVER = HolderPhase


def holder(name: str, phase: HolderPhase = HOLDING, is_used: bool | None = None) -> Holder:
    return Holder(name, f"uid-{name}", phase, is_used)


def shut(name: str, is_used: bool | None) -> Holder:
    return replace(holder(name, is_used=is_used), is_shut=True)


def state(*holders: Holder, waiting: int = 0, guaranteed: int = 0, most: int = 4, **told: Any) -> PoolState:
    return PoolState(Pool("p", "i", guaranteed, most), holders, waiting, told.pop("now", 1000.0), **told)


@pytest.mark.parametrize(
    ("now", "want"),
    [
        (state(guaranteed=2), 2),
        (state(waiting=3), 3),
        (state(waiting=9), 4),
        (state(holder("a", is_used=True), waiting=2), 2),
        # An idle GPU, and one that is on its way, are for kernels that wait.
        (state(holder("a", is_used=False), waiting=1), 0),
        (state(holder("a", WAITING), waiting=1), 0),
        (state(holder("a"), waiting=1), 0),
        # One that takes no kernel is no help to them, and is none to be replaced where none waits.
        (state(shut("a", False), waiting=1), 1),
        (state(shut("a", None), holder("b", is_used=False), waiting=1), 0),
        (state(shut("a", True), waiting=1), 1),
        (state(shut("a", False), waiting=1, most=1), 0),
        (state(shut("a", False), guaranteed=1), 0),
        # Its GPU is lost to the pool.
        (state(holder("a", LEAVING, True), guaranteed=1), 1),
        (state(guaranteed=2, is_current=False), 0),
    ],
)
def test_as_many_are_created_as_the_queue_lacks(now: PoolState, want: int) -> None:
    assert reconcile(now, IDLE).create == want


def test_a_holder_ends_when_its_gpu_was_not_needed_for_long() -> None:
    used, idle, unknown = holder("a", is_used=True), holder("b", is_used=False), holder("c")
    before = state(used, idle, unknown, spare_since={"uid-b": 500.0})
    assert reconcile(before, IDLE).end == ()
    after = state(used, idle, unknown, spare_since={"uid-b": 300.0})
    assert reconcile(after, IDLE).end == (End(idle),)
    assert reconcile(state(idle, guaranteed=1, spare_since={"uid-b": 0.0}), IDLE) == Steps()
    assert reconcile(state(idle, is_current=False, spare_since={"uid-b": 0.0}), IDLE) == Steps()


def test_one_without_a_gpu_is_spare_before_one_with_an_idle_gpu() -> None:
    idle, waiting = holder("a", is_used=False), holder("b", WAITING)
    assert spare_holders(state(idle, waiting, waiting=1)) == (waiting,)
    assert spare_holders(state(idle, waiting)) == (waiting, idle)
    assert spare_holders(state(holder("a", is_used=True), holder("b"))) == ()
    assert spare_holders(state(idle, closed := shut("c", False), guaranteed=1)) == (closed,)


def test_the_gpu_of_a_holder_that_leaves_is_emptied_before_it_ends() -> None:
    assert reconcile(state(holder("a", LEAVING, True)), IDLE) == Steps(empty=frozenset({"a"}))
    assert reconcile(state(holder("a", LEAVING)), IDLE) == Steps(empty=frozenset({"a"}))
    empty = holder("a", LEAVING, False)
    assert reconcile(state(empty), IDLE).end == (End(empty, at_once=True),)
    over = holder("a", OVER)
    assert reconcile(state(over), IDLE).end == (End(over, at_once=True),)


def test_holders_are_read_from_their_pods_the_oldest_first() -> None:
    def pod(name: str, born: str, phase: str, **more: str) -> dict[str, Any]:
        return {
            "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": born, **more},
            "status": {"phase": phase},
        }

    pods = [pod("c", "2", "Failed"), pod("b", "1", "Running"), pod("a", "3", "Running", deletionTimestamp="x")]
    found = read_holders([*pods, pod("d", "0", "Pending")], {"b": True})
    assert found == (holder("d", WAITING), holder("b", is_used=True), holder("c", OVER), holder("a", LEAVING))
