"""Our controller on the simulated GPU: how it settles, and inputs that must not mislead it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from compute.dynamics import convergence, recovery
from compute.fairness import beside_busy, capped_alone, jain
from compute.opportunistic import OPPORTUNISTIC
from compute.pairs import measure, percentile
from compute.plant import OnlyMeasured, Outcome, Plant, Process
from compute.production import PRODUCTION
from compute.programs import SECOND

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import DeviceSample, Verdict
from jupyter_aliquot.gpu_hook.agent.compute.policy.controller import MeasuredController

HOG = Process(OPPORTUNISTIC["gpt2"], hundredths=25)
WITH_PAUSES = Process(PRODUCTION["resnet50.idle"], is_production=True, hundredths=75)
BUSY = Process(PRODUCTION["resnet50"], is_production=True, hundredths=75)


def run(*processes: Process, seconds: int = 12, clock: Callable[[int], int] = lambda now: now) -> Outcome:
    return Plant(processes, MeasuredController(), seconds * SECOND, seed=2, clock=clock).run()


def slowdown(outcome: Outcome, process: Process, begin: int, end: int) -> float:
    solo = Plant([process], OnlyMeasured(), end, seed=2).run()
    first = sum(step.end <= begin for step in outcome.steps[0])
    after = [step.time for step in outcome.steps[0]][first:]
    before = [step.time for step in solo.steps[0]][first : first + len(after)]
    return percentile(after, 0.5) / percentile(before, 0.5) - 1


def test_production_that_starts_under_a_hog_runs_as_alone_within_two_seconds() -> None:
    result = convergence("resnet50.idle", "gpt2", "measured")
    assert result.slowdown <= 2
    assert result.harvest is not None
    assert result.harvest <= 2


def test_production_that_returns_from_a_pause_runs_as_alone_within_200_ms() -> None:
    result = recovery("gpt2", "measured", span=15 * SECOND)
    assert result.returns >= 2
    assert result.recovery <= 0.2


def test_what_is_harvested_does_not_swing() -> None:
    outcome = run(WITH_PAUSES, HOG)
    windows = [outcome.own_between(1, time, time + SECOND) for time in range(4 * SECOND, 12 * SECOND, SECOND)]
    mean = sum(windows) / len(windows)
    assert all(0.5 * mean < window < 1.5 * mean for window in windows)


def test_nobody_starves_beside_production_that_never_pauses() -> None:
    outcome = run(BUSY, HOG, seconds=25)
    assert all(outcome.own_between(1, time * SECOND, (time + 10) * SECOND) > 0 for time in (4, 14))
    assert slowdown(outcome, BUSY, 4 * SECOND, 25 * SECOND) <= 0.05


def test_production_that_waits_for_data_is_not_taken_for_slowed() -> None:
    """TGS treats it as slowed, and its harvest stays at a few percent."""
    pair = measure("resnet50.idle", "gpt2", "measured", span=15 * SECOND)
    assert pair.harvest >= 0.6
    assert pair.slowdown_p50 <= 0.05


@pytest.mark.parametrize("jump", [3600 * SECOND, 3 * SECOND, -2 * SECOND])
def test_a_clock_that_jumps_costs_seconds_at_most(jump: int) -> None:
    outcome = run(WITH_PAUSES, HOG, clock=lambda now: now + 10 * SECOND + (jump if now > 3 * SECOND else 0))
    assert slowdown(outcome, WITH_PAUSES, 6 * SECOND, 12 * SECOND) <= 0.1
    assert outcome.own_between(1, 6 * SECOND, 12 * SECOND) > SECOND // 2


def test_a_cap_holds_for_a_kernel_that_is_alone() -> None:
    assert capped_alone("dlrm", 25, "measured").worst <= 3


def test_weights_hold_beside_a_busy_neighbour() -> None:
    assert abs(beside_busy("dlrm", "gpt2", 25, "measured", is_production=True).mean - 25) <= 5


def test_sixteen_kernels_share_one_device() -> None:
    assert jain(16, "measured") >= 0.9


@pytest.mark.parametrize("others", [8, 15])
def test_production_is_protected_from_many_others(others: int) -> None:
    """Batches of many kernels wait for each other in a pause, and production for all of them."""
    outcome = run(WITH_PAUSES, *[HOG] * others, seconds=8)
    assert slowdown(outcome, WITH_PAUSES, 3 * SECOND, 8 * SECOND) <= 0.05
    assert all(own > 0 for own in outcome.own)


class Recording(MeasuredController):
    """Records its samples and verdicts."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[tuple[DeviceSample, Verdict]] = []

    def step(self, look: DeviceSample) -> Verdict:
        verdict = super().step(look)
        self.all.append((look, verdict))
        return verdict


def test_two_devices_under_one_kernel_share_no_state() -> None:
    one, other = Recording(), Recording()
    Plant([WITH_PAUSES, HOG], one, 3 * SECOND, seed=1).run()
    Plant([BUSY, HOG, HOG], other, 3 * SECOND, seed=2).run()
    first, second = MeasuredController(), MeasuredController()
    for (look, want), (other_look, other_want) in zip(one.all, other.all, strict=False):
        assert first.step(look) == want
        assert second.step(other_look) == other_want
