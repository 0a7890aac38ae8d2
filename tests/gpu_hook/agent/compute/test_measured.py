"""Our controller as a whole: in looks by hand, and over the simulated GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import (
    MILLISECOND,
    SECOND,
    DeviceSample,
    Interval,
    ProcessSample,
)
from jupyter_aliquot.gpu_hook.agent.compute.policy.controller import MeasuredController
from jupyter_aliquot.gpu_hook.agent.compute.policy.history import ProcessHistory
from jupyter_aliquot.gpu_hook.agent.compute.policy.policy import Policy
from jupyter_aliquot.gpu_hook.agent.compute.policy.protection import Room, beside_interval
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import OPEN
from jupyter_aliquot.gpu_hook.protocol.codec import NO_LIMIT, Gate, Pace

sys.path.insert(0, str(Path(__file__).parents[4] / "benchmarks"))

from compute.opportunistic import OPPORTUNISTIC
from compute.plant import OnlyMeasured, Outcome, Plant, Process
from compute.production import PRODUCTION
from compute.programs import STEP_OP, SYNC_OP, Workload, host, launches

START = 1000 * SECOND
HOG = Workload("hog", (launches(200, 50_000), SYNC_OP, STEP_OP))
LONG = Workload("long", (launches(4, 20 * MILLISECOND), SYNC_OP, STEP_OP))
PAUSING = Workload("pausing", (launches(100, 200_000), SYNC_OP, host(20 * MILLISECOND), STEP_OP))


def look(key: int, is_production: bool = True, **more: object) -> ProcessSample:
    return ProcessSample(key, f"kernel-{key}", is_production, 50, **more)  # type: ignore[arg-type]


def run(*processes: Process, seconds: int = 6) -> Outcome:
    return Plant(processes, MeasuredController(), seconds * SECOND, keeps_verdicts=True).run()


def test_nobody_is_no_work() -> None:
    verdict = MeasuredController().step(DeviceSample(START))
    assert (dict(verdict.orders), verdict.unholdable) == ({}, ())


def test_a_kernel_alone_is_not_even_measured() -> None:
    verdict = MeasuredController().step(DeviceSample(START, (look(1),)))
    assert verdict.orders == {1: OPEN}
    assert verdict.look_after > Policy().period


def test_one_kernel_with_a_limit_is_held() -> None:
    busy = look(1, is_capped=True, waiting_launches=1)
    order = MeasuredController().step(DeviceSample(START, (busy,))).orders[1]
    assert (order.gate, order.pace) == (Gate.PACED, Pace.TIME)
    assert order.allowed < NO_LIMIT


def test_production_is_never_held_for_the_opportunistic() -> None:
    controller = MeasuredController()
    for number in range(20):
        both = (look(1, is_active=True, active_since=START, in_flight=1), look(2, False, waiting_launches=1))
        orders = controller.step(DeviceSample(START + number * 20 * MILLISECOND, both)).orders
        assert orders[1].pace is Pace.MEASURE
        assert orders[2].pace is Pace.TIME


def test_two_devices_have_nothing_in_common() -> None:
    one, other = MeasuredController(), MeasuredController()
    for number in range(50):
        now = START + number * 20 * MILLISECOND
        one.step(DeviceSample(now, (look(1, waiting_launches=1), look(2, False, waiting_launches=1))))
    fresh = MeasuredController().step(DeviceSample(START, (look(1), look(2, False))))
    assert other.step(DeviceSample(START, (look(1), look(2, False)))) == fresh


numbers = st.sampled_from([0, 1, -5, 10**6, 10**9, START, START + 10**7, 2**63, 2**64 - 1])
looks = st.builds(
    ProcessSample,
    key=st.integers(0, 4), kernel_id=st.sampled_from("abc"), is_production=st.booleans(),
    hundredths=st.sampled_from([-1, 0, 1, 25, 100, 900]), is_capped=st.booleans(),
    intervals=st.lists(st.builds(Interval, numbers, numbers), max_size=4).map(tuple),
    lost=numbers, occupied=numbers, is_active=st.booleans(), active_since=numbers, in_flight=numbers,
    waiting_launches=numbers, launches=numbers, longest=numbers, throttled=numbers,
    sampled=numbers, sampled_solo=numbers, samples=numbers, without_baseline=numbers,
    own=st.one_of(st.none(), numbers),
)  # fmt: skip
steps = st.tuples(
    st.sampled_from([20 * MILLISECOND, 20 * MILLISECOND, 0, -SECOND, 3600 * SECOND]), st.lists(looks, max_size=5)
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, max_size=8), st.booleans())
def test_garbage_and_jumping_clocks_never_raise_and_orders_fit_the_page(
    raw: list[tuple[int, list[ProcessSample]]], time_slices: bool
) -> None:
    controller, now = MeasuredController(), START
    for elapsed, processes in raw:
        now += elapsed
        verdict = controller.step(DeviceSample(now, tuple(processes), time_slices))
        assert verdict.orders.keys() == {one.key for one in processes}
        assert verdict.look_after > 0
        for order in verdict.orders.values():
            assert 0 <= order.allowed <= NO_LIMIT
            assert 0 <= order.allowed_with_busy_peers <= NO_LIMIT
            assert 0 <= order.in_flight_cap <= Policy().most_in_flight
            assert all(0 <= gap < 1 << 32 for gap in (order.idle_window_min, order.idle_window_max, order.idle_resume))
            assert 0 < order.batch_microseconds < 1 << 32


@pytest.mark.parametrize("part", [10, 25, 50, 75])
def test_shares_hold_over_a_second_on_a_device_of_slices(part: int) -> None:
    outcome = run(Process(HOG, True, part), Process(HOG, True, 100 - part))
    for second in range(3, 6):
        own = [outcome.own_between(number, second * SECOND, (second + 1) * SECOND) for number in (0, 1)]
        assert 100 * own[0] / sum(own) == pytest.approx(part, abs=3)


def test_long_launches_beside_short_ones_get_their_part() -> None:
    outcome = run(Process(LONG, True, 50), Process(HOG, True, 50), seconds=8)
    own = [outcome.own_between(number, 3 * SECOND, 8 * SECOND) for number in (0, 1)]
    assert own[0] / sum(own) == pytest.approx(0.5, abs=0.03)


def test_production_keeps_its_pace_and_its_pauses_are_used() -> None:
    alone = Plant([Process(PAUSING, True)], OnlyMeasured(), 6 * SECOND).run().steps_between(0, 2 * SECOND, 6 * SECOND)
    outcome = run(Process(PAUSING, True), Process(HOG, False))
    beside = outcome.steps_between(0, 2 * SECOND, 6 * SECOND)
    assert sorted(beside)[len(beside) // 2] <= 1.05 * sorted(alone)[len(alone) // 2]
    assert sorted(beside)[len(beside) * 99 // 100] <= 1.05 * sorted(alone)[len(alone) * 99 // 100]
    idle = 4 * SECOND - outcome.own_between(0, 2 * SECOND, 6 * SECOND)
    assert outcome.own_between(1, 2 * SECOND, 6 * SECOND) >= 0.8 * idle


class WatchedController(MeasuredController):
    """Notes how much each process may use beside production, and the delay that was permitted then."""

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[int, list[int]] = {}
        self.permitted: dict[int, float] = {}

    def _beside(self, process: ProcessHistory, space: Room, now: int) -> int:
        limit, tokens = super()._beside(process, space, now), self._protection.tokens
        unit, used = max(space.batch, process.longest), process.look.occupied + process.account.pending
        if (
            limit > used
            and tokens >= unit
            and now - process.served_at < beside_interval(self.policy, unit, self._pauses.step)
        ):
            # A batch may begin below the limit, and so end up to its own length beyond it.
            self.given.setdefault(now, []).append(limit - used - 1 + unit)
            self.permitted[now] = tokens
        return limit


@pytest.mark.parametrize("others", [1, 2, 8])
def test_neighbors_together_get_the_delay_that_is_permitted_once(others: int) -> None:
    controller = WatchedController()
    busy = Workload("busy", (launches(400, 200_000), SYNC_OP, STEP_OP))
    Plant([Process(busy, True), *(Process(HOG, False) for _ in range(others))], controller, 6 * SECOND).run()
    assert controller.given, "work beside production begins"
    assert all(sum(given) <= 2 * controller.permitted[now] for now, given in controller.given.items())


class TurnsController(MeasuredController):
    """Notes whether the process that has the turn has a batch short enough for one."""

    def __init__(self) -> None:
        super().__init__()
        self.can_use: list[bool] = []

    def _beside(self, process: ProcessHistory, space: Room, now: int) -> int:
        if process is self._next and self._working(now):
            unit = max(space.batch, process.longest)
            self.can_use.append(unit <= self.policy.noticed_delay * self._pauses.step)
        return super()._beside(process, space, now)


def test_a_process_whose_batch_is_too_long_for_a_turn_keeps_none_from_others() -> None:
    controller = TurnsController()
    busy = Workload("busy", (launches(400, 200_000), SYNC_OP, STEP_OP))
    processes = [Process(busy, True), Process(LONG, False), *(Process(HOG, False) for _ in range(4))]
    Plant(processes, controller, 6 * SECOND).run()
    assert controller.can_use, "one has its turn"
    assert all(controller.can_use)


def test_a_hog_gives_way_within_the_first_second() -> None:
    outcome = run(Process(PAUSING, True, begins=2 * SECOND), Process(HOG, False))
    late = outcome.steps_between(0, 3 * SECOND, 6 * SECOND)
    assert max(late) <= 1.1 * 40 * MILLISECOND


def test_nothing_is_left_of_production_that_is_gone() -> None:
    outcome = run(Process(PAUSING, True, ends=3 * SECOND), Process(HOG, False))
    assert outcome.own_between(1, 3 * SECOND + 200 * MILLISECOND, 6 * SECOND) >= 0.98 * 2.8 * SECOND


def test_a_launch_of_seconds_is_unholdable_beside_production_at_work() -> None:
    giant = Workload("giant", (launches(1, 600 * MILLISECOND), SYNC_OP, STEP_OP))
    outcome = run(Process(HOG, True), Process(giant, False))
    assert any("1" in verdict.unholdable for _, verdict in outcome.verdicts)


def test_the_opportunistic_do_not_starve_beside_production_that_never_pauses() -> None:
    outcome = run(Process(PRODUCTION["resnet50"], True), Process(OPPORTUNISTIC["gpt2"], False))
    assert outcome.own_between(1, 2 * SECOND, 6 * SECOND) > 0
