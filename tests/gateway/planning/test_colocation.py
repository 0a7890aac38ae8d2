"""Advice on neighbours: the rule of thumb, the fitted model with its error bar, and the floor."""

from __future__ import annotations

from random import Random

import pytest

from jupyter_aliquot.gateway.planning.colocation import Interference, Profile, weighted

LIGHT, HEAVY = Profile(0.2, 0.3), Profile(0.9, 0.8)


def slower(one: Profile, other: Profile) -> float:
    """Return the speed of a made-up device on which only what is over its bandwidth costs."""
    return 1.0 - 0.5 * max(0.0, one.bandwidth + other.bandwidth - 1.0)


def measured(count: int) -> list[tuple[Profile, Profile, float]]:
    random = Random(1)
    pairs = [
        (Profile(random.random(), random.random()), Profile(random.random(), random.random())) for _ in range(count)
    ]
    return [(one, other, slower(one, other)) for one, other in pairs]


def test_figures_are_weighted_by_the_time_of_cuda_kernels() -> None:
    assert weighted([(0.9, 1.0), (0.1, 3.0)]) == pytest.approx(0.3)
    assert weighted([]) == 0.0


def test_without_measurements_pairs_that_fit_together_keep_most_of_their_speed() -> None:
    rule = Interference()
    assert rule.of(LIGHT, LIGHT).is_at_least()
    assert not rule.of(LIGHT, HEAVY).is_at_least()
    assert rule.of(LIGHT, HEAVY) == rule.of(HEAVY, LIGHT)
    assert rule.of(LIGHT, LIGHT).low < rule.of(LIGHT, LIGHT).mean


def test_measured_pairs_give_a_better_prediction_and_an_error_bar_that_holds() -> None:
    fitted, rule, fresh = Interference(measured(120)), Interference(), measured(400)[120:]
    errors = {
        name: sum(abs(model.of(one, other).mean - speed) for one, other, speed in fresh) / len(fresh)
        for name, model in (("fitted", fitted), ("rule", rule))
    }
    assert errors["fitted"] < errors["rule"] / 2
    within = sum(fitted.of(one, other).low <= speed <= fitted.of(one, other).high for one, other, speed in fresh)
    assert within / len(fresh) >= 0.7


def test_a_kernel_of_normal_priority_refuses_a_neighbour_below_the_floor() -> None:
    advice = Interference(measured(120))
    assert advice.best(HEAVY, [[HEAVY], [LIGHT], []]) == 2
    assert advice.best(HEAVY, [[HEAVY]]) is None
    assert advice.best(HEAVY, [[HEAVY]], floor=None) == 0


def test_a_part_of_more_than_the_device_is_refused() -> None:
    with pytest.raises(ValueError, match=r"bandwidth is 1\.5"):
        Profile(1.5, 0.0)
