"""The estimate of a restore, and the use of what was learned for prefetches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from jupyter_aliquot.gpu_hook.agent.scheduling.expectations import restore_seconds
from jupyter_aliquot.gpu_hook.agent.scheduling.leases import decide
from jupyter_aliquot.gpu_hook.agent.scheduling.views import (
    NEVER,
    DeviceView,
    Holding,
    KernelView,
    Policy,
    State,
    Want,
)

GIB = 1 << 30
NOW = 1000.0
POLICY = Policy(hold_seconds=5, quantum_seconds=30, move_seconds=0)
CARD = DeviceView("a", 80 * GIB, out_rate=20 * GIB, in_rate=10 * GIB)


def out(gib: int = 40, **more: object) -> KernelView:
    holding = Holding("a", 0, away_bytes=gib * GIB, guarantee_bytes=80 * GIB)
    return replace(KernelView("out", (holding,), State.SWAPPED), **more)  # type: ignore[arg-type]


def here(name: str, gib: int, **more: object) -> KernelView:
    holding = Holding("a", gib * GIB, swappable_bytes=gib * GIB, guarantee_bytes=80 * GIB)
    return replace(KernelView(name, (holding,), idle_since=NOW - 100), **more)  # type: ignore[arg-type]


def expected(*kernels: KernelView) -> float | None:
    return restore_seconds([CARD], [out(), *kernels], NOW, POLICY).get("out")


@pytest.mark.parametrize(
    ("busy", "want"),
    [
        ({"ran_seconds": 500}, 6),  # its turn is cut at once
        ({"ran_seconds": 500, "held_since": NOW - 1}, 11),  # after its hold, in steps of 5 s
        ({"ran_seconds": 10, "turn_since": NOW - 10}, 26),  # its first quantum is its own
        ({"ran_seconds": 10, "turn_since": NOW - 10, "expected_rest_seconds": 3}, 11),  # its cell ends before
        ({"movable_at": NEVER}, None),
    ],
)
def test_a_busy_kernels_turn_and_its_cells_rest_are_counted(busy: dict[str, float], want: float | None) -> None:
    assert expected(here("busy", 80, idle_since=None, **busy)) == want


def test_room_that_is_free_costs_the_move_in_alone() -> None:
    assert expected() == 4
    assert expected(here("idle", 40)) == 4


def test_idle_kernels_cost_their_move_out() -> None:
    assert expected(here("idle", 80)) == 6


def test_of_a_kernel_on_its_devices_nothing_is_said() -> None:
    assert restore_seconds([CARD], [here("idle", 40)], NOW, POLICY) == {}


def test_a_device_that_is_gone_does_not_stop_the_estimate() -> None:
    assert restore_seconds([], [out()], NOW, POLICY) == {"out": 0.0}


@given(st.lists(st.integers(1, 80), max_size=6), st.integers(1, 80))
@settings(max_examples=100, deadline=None)
def test_more_memory_on_the_device_never_makes_it_sooner(sizes: list[int], more: int) -> None:
    kernels = [here(f"k{number}", size) for number, size in enumerate(sizes)]
    before, after = expected(*kernels), expected(*kernels, here("more", more))
    assert before is not None
    assert after is None or after >= before


@pytest.mark.parametrize(("rest", "want"), [(None, ["idle"]), (20.0, []), (40.0, ["idle"])])
def test_a_prefetch_displaces_no_kernel_whose_next_cell_is_expected_first(rest: float | None, want: list[str]) -> None:
    idle = here("idle", 60, expected_rest_seconds=rest)
    for kind, wanted in [(Want.HINT, want), (Want.CELL, ["idle"]), (Want.CALL, ["idle"])]:
        decision = decide([CARD], [idle, out(want=kind, wants_since=NOW)], NOW, POLICY)
        assert [one.kernel_id for one in decision.outs] == wanted
