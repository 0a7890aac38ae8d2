"""The forecast of a start: by hand where the future is certain, and its calibration on made-up sessions."""

from __future__ import annotations

import math
from random import Random

import pytest

from jupyter_aliquot.gateway.planning.forecast import Calibration, Forecast, Habits, Holder, forecast

WHOLE = Holder(((0, 1000),), 30.0)


def test_a_certain_future_is_told_without_an_error_bar() -> None:
    found = forecast(1, [WHOLE], [], 1000, Habits([100.0]), seed=1)
    assert (found.median, found.low, found.high, found.within) == (70.0, 70.0, 70.0, 70.0)


def test_requests_ahead_start_first_and_last_as_long_as_cells_do() -> None:
    assert forecast(1, [WHOLE], [1000, 1000], 1000, Habits([100.0]), seed=1).median == 270.0


def test_a_kernel_keeps_its_devices_until_its_idle_timeout() -> None:
    idle = Holder(((0, 1000),), 10.0, is_busy=False)
    assert forecast(1, [idle], [], 500, Habits([100.0], [1e6], 60.0), seed=1).median == 50.0
    assert forecast(1, [WHOLE], [], 500, Habits([100.0], [1e6], 60.0), seed=1).median == 130.0


def test_what_fits_starts_now_and_the_next_size_is_the_largest_that_does() -> None:
    half = Holder(((0, 500),), 30.0)
    assert forecast(1, [half], [], 500, Habits([100.0]), seed=1).median == 0.0
    found = forecast(1, [half], [], 1000, Habits([100.0]), seed=1, sizes=(250, 500, 750, 1000))
    assert (found.median, found.next_size) == (70.0, 500)
    assert forecast(1, [half], [1000], 1000, Habits([100.0]), seed=1, sizes=(250,)).next_size == 0


def test_error_bars_hold_the_median_and_depend_on_the_seed_alone() -> None:
    random = Random(2)
    habits = Habits([random.lognormvariate(4, 1) for _ in range(200)])
    holders = [Holder(((at, 1000),), 5.0 * at) for at in range(4)]
    found = [forecast(4, holders, [2000], 1000, habits, seed=seed) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    assert found[0].low < found[0].median < found[0].high
    assert found[0].median <= found[0].within <= found[0].high


def test_a_request_that_the_node_cannot_hold_never_starts() -> None:
    assert forecast(1, [WHOLE], [], 2000, Habits([100.0]), seed=1).median == math.inf


def test_a_clock_that_went_back_counts_as_a_cell_that_just_began() -> None:
    assert forecast(1, [Holder(((0, 1000),), -50.0)], [], 1000, Habits([100.0]), seed=1).median == 100.0


@pytest.mark.parametrize(
    ("cells", "words"), [([], "no cell to learn from"), ([-1.0], r"-1\.0 s"), ([math.inf], "inf s")]
)
def test_habits_that_are_no_times_are_refused(cells: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Habits(cells)


@pytest.mark.parametrize("times", [0.3, 1.0, 1.5, 5.0])
def test_four_of_five_forecasts_come_true_though_the_futures_are_too_short_or_too_long(times: float) -> None:
    """Of futures a fifth as long as the waits no part would do: 99 of 100 cover but three of five."""
    random, calibration = Random(5), Calibration()
    for _ in range(2000):
        drawn = sorted(random.expovariate(1.0) + 2 for _ in range(100))
        told = calibration.told(Forecast(drawn[50], drawn[90], drawn[5], drawn[95]))
        assert told.low <= told.within <= told.high
        calibration.learn(came_true=times * (random.expovariate(1.0) + 2) <= told.within)
    assert 0.78 <= calibration.share <= 0.82


def test_forecasts_come_true_again_soon_after_waits_have_become_three_times_as_long() -> None:
    random, calibration = Random(6), Calibration()
    came_true = []
    for number in range(600):
        told = calibration.told(Forecast(10.0, 12.0, 8.0, 12.0))
        waited = random.uniform(5.0, 15.0) * (3 if number >= 300 else 1)
        came_true.append(waited <= told.within)
        calibration.learn(came_true=came_true[-1])
    assert sum(came_true[300:400]) >= 65
    assert 75 <= sum(came_true[400:500]) <= 85


def test_a_forecast_without_an_end_stays_one_and_the_factor_is_bounded() -> None:
    calibration = Calibration()
    assert calibration.told(Forecast(math.inf, math.inf, 5.0, math.inf)).within == math.inf
    for _ in range(1000):
        calibration.learn(came_true=False)
    assert calibration.told(Forecast(10.0, 12.0, 8.0, 12.0)).within <= 210.0
    for _ in range(1000):
        calibration.learn(came_true=True)
    assert calibration.told(Forecast(10.0, 12.0, 8.0, 12.0)).within >= 1.0
