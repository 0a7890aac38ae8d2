"""Solo windows: when they open, when they end, and that they are paid for."""

from __future__ import annotations

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND, SECOND
from jupyter_aliquot.gpu_hook.agent.compute.policy.policy import Policy
from jupyter_aliquot.gpu_hook.agent.compute.policy.solo import SoloNeed, SoloWindows, Stage

POLICY = Policy()
STEP = 20 * MILLISECOND
MISSING = SoloNeed(missing=3, samples=0, is_alone=True, is_quiet=False, harvest=0.5)


def need(**more: object) -> SoloNeed:
    return SoloNeed(**{**MISSING.__dict__, **more})  # type: ignore[arg-type]


def test_a_window_opens_when_work_in_flight_has_ended() -> None:
    windows = SoloWindows(POLICY)
    windows.step(SECOND, MISSING)
    assert (windows.stage, windows.word % 2, windows.closes) == (Stage.DRAINING, 0, True)
    windows.step(SECOND + STEP, need(is_quiet=True))
    assert (windows.stage, windows.word % 2) == (Stage.OPEN, 1)


def test_a_window_ends_with_its_samples_and_has_another_number_each_time() -> None:
    windows = SoloWindows(POLICY)
    windows.step(SECOND, need(is_quiet=True))
    assert windows.word == 1
    windows.step(SECOND + STEP, need(is_quiet=True, samples=5, missing=0))
    assert (windows.word, windows.closes) == (2, False)
    windows.step(100 * SECOND, need(is_quiet=True, samples=5))
    assert windows.word == 3


def test_what_does_not_drain_is_not_waited_for() -> None:
    windows = SoloWindows(POLICY)
    windows.step(SECOND, MISSING)
    windows.step(SECOND + POLICY.solo_drain + STEP, MISSING)
    assert (windows.stage, windows.word) == (Stage.NONE, 0)


def test_nothing_missing_means_no_window() -> None:
    windows = SoloWindows(POLICY)
    for number in range(100):
        windows.step(SECOND + number * STEP, need(missing=0, is_quiet=True))
    assert windows.word == 0
    windows.step(SECOND + POLICY.baseline_age + SECOND, need(missing=0, is_quiet=True))
    assert windows.word == 1


def test_other_production_at_work_ends_a_window() -> None:
    windows = SoloWindows(POLICY)
    windows.step(SECOND, need(is_quiet=True))
    windows.step(SECOND + STEP, need(is_quiet=True, is_alone=False))
    assert windows.word == 2


def test_windows_cost_no_more_of_the_harvest_than_the_policy_says() -> None:
    windows, closed, now = SoloWindows(POLICY), 0, SECOND
    for number in range(30_000):
        windows.step(now, need(is_quiet=True, samples=number, harvest=0.5))
        closed += STEP if windows.closes else 0
        now += STEP
    assert 0 < closed <= 2 * POLICY.solo_cost * (now - SECOND)
