"""Advice on neighbours: the rule of thumb, the fitted model with its error bar, and the floor."""

from __future__ import annotations

from random import Random

import pytest

from jupyter_aliquot.gateway.planning.colocation import Interference, Loads, Neighbor, Profile, weighted

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
    assert rule.of(LIGHT, LIGHT).is_at_least(0.9)
    assert not rule.of(LIGHT, HEAVY).is_at_least(0.9)
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
    advice, heavy, light = Interference(measured(120)), Neighbor(HEAVY), Neighbor(LIGHT)
    assert advice.refuses(heavy, [light, heavy], 0.9)
    assert not advice.refuses(light, [light], 0.9)
    assert not advice.refuses(heavy, [heavy], 0.0), "no floor"
    low = Neighbor(HEAVY, is_normal=False)
    assert not advice.refuses(low, [low], 0.9), "low priority refuses none"
    assert advice.refuses(low, [heavy], 0.9)
    assert advice.refuses(heavy, [low], 0.9)
    assert not advice.refuses(Neighbor(HEAVY, is_measured=False), [heavy], 0.9), "an assumption refuses none"


def test_a_device_costs_the_speed_of_the_slowest_and_then_the_load_of_its_kernels() -> None:
    rule, heavy, light = Interference(), Neighbor(HEAVY), Neighbor(LIGHT)
    assert rule.cost(light, []) == (0.0, 0.0)
    assert rule.cost(light, [light]) < rule.cost(light, [light, light]) < rule.cost(light, [heavy])
    assert rule.cost(heavy, [light]) < rule.cost(heavy, [heavy]), "the same speed, and more load"
    assert rule.slowest([HEAVY]) is None
    assert rule.slowest([LIGHT, LIGHT, HEAVY]) == rule.of(LIGHT, HEAVY)


def test_a_kernel_that_was_never_measured_counts_with_its_share_beside_those_that_were() -> None:
    assert Loads().newcomer("ann", "python3", 0.5, is_normal=True) is None
    loads = Loads({"k": HEAVY}, {("ann", "python3"): LIGHT})
    assert loads.newcomer("ann", "python3", 0.5, is_normal=True) == Neighbor(LIGHT)
    assumed = loads.newcomer("ben", "python3", 0.5, is_normal=False)
    assert assumed == Neighbor(Profile(0.0, 0.5), is_normal=False, is_measured=False)
    assert loads.resident("k", "ann", "python3", is_normal=True) == Neighbor(HEAVY)
    assert loads.resident("other", "ann", "python3", is_normal=True) == Neighbor(LIGHT), "as its owner's last one"
    assert loads.resident("other", "ben", "python3", is_normal=True) is None


def test_a_part_of_more_than_the_device_is_refused() -> None:
    with pytest.raises(ValueError, match=r"bandwidth is 1\.5"):
        Profile(1.5, 0.0)


def test_a_kernel_that_uses_nothing_slows_none() -> None:
    idle = Profile(0.04, 0.0)  # 0 in steps
    assert Interference().of(idle, HEAVY).mean == Interference().of(HEAVY, idle).mean == 1.0
