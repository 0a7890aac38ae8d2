"""Other systems' controllers act as their sources do.

The tests check the rules that field studies and their authors name.
"""

from __future__ import annotations

import pytest
from compute.baselines.blocks import BlockOrder, BlockSample
from compute.baselines.hami import HamiLike, Part, refill
from compute.baselines.quanta import Quanta, nvshare
from compute.baselines.tgs import Limit, Phase, Statics, Tgs, window_rate

from jupyter_aliquot.gpu_hook.agent.compute.controllers import NoControl
from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND, SECOND, DeviceSample, ProcessSample
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import MEASURED
from jupyter_aliquot.gpu_hook.protocol.codec import Gate, Pace


def a_limit(rate: float = 100_000.0, statics: Statics | None = None) -> Limit:
    """TGS's state machine after its profile of steady production."""
    limit = Limit(statics or Statics())
    limit.connect()
    while limit.phase == Phase.PROFILE:
        limit.sample(rate, 0.0)
    limit.sample(rate, 0.0)
    return limit


def test_no_control_lets_everything_pass_and_measures_it() -> None:
    look = DeviceSample(1, (BlockSample(1, "a", True, 50), BlockSample(2, "b", False, 50)))
    assert NoControl().step(look).orders == {1: MEASURED, 2: MEASURED}


def test_tgs_takes_the_best_of_neighbouring_samples() -> None:
    assert window_rate([1.0, 3.0, 5.0, 2.0, 2.0]) == 4.0


def test_tgs_profiles_for_25_seconds_while_opportunistic_work_stands_still() -> None:
    limit, samples = Limit(Statics()), 0
    limit.connect()
    while limit.phase == Phase.PROFILE:
        assert limit.blocks == 0
        limit.sample(100_000.0, 0.0)
        samples += 1
    assert samples == 5
    assert limit.goal == pytest.approx(100_000.0, rel=0.03)


def test_tgs_needs_more_than_a_minute_from_its_first_limit_to_ten_million_blocks() -> None:
    limit, samples = a_limit(), 0
    assert limit.blocks == 20_000
    while limit.blocks < 1e7:
        limit.sample(100_000.0, 0.0)
        samples += 1
    assert 75 <= 5 * samples <= 85  # seconds


def test_tgs_throttles_production_that_runs_faster() -> None:
    limit = a_limit()
    before = limit.blocks
    limit.sample(108_000.0, 0.0)
    assert limit.blocks == pytest.approx(before / 1.5)


def test_tgs_divides_its_limit_by_ten_when_far_off() -> None:
    limit = a_limit()
    limit.sample(95_000.0, 0.0)
    assert limit.phase == Phase.CONGESTION_AVOIDANCE
    before = limit.blocks
    limit.sample(90_000.0, 0.0)
    assert limit.blocks == pytest.approx(before / 10)
    assert limit.phase == Phase.SLOW_START


def test_tgs_lowers_its_goal_after_twenty_samples_far_off() -> None:
    limit = a_limit()
    goal = limit.goal
    for _ in range(20):
        limit.sample(86_000.0, 0.0)
    assert limit.goal == pytest.approx(0.8 * goal)


def test_tgs_shares_that_counter_between_devices_as_its_source_does() -> None:
    statics = Statics()
    one, other = a_limit(statics=statics), a_limit(statics=statics)
    goals = one.goal, other.goal
    for _ in range(10):
        one.sample(86_000.0, 0.0)
        other.sample(86_000.0, 0.0)
    assert (one.goal, other.goal) != goals


def test_tgs_opens_when_three_of_five_samples_were_idle() -> None:
    limit = a_limit()
    for _ in range(12):
        limit.sample(100_000.0, 0.0)
    for rate in (0.0, 0.0, 0.0):
        limit.sample(rate, 0.0)
    assert limit.blocks >= 2.0**32


def a_pair(now: int, production: int, other: int) -> DeviceSample:
    return DeviceSample(
        now, (BlockSample(1, "a", True, 75, blocks=production), BlockSample(2, "b", False, 25, blocks=other))
    )


def test_tgs_passes_one_launch_in_each_window_while_it_profiles() -> None:
    order = Tgs().step(a_pair(0, 0, 500)).orders[2]
    assert isinstance(order, BlockOrder)
    assert (order.gate, order.pace, order.allowed_blocks) == (Gate.PACED, Pace.MEASURE, 501)


def test_tgs_opens_when_production_leaves() -> None:
    tgs = Tgs()
    tgs.step(a_pair(0, 0, 0))
    alone = DeviceSample(50 * MILLISECOND, (BlockSample(2, "b", False, 25),))
    assert tgs.step(alone).orders[2] == MEASURED


def test_hami_refills_at_least_by_its_floor_of_five_percent() -> None:
    part = Part(108, 2048)
    want_step = 108 * 108 * 2048 * 5 // 2560
    assert refill(part, 50, 50, 0) == want_step
    assert refill(part, 50, 51, 10 * want_step) == 9 * want_step


def test_hami_refills_faster_when_the_difference_is_above_half_the_limit() -> None:
    part = Part()
    assert refill(part, 50, 0, 0) > 9 * refill(part, 50, 40, 0)  # 5 times by the difference alone


def test_hami_starts_with_a_whole_bucket_whatever_the_limit() -> None:
    order = HamiLike().step(DeviceSample(0, (BlockSample(1, "a", False, 10),))).orders[1]
    assert isinstance(order, BlockOrder)
    assert order.allowed_blocks >= Part().bucket


def test_hami_does_not_limit_a_whole_device_or_production() -> None:
    look = DeviceSample(0, (BlockSample(1, "a", False, 100), BlockSample(2, "b", True, 50)))
    assert all(order == MEASURED for order in HamiLike().step(look).orders.values())


@pytest.mark.parametrize("make", [HamiLike, Tgs])
def test_what_counts_blocks_is_not_for_a_real_device(make: type[HamiLike | Tgs]) -> None:
    with pytest.raises(TypeError, match="only the plant counts blocks"):
        make().step(DeviceSample(0, (ProcessSample(1, "a", False, 10),)))


def two_that_want(now: int, in_flight: int = 0) -> DeviceSample:
    one = BlockSample(1, "a", True, 50, in_flight=in_flight, waiting_launches=1)
    return DeviceSample(now, (one, BlockSample(2, "b", False, 50, waiting_launches=1)))


def holders(quanta: Quanta, look: DeviceSample) -> list[int]:
    return [key for key, order in quanta.step(look).orders.items() if order.gate != Gate.CLOSED]


def test_quanta_give_the_device_to_one_kernel_until_its_quantum_ends_and_it_has_drained() -> None:
    quanta = Quanta(quantum=100 * MILLISECOND)
    assert holders(quanta, two_that_want(0)) == [1]
    assert holders(quanta, two_that_want(90 * MILLISECOND, in_flight=1)) == [1]
    assert holders(quanta, two_that_want(100 * MILLISECOND, in_flight=1)) == []
    assert holders(quanta, two_that_want(103 * MILLISECOND)) == [2]


def test_quanta_give_a_turn_to_a_kernel_whose_calls_wait_before_its_first_launch() -> None:
    quanta = Quanta(quantum=100 * MILLISECOND)
    starting = BlockSample(1, "a", True, 50, waiting_calls=1)  # as in cuMemAlloc
    busy = BlockSample(2, "b", False, 50, waiting_launches=1)
    assert holders(quanta, DeviceSample(0, (busy,))) == [2]
    assert holders(quanta, DeviceSample(10 * MILLISECOND, (starting, busy))) == [2]
    assert holders(quanta, DeviceSample(101 * MILLISECOND, (starting, busy))) == [1]


def test_an_nvshare_holder_without_work_keeps_the_device_for_five_seconds() -> None:
    quanta = nvshare()
    assert holders(quanta, two_that_want(0)) == [1]
    gone = (BlockSample(1, "a", True, 50), BlockSample(2, "b", False, 50, waiting_launches=1))
    assert holders(quanta, DeviceSample(4 * SECOND, gone)) == [1]
    assert holders(quanta, DeviceSample(6 * SECOND, gone)) == [2]
