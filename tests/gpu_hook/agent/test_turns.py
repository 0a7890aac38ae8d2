"""The turns of one kernel's cell, as its record counts them."""

from __future__ import annotations

from jupyter_aliquot.gpu_hook.agent.scheduling.turns import Turns
from jupyter_aliquot.gpu_hook.agent.scheduling.views import NEVER


def test_a_cells_turns_add_up_and_the_time_between_them_does_not() -> None:
    turns = Turns(0.0)
    turns.begin_cell(10.0)
    assert (turns.since, turns.ran_seconds(25.0), turns.last_seconds) == (10.0, 15.0, NEVER)
    turns.leave(40.0, is_busy=True)
    assert (turns.ran_seconds(100.0), turns.last_seconds) == (30.0, 30.0)
    turns.enter(100.0)
    assert (turns.since, turns.ran_seconds(105.0)) == (100.0, 35.0)
    turns.leave(108.0, is_busy=True)
    assert (turns.ran_seconds(200.0), turns.last_seconds) == (38.0, 8.0)


def test_the_next_cell_begins_anew() -> None:
    turns = Turns(0.0)
    turns.leave(8.0, is_busy=True)
    turns.begin_cell(20.0)
    assert (turns.ran_seconds(25.0), turns.last_seconds) == (0.0, NEVER)
    turns.enter(30.0)
    assert turns.ran_seconds(35.0) == 5.0


def test_an_idle_kernel_loses_no_turn() -> None:
    turns = Turns(0.0)
    turns.leave(8.0, is_busy=False)
    assert (turns.ran_seconds(9.0), turns.last_seconds) == (0.0, NEVER)
