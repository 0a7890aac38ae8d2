"""The times and words of a cell's notice that it waits for GPU memory."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_aliquot.provisioner.relay.agent.wait_notices import WaitingNotices
from jupyter_aliquot.provisioner.relay.server.activity_tracker import RunningCell


def cell(name: str = "cell", began: float = 0.0) -> RunningCell:
    return RunningCell(name, began, b"{}")


def waits(seconds: float, **fields: Any) -> dict[str, Any]:
    return {"event": "lease", "state": "swapped", "waits_seconds": seconds, **fields}


HAS_IT = {"event": "lease", "state": "resident", "waits_seconds": None}


def lines(notices: WaitingNotices, now: float, *cells: RunningCell) -> list[tuple[str, str]]:
    return [(found.msg_id, text.strip()) for found, text in notices.due(cells or [cell()], now)]


def test_a_cell_is_told_once_after_a_second_why_and_how_long() -> None:
    notices = WaitingNotices()
    notices.heard(waits(0.0, reason="queue", before=2, expected_seconds=3.2), 10.0)
    assert lines(notices, 10.9) == []
    assert notices.due_in([cell()], 10.9) == pytest.approx(0.1)
    want = "[Aliquot: waiting for GPU memory: others came before; 2 kernels before it; about 3 s]"
    assert lines(notices, 11.0) == [("cell", want)]
    assert lines(notices, 11.5) == []


def test_a_cell_of_a_kernel_that_does_not_come_back_is_told_what_to_do() -> None:
    for reason, want in (
        ("lost", "[Aliquot: waiting for GPU memory: it is lost; restart the kernel]"),
        ("refused", "it could not be restored, and is tried again; if that lasts, restart the kernel; about 4 s]"),
    ):
        notices = WaitingNotices()
        notices.heard(waits(0.0, reason=reason, expected_seconds=4.0 if reason == "refused" else None), 10.0)
        ((_, text),) = lines(notices, 11.0)
        assert text.endswith(want), text


def test_a_wait_is_a_cells_own_from_its_beginning_on() -> None:
    notices = WaitingNotices()
    notices.heard(waits(60.0), 100.0)
    young, old = cell("young", 99.5), cell("old", 50.0)
    assert [name for name, _ in lines(notices, 100.0, young, old)] == ["old"]
    assert [name for name, _ in lines(notices, 100.5, young, old)] == ["young"]


def test_a_long_wait_is_told_anew_each_ten_seconds_and_taken_back_at_its_end() -> None:
    notices = WaitingNotices()
    notices.heard(waits(0.0, reason="busy"), 0.0)
    told = []
    for tenth in range(10, 250):
        notices.heard(waits(tenth / 10, reason="turn" if tenth > 105 else "busy", expected_seconds=0), tenth / 10)
        told += [(tenth / 10, text) for _, text in lines(notices, tenth / 10)]
        assert notices.over([cell()], tenth / 10) == []
    assert told == [
        (1.0, "[Aliquot: waiting for GPU memory: those that hold it are busy; about 1 s]"),
        (11.0, "[Aliquot: still waiting for GPU memory after 11 s: others have their turn; about 1 s]"),
        (21.0, "[Aliquot: still waiting for GPU memory after 21 s: others have their turn; about 1 s]"),
    ]
    notices.heard(HAS_IT, 25.0)
    assert notices.over([cell()], 25.0) == [cell()]
    assert notices.over([cell()], 26.0) == [], "once"
    assert lines(notices, 26.0) == []


def test_a_second_wait_of_a_cell_is_not_told_before_ten_seconds_are_over() -> None:
    notices = WaitingNotices()
    notices.heard(waits(0.0), 0.0)
    assert len(lines(notices, 1.0)) == 1
    notices.heard(HAS_IT, 3.0)
    assert notices.over([cell()], 3.0) == [cell()]
    assert lines(notices, 3.0) == []
    notices.heard(waits(0.0), 4.0)
    assert notices.over([cell()], 4.0) == []
    assert notices.due_in([cell()], 4.0) == pytest.approx(7.0)
    assert lines(notices, 10.9) == []
    assert lines(notices, 11.0) == [("cell", "[Aliquot: waiting for GPU memory]")]


def test_an_output_takes_the_line_of_its_own_cell_back() -> None:
    notices = WaitingNotices()
    notices.heard(waits(5.0), 5.0)
    first, second = cell("first"), cell("second")
    assert len(lines(notices, 5.0, first, second)) == 2
    assert notices.take_back("first", 6.0) == first
    assert notices.take_back("first", 6.0) is None
    assert notices.take_back("unknown", 6.0) is None
    assert notices.has_told
    assert notices.take_back("second", 6.0) == second
    assert not notices.has_told


def test_a_wait_shorter_than_a_second_is_never_told() -> None:
    notices = WaitingNotices()
    notices.heard(waits(0.0), 0.0)
    assert lines(notices, 0.9) == []
    notices.heard(HAS_IT, 0.95)
    assert lines(notices, 5.0) == []
    assert notices.due_in([cell()], 5.0) is None


def test_a_wake_that_no_call_waits_for_keeps_nobody_waiting() -> None:
    notices = WaitingNotices()
    notices.heard(waits(5.0, waiting_calls=0), 5.0)
    assert lines(notices, 5.0) == []
    notices.heard(waits(5.0, waiting_calls=1), 5.0)
    assert len(lines(notices, 5.0)) == 1


def test_the_line_of_a_cell_that_runs_no_more_is_taken_back_and_the_cell_forgotten() -> None:
    notices = WaitingNotices()
    notices.heard(waits(0.0), 0.0)
    assert len(lines(notices, 7.0)) == 1
    assert notices.over([], 8.0) == [cell()]
    assert notices.over([], 8.1) == []
    notices.heard(HAS_IT, 9.0)
    assert not notices.is_needed, "one of the same name is another"


def test_while_the_agent_is_away_nothing_is_claimed() -> None:
    notices = WaitingNotices()
    notices.heard(waits(0.0), 0.0)
    assert len(lines(notices, 1.0)) == 1
    notices.heard(None, 2.0)
    assert notices.over([cell()], 2.0) == [cell()]
    assert lines(notices, 20.0) == []
    notices.heard(waits(21.0), 21.0)
    assert lines(notices, 21.0) == [("cell", "[Aliquot: waiting for GPU memory]")]


@pytest.mark.parametrize(
    "odd", [{"waits_seconds": "5"}, {"waits_seconds": -1}, {"waits_seconds": True}, {"waits_seconds": float("nan")}, {}]
)
def test_an_event_that_cannot_be_read_is_no_wait(odd: dict[str, Any]) -> None:
    notices = WaitingNotices()
    notices.heard({"event": "lease", **odd}, 5.0)
    assert lines(notices, 50.0) == []


def test_reasons_that_are_not_known_are_shown_and_bounded() -> None:
    notices = WaitingNotices()
    notices.heard(waits(1.0, reason="a new reason" * 100, before="many", expected_seconds=[]), 1.0)
    ((_, text),) = lines(notices, 2.0)
    assert "a new reason" in text
    assert len(text) < 300
