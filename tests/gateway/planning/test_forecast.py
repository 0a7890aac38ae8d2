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


def test_four_of_five_forecasts_come_true_though_the_futures_are_too_short() -> None:
    random, calibration = Random(4), Calibration()
    drawn = sorted(random.expovariate(1.0) for _ in range(400))
    for _ in range(2000):
        told = drawn[int(calibration.level * (len(drawn) - 1))]
        calibration.learn(came_true=random.expovariate(1.0) * 1.5 <= told)
    assert 0.75 <= calibration.share <= 0.85


def test_futures_that_are_five_times_too_short_are_corrected_by_past_waits() -> None:
    """No part of such futures would do: 99 of 100 cover but three of five waits."""
    random, calibration = Random(5), Calibration()
    for _ in range(2000):
        drawn = sorted(random.expovariate(1.0) for _ in range(100))
        told = calibration.told(Forecast(drawn[50], drawn[90], drawn[5], drawn[95]))
        waited = 5 * random.expovariate(1.0)
        assert told.low <= told.within <= told.high
        calibration.learn(came_true=waited <= told.within)
        calibration.note(drawn[50], waited)
    assert 0.75 <= calibration.share <= 0.85


def test_a_forecast_without_an_end_stays_one() -> None:
    calibration = Calibration()
    for _ in range(50):
        calibration.note(math.inf, 10.0)
        calibration.note(10.0, 20.0)
    assert calibration.told(Forecast(10.0, 12.0, 8.0, 12.0)).within == 20.0
    assert calibration.told(Forecast(math.inf, math.inf, 5.0, math.inf)).within == math.inf
