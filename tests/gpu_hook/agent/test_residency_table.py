"""The table of a kernel's life: whole, and the same in the code and in the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_aliquot.gpu_hook.agent.swap.table import (
    ACTIONS,
    LEASE_HELD,
    MOVING,
    Action,
    Event,
    KernelState,
    table_markdown,
)

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "kernel-life.md"


def test_every_state_says_what_every_event_does() -> None:
    assert set(ACTIONS) == set(KernelState)
    assert all(set(cells) == set(Event) for cells in ACTIONS.values())


def test_the_page_shows_the_table() -> None:
    assert PAGE.read_text().endswith(table_markdown()), "write residency_table.table_markdown() into the page again"


@pytest.mark.parametrize("state", KernelState)
def test_an_ignored_event_changes_nothing(state: KernelState) -> None:
    assert all(cell.to is None for cell in ACTIONS[state].values() if cell.action is Action.IGNORE)


@pytest.mark.parametrize("state", sorted(MOVING, key=lambda state: state.value))
def test_every_move_ends_somewhere_that_is_no_move_or_goes_on(state: KernelState) -> None:
    for event in (Event.DONE, Event.FAILED, Event.STUCK):
        assert ACTIONS[state][event].to is not None


def test_every_state_can_be_reached_and_end() -> None:
    reached, front = {KernelState.PENDING}, [KernelState.PENDING]
    while front:
        new = {cell.to for cell in ACTIONS[front.pop()].values() if cell.to is not None} - reached
        reached |= new
        front += new
    assert reached == set(KernelState)
    assert all(ACTIONS[state][Event.ENDED].to is KernelState.ENDED for state in set(KernelState) - {KernelState.ENDED})


def test_only_a_kernel_with_its_lease_or_one_that_is_half_out_can_be_taken_out() -> None:
    can = {state for state, cells in ACTIONS.items() if cells[Event.OUT].action is Action.TAKE_OUT}
    assert can <= LEASE_HELD | {KernelState.SWAPPED}
