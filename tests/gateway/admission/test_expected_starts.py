"""Expected starts of queued requests: the planner's own order, once announced ends have come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace

import pytest

from jupyter_aliquot.gateway.culling.policy import Announcement
from jupyter_aliquot.gateway.planning.forecast import Calibration, Forecast
from jupyter_aliquot.gateway.scheduling.foreseeing.ends import expected_starts
from jupyter_aliquot.gateway.scheduling.ledger import Device, Holding, KernelRef, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.planner import Pending
from jupyter_aliquot.gateway.scheduling.queue import Prediction, QueueEntry
from jupyter_aliquot.gateway.scheduling.resize import held_of
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gateway.scheduling.wait_reason import WaitCode, WaitReason
from jupyter_aliquot.gateway.status.expected_starts import ExpectedStarts, PredictedStarts
from jupyter_aliquot.gpu_hook.placement.overcommit import Oversubscription
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request

GIB = 1 << 30
MEMORY = 8 * GIB


def holds(name: str, hundredths: int, device: int = 0) -> Holding:
    quota = Quota(f"GPU-{device}", device, GpuShare(hundredths), Bytes(MEMORY * hundredths // 100))
    grant = Grant(name, "ada", Request(GpuShare(hundredths)), "n", (quota,), "", ())
    return Holding(grant, KernelRef(name, "ada"), since=0.0)


def asks(name: str, hundredths: int, deadline: float | None = None) -> Pending:
    return Pending(name, "ada", Request(GpuShare(hundredths)), since=0.0, deadline=deadline)


def a_ledger(*holdings: Holding, devices: int = 1, elsewhere: int = 0) -> LedgerSnapshot:
    """Return a ledger with these holdings.

    ``elsewhere`` is the hundredths of each device that another program has.
    """

    def device(index: int) -> Device:
        held = sum(one.grant.request.gpus.hundredths for one in holdings if one.grant.quotas[0].index == index)
        share = held + elsewhere
        return Device(f"GPU-{index}", index, "Stub", Bytes(MEMORY), GpuShare(share), Bytes(MEMORY * share // 100))

    node = Node("n", "stub", tuple(device(index) for index in range(devices)))
    return LedgerSnapshot(node=node, holdings={one.grant.kernel_id: one for one in holdings})


def expected(ledger: LedgerSnapshot, pending: list[Pending], **ends: float) -> Mapping[str, float]:
    return expected_starts(ledger, pending, ends, now=100.0)


def test_a_request_is_expected_when_the_kernel_that_has_its_room_will_have_ended() -> None:
    ledger = a_ledger(holds("idle", 75), holds("busy", 25))
    assert expected(ledger, [asks("new", 50)], idle=400.0) == {"new": 400.0}
    assert expected(ledger, [asks("new", 50)]) == {}, "nobody said that one of them ends"


def test_several_ends_make_room_together_and_the_first_moment_counts() -> None:
    ledger = a_ledger(holds("a", 30), holds("b", 30), holds("c", 40))
    assert expected(ledger, [asks("new", 60)], a=400.0, b=300.0, c=900.0) == {"new": 400.0}
    assert expected(ledger, [asks("new", 100)], a=400.0, b=300.0) == {}


def test_the_queue_is_served_in_its_order_and_what_starts_takes_its_room() -> None:
    ledger = a_ledger(holds("a", 50), holds("b", 50))
    want = {"first": 200.0, "second": 300.0}
    assert expected(ledger, [asks("first", 50), asks("second", 50)], a=200.0, b=300.0) == want
    want = {"large": 300.0}
    assert expected(ledger, [asks("large", 100), asks("small", 10)], a=200.0, b=300.0) == want, "small stays behind it"


def test_an_end_of_a_kernel_that_the_agents_answer_does_not_count_yet_is_no_error() -> None:
    """Between two answers of the agent a kernel may be granted and released."""
    ledger = a_ledger(holds("a", 100))
    nothing = (GpuShare(0), Bytes(0))
    [device] = ledger.node.devices
    unseen = replace(device, reserved=nothing[0], reserved_memory=nothing[1], by_production=nothing)
    ledger = replace(ledger, node=replace(ledger.node, devices=(unseen,)))
    assert expected(ledger, [asks("new", 100)], a=0.0) == {"new": 100.0}


def test_what_has_ended_and_is_not_told_yet_ends_now() -> None:
    assert expected(a_ledger(holds("a", 100)), [asks("new", 100)], a=0.0) == {"new": 100.0}


def test_a_request_whose_patience_ends_before_is_not_expected_and_those_behind_it_move_up() -> None:
    ledger = a_ledger(holds("a", 100))
    pending = [asks("hasty", 100, deadline=250.0), asks("patient", 100)]
    assert expected(ledger, pending, a=250.0) == {"hasty": 250.0}, "room at the deadline is room"
    assert expected(ledger, pending, a=300.0) == {"patient": 300.0}
    ledger = a_ledger(holds("a", 50))
    assert expected(ledger, [pending[0], asks("small", 10)], a=300.0) == {"small": 250.0}, "it blocks them no more"


def test_a_change_of_size_that_makes_room_is_under_way() -> None:
    shrinks = holds("shrinks", 100)
    to_less = replace(asks("shrinks", 50), held=held_of(shrinks.grant))
    assert expected(a_ledger(shrinks), [asks("new", 50), to_less]) == {"shrinks": 100.0, "new": 100.0}


def test_a_growth_counts_what_it_has_and_leaves_all_of_it_when_it_ends() -> None:
    grows, other = holds("grows", 25), holds("other", 75)
    to_more = replace(asks("grows", 60), held=held_of(grows.grant))
    ledger = a_ledger(grows, other)
    assert expected(ledger, [to_more, asks("new", 100)], other=200.0, grows=300.0) == {"grows": 200.0, "new": 300.0}
    assert expected(ledger, [to_more, asks("new", 25)], grows=300.0) == {"new": 300.0}, "one that ends grows no more"


@pytest.mark.parametrize("is_preempting", [False, True])
def test_one_in_the_place_of_another_is_expected_as_soon_as_that_may_end_for_it(is_preempting: bool) -> None:
    ledger = a_ledger(holds("old", 50), holds("idle", 50))
    comes = replace(asks("comes", 100), replaces=frozenset({"old"}), is_preempting=is_preempting)
    assert expected(ledger, [comes], idle=200.0) == {"comes": 200.0}
    comes = replace(comes, request=Request(GpuShare(50)))
    assert expected(ledger, [comes, asks("next", 50)], idle=200.0) == {"comes": 100.0, "next": 200.0}


def test_only_the_head_of_a_long_queue_is_foreseen() -> None:
    pending = [asks(f"k{number}", 1) for number in range(80)]
    assert list(expected(a_ledger(holds("a", 100)), pending, a=200.0)) == [f"k{number}" for number in range(16)]


# ---- times in a server's reports


class ATime:
    """Two clocks that differ, as the clocks of a machine do."""

    def now(self) -> float:
        return 7.0

    def wall(self) -> float:
        return 1_000_000.5

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(seconds)


def a_snapshot(
    ledger: LedgerSnapshot, *pending: Pending, agent_state: str = "ok", code: WaitCode = WaitCode.GPU
) -> AdmissionSnapshot:
    queue = tuple(
        QueueEntry(one.kernel_id, one.owner, one.request, "", place, len(pending), WaitReason(code), 0.0)
        for place, one in enumerate(pending, 1)
    )
    return AdmissionSnapshot(agent_state, "", queue, ledger=ledger, pending=pending)


def announced(name: str, at: float) -> dict[str, Announcement]:
    return {name: Announcement(name, at, "kernels that are idle for 60 s are ended", "after 60 s idle", True, 0.0)}


def shown(snapshot: AdmissionSnapshot) -> list[float | None]:
    return [entry.expected_start for entry in snapshot.queue]


def test_the_queue_tells_the_moment_at_which_culling_makes_room() -> None:
    starts = ExpectedStarts(ATime())
    snapshot = a_snapshot(a_ledger(holds("idle", 100)), asks("new", 100, deadline=400.0), asks("behind", 50))
    assert shown(starts.filled(snapshot, announced("idle", 1_000_300.0))) == [1_000_300.0, None]
    assert shown(starts.filled(snapshot, announced("idle", 1_000_500.0))) == [None, 1_000_500.0], "its patience ends"
    assert shown(starts.filled(snapshot, {})) == [None, None], "its owner keeps it"
    assert shown(starts.filled(snapshot, announced("idle", 999_999.0)))[0] == 1_000_000.0, "the culler's next look"


def test_a_kernel_whose_end_the_agent_does_not_know_yet_ends_now() -> None:
    snapshot = a_snapshot(a_ledger(holds("gone", 100)), asks("new", 100))
    assert shown(ExpectedStarts(ATime()).filled(replace(snapshot, releasing=frozenset({"gone"})), {})) == [1_000_000.0]


def test_nothing_is_foreseen_for_a_request_that_no_cycle_has_planned_yet() -> None:
    snapshot = a_snapshot(a_ledger(holds("idle", 100)), asks("new", 100), code=WaitCode.NOT_PLANNED)
    assert ExpectedStarts(ATime()).filled(snapshot, announced("idle", 1_000_300.0)) is snapshot


def test_an_older_forecast_serves_while_a_new_one_would_take_too_much_of_the_time() -> None:
    class Slow(ATime):
        """A clock on which each forecast takes a tenth of a second."""

        turned = 0.0

        def now(self) -> float:
            self.turned += 0.05
            return 7.0 + self.turned

    clock = Slow()
    starts, snapshot = ExpectedStarts(clock), a_snapshot(a_ledger(holds("idle", 100)), asks("new", 100))
    assert shown(starts.filled(snapshot, announced("idle", 1_000_300.0))) == [1_000_300.0]
    assert shown(starts.filled(snapshot, announced("idle", 1_000_400.0))) == [1_000_300.0]
    clock.turned += 2.0
    assert shown(starts.filled(snapshot, announced("idle", 1_000_400.0))) == [1_000_400.0]


def test_nothing_is_expected_of_an_agent_that_does_not_answer() -> None:
    snapshot = a_snapshot(a_ledger(holds("idle", 100)), asks("new", 100), agent_state="unavailable")
    assert shown(ExpectedStarts(ATime()).filled(snapshot, announced("idle", 1_000_300.0))) == [None]


# ---- predictions from kernels that ended


class Passing(ATime):
    """A time that passes when it is told to."""

    passed = 0.0

    def now(self) -> float:
        return 1000.0 + self.passed

    def wall(self) -> float:
        return 1_000_000.0 + self.passed


def at_once(work: Callable[[], list[Forecast]]) -> Future[list[Forecast]]:
    """Run a forecast before anything else."""
    done: Future[list[Forecast]] = Future()
    done.set_result(work())
    return done


def predicted(clock: Passing, tenures: list[float], snapshot: AdmissionSnapshot) -> list[Prediction | None]:
    return [entry.predicted for entry in PredictedStarts(clock, lambda: tenures, at_once).filled(snapshot).queue]


def told(seconds: float) -> Prediction:
    """Return what is told of a start in so many seconds that all futures agree on, before any came true."""
    factor = Calibration().factor
    return Prediction(pytest.approx(1_000_000.0 + seconds), pytest.approx(1_000_000.0 + factor * seconds))  # type: ignore[arg-type]


def test_a_start_is_predicted_from_how_long_kernels_had_their_gpu() -> None:
    """Kernels took ten minutes, and this one has had its GPU for four."""
    ledger = a_ledger(replace(holds("busy", 100), granted_at=1000.0 - 240.0))
    snapshot = a_snapshot(ledger, asks("new", 100), asks("behind", 100))
    new, behind = predicted(Passing(), [600.0] * 30, snapshot)
    assert new == told(360.0)
    assert behind is not None
    assert behind == told(960.0)
    spread = [60.0 * minutes for minutes in range(5, 35)]
    (new, _) = predicted(Passing(), spread, snapshot)
    assert new is not None
    assert 1_000_000.0 < new.earliest < new.latest < 1_000_000.0 + 2 * spread[-1]


def test_nothing_is_predicted_without_kernels_that_ended_or_for_another_reason_than_room() -> None:
    ledger = a_ledger(replace(holds("busy", 100), granted_at=900.0))
    snapshot = a_snapshot(ledger, asks("new", 100))
    assert predicted(Passing(), [600.0] * 19, snapshot) == [None]
    quota = a_snapshot(ledger, asks("new", 100), code=WaitCode.TEAM_QUOTA)
    assert predicted(Passing(), [600.0] * 30, quota) == [None]
    assert predicted(Passing(), [600.0] * 30, replace(snapshot, agent_state="unavailable")) == [None]


def test_a_device_that_is_overcommitted_twice_has_room_for_two() -> None:
    ledger = a_ledger(*(replace(holds(name, 100), granted_at=400.0 + at) for at, name in enumerate("ab")))
    node = replace(ledger.node, rule=Oversubscription(2.0))
    (new,) = predicted(Passing(), [900.0] * 30, a_snapshot(replace(ledger, node=node), asks("new", 100)))
    assert new == told(300.0), "when the first of the two ends"


def test_predictions_that_come_true_narrow_the_bar_and_late_ones_widen_it() -> None:
    clock = Passing()
    starts = PredictedStarts(clock, lambda: [600.0] * 30, at_once)
    busy = a_ledger(replace(holds("busy", 100), granted_at=clock.now()))
    waiting = a_snapshot(busy, asks("new", 100), asks("late", 100), asks("gone", 100))
    starts.filled(waiting)
    clock.passed = 500.0
    granted = a_ledger(replace(holds("new", 100), granted_at=clock.now()))
    before = starts.calibration.factor
    starts.filled(a_snapshot(granted, asks("late", 100)))
    assert (starts.calibration.total, starts.calibration.came_true) == (1, 1), "what is withdrawn teaches nothing"
    assert starts.calibration.factor < before
    clock.passed = 5000.0
    starts.filled(a_snapshot(granted, asks("late", 100)))
    starts.filled(a_snapshot(granted, asks("late", 100)))
    assert (starts.calibration.total, starts.calibration.came_true) == (2, 1), "late once"
    assert starts.calibration.factor > before


def test_a_forecast_runs_beside_the_status_and_is_shown_when_it_has_ended() -> None:
    """Thousands of kernels take seconds to foresee: meanwhile every request of the status is answered."""
    asked: list[tuple[Callable[[], list[Forecast]], Future[list[Forecast]]]] = []

    def later(work: Callable[[], list[Forecast]]) -> Future[list[Forecast]]:
        asked.append((work, Future()))
        return asked[-1][1]

    clock = Passing()
    starts = PredictedStarts(clock, lambda: [600.0] * 30, later)
    ledger = a_ledger(replace(holds("busy", 100), granted_at=1000.0 - 240.0))
    snapshot = a_snapshot(ledger, asks("new", 100))
    assert [entry.predicted for entry in starts.filled(snapshot).queue] == [None]
    clock.passed = 20.0
    assert [entry.predicted for entry in starts.filled(snapshot).queue] == [None]
    assert len(asked) == 1, "one at a time"
    work, future = asked[0]
    future.set_result(work())
    shown = [entry.predicted for entry in starts.filled(snapshot).queue]
    assert shown == [told(360.0)], "from the moment at which it began"
    assert len(asked) == 1, "forecasts take a tenth of the time at most"
