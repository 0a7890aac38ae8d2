"""The rules of idleness: relay and hooks weighed together, case by case."""

from __future__ import annotations

import pytest

from jupyter_aliquot.gpu_hook.agent.activity.idleness import Activity, Moment, Patience, Telemetry, idle_since, judge

WALL = 1_700_000_000.0  # the wall clock's time when the monotonic clock shows 0
NOW = Moment(monotonic=1000.0, wall=WALL + 1000.0)
PATIENCE = Patience(recent_seconds=2.0, silent_seconds=60.0)


def quiet(since: float) -> Activity:
    return Activity(open=0, work=0, since=WALL + since)


def running(since: float, input: float | None = None) -> Activity:
    return Activity(open=1, work=1, since=WALL + since, input=None if input is None else WALL + input)


def idle(activity: Activity | None, *pages: Telemetry, known_since: float = 0.0) -> float | None:
    return idle_since(activity, pages, NOW, known_since=known_since, patience=PATIENCE)


def test_a_kernel_is_idle_since_its_last_cell_or_its_last_call_whichever_was_later() -> None:
    assert idle(quiet(900)) == 900  # no process of it uses a device
    assert idle(quiet(900), Telemetry(last_call=890)) == 900
    assert idle(quiet(900), Telemetry(last_call=890), Telemetry(last_call=950)) == 950


def test_a_running_cell_is_busy_until_it_was_silent_for_long() -> None:
    assert idle(running(999)) is None
    assert idle(running(945), Telemetry(last_call=100)) is None
    assert idle(running(900), Telemetry(last_call=950)) is None  # it computed in the meantime
    assert idle(running(900), Telemetry(last_call=930)) == 930
    assert idle(running(500), Telemetry()) == 500  # it never used a device


def test_a_background_thread_that_launches_is_not_idle_whatever_jupyter_says() -> None:
    assert idle(quiet(500), Telemetry(last_call=999.5)) is None
    # a page may contain anything: this counts as now
    assert idle(quiet(500), Telemetry(last_call=1200.0)) is None
    assert idle(running(500, input=510), Telemetry(last_call=999.5)) is None
    assert idle(quiet(500), Telemetry(last_call=997.0)) == 997


def test_a_cell_that_waits_for_input_is_idle_at_once() -> None:
    assert idle(running(999, input=999.5)) == 999.5
    assert idle(running(900, input=950), Telemetry(last_call=940)) == 950


@pytest.mark.parametrize("page", [Telemetry(calls_inside=1), Telemetry(waiting_calls=1)])
def test_a_call_that_has_not_returned_is_busy_however_long_ago_it_began(page: Telemetry) -> None:
    assert idle(quiet(1), page) is None
    assert idle(running(1, input=2), Telemetry(last_call=5), page) is None


def test_a_long_computation_is_busy_though_nobody_calls() -> None:
    assert idle(quiet(500), Telemetry(last_call=600, worked=999)) is None
    assert idle(quiet(500), Telemetry(last_call=600, worked=700)) == 700


def test_a_kernel_without_a_relay_is_judged_by_its_calls_alone() -> None:
    assert idle(None, Telemetry(last_call=990)) is None
    assert idle(None, Telemetry(last_call=939)) == 939
    assert idle(None, known_since=950) is None  # earlier calls are unknown
    assert idle(None, Telemetry(last_call=100), known_since=930) == 930


def test_a_clock_that_was_set_back_makes_no_kernel_idle_in_the_future() -> None:
    assert idle(quiet(5000)) == NOW.monotonic
    assert idle(running(5000)) is None


def test_the_reason_says_what_keeps_a_kernel_busy() -> None:
    def why(activity: Activity | None, *pages: Telemetry) -> str:
        return judge(activity, pages, NOW, patience=PATIENCE).reason

    assert why(running(999)) == "its cell runs without using the devices"
    assert why(running(999), Telemetry(waiting_calls=2)) == "a call waits for its memory"
    assert why(quiet(1), Telemetry(last_call=999)) == "it used its devices just now"
    assert why(running(1, input=2)) == "its cell waits for input"
    assert why(None) == "no relay tells of its cells"
