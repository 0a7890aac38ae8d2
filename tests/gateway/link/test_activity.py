from __future__ import annotations

import pytest

from jupyter_aliquot.gateway.relays.activity import Activity, begin_anew, execution_state, moment, read_activity
from jupyter_aliquot.provisioner.relay.client.link import Activity as RelayActivity, KernelState

IDLE = Activity(open=0, work=0, busy_since=None, idle_since=100.0, last_activity=100.0)
BUSY = Activity(open=1, work=1, busy_since=110.0, idle_since=None, last_activity=110.0)


def test_work_that_begins_and_ends_is_dated() -> None:
    assert read_activity(None, RelayActivity(0, 0, None, 100.0)) == IDLE
    assert read_activity(IDLE, RelayActivity(1, 1, 110.0, 110.0)) == BUSY
    assert read_activity(BUSY, RelayActivity(0, 0, None, 120.0)).idle_since == 120.0


def test_a_thread_that_prints_is_activity_and_not_work() -> None:
    after = read_activity(IDLE, RelayActivity(0, 0, None, 130.0))
    assert (after.is_busy, after.idle_since, after.last_activity) == (False, 100.0, 130.0)


def test_a_kernel_that_restarted_is_idle_since_then() -> None:
    anew = begin_anew(IDLE, 140.0)
    assert anew is not None
    assert (anew.idle_since, anew.last_activity) == (140.0, 140.0)
    assert read_activity(anew, RelayActivity(0, 0, None, 139.0)).idle_since == 140.0
    assert begin_anew(BUSY, 140.0) == BUSY, "its relay tells the end of its work"
    assert begin_anew(None, 140.0) is None


def test_requests_for_information_are_open_and_no_work() -> None:
    after = read_activity(IDLE, RelayActivity(2, 0, None, 100.0))
    assert (after.open, after.is_busy) == (2, False)


def test_a_kernel_that_works_is_active_now() -> None:
    assert BUSY.active_until(500.0) == 500.0
    assert IDLE.active_until(500.0) == 100.0


@pytest.mark.parametrize(
    ("kernel", "activity", "restarts", "want"),
    [
        ("started", IDLE, True, "idle"),
        ("started", BUSY, True, "busy"),
        ("starting", IDLE, True, "starting"),
        ("ended", IDLE, True, "restarting"),
        ("ended", IDLE, False, "dead"),
    ],
)
def test_jupyters_state_follows_the_relay(kernel: str, activity: Activity, restarts: bool, want: str) -> None:
    assert execution_state(KernelState(kernel, 1), activity, restarts=restarts) == want


def test_without_a_word_from_the_relay_nothing_changes() -> None:
    assert execution_state(None, IDLE, restarts=True) is None
    assert execution_state(KernelState("started", 1), None, restarts=True) is None


def test_times_are_as_jupyters_models_keep_them() -> None:
    assert moment(1_800_000_000.5).isoformat() == "2027-01-15T08:00:00.500000+00:00"
