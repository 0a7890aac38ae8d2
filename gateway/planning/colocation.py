"""Advice on neighbours on one device: how fast each would run beside the other. Pure.

Two figures of a kernel alone tell most: the weighted memory bandwidth and the occupancy, each the mean over its
CUDA kernels by their running time. The floor is the speed below which a kernel of normal priority refuses a
neighbour.

Source of the weighted figures: Tabrizian's thesis. The default is a rule of thumb of measured pairs: where the two
use less than the device together, the slower one keeps 0.944 of its speed (one in twenty below 0.836), else 0.807.
A kernel that uses nothing slows none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from types import MappingProxyType

# The speed that the slowest loses, and the load of the others: the smaller, the better a device.
Cost = tuple[float, float]
NO_COST: Cost = (0.0, 0.0)
# Profiles are told in steps, so that requests of one size and like profiles share what a plan finds.
STEPS = 10
# Of pairs measured in the literature (not here): mean speed of the slower one, and how far one in twenty lies below
# it. The 0.2 above 100 % use is an assumption.
_WITHIN, _WITHIN_BELOW = 0.944, 0.108
_BEYOND, _BEYOND_BELOW = 0.807, 0.2
# The highest floor: above it no pair at work would share a device, and so none be measured for a model.
MOST_FLOOR = _WITHIN
# Pairs seen from which a model is fitted; with fewer the rule of thumb stands.
LEAST_PAIRS = 12
_TERMS = 6
_RIDGE = 1e-3


@dataclass(frozen=True)
class Profile:
    """A kernel alone on a device: parts of the device, each 0 to 1."""

    bandwidth: float
    occupancy: float

    def __post_init__(self) -> None:
        for name in ("bandwidth", "occupancy"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ValueError(f"The {name} is {value}, and has to be a part of the device, 0 to 1")

    @property
    def load(self) -> float:
        """The part of the device that it uses most of."""
        return max(self.bandwidth, self.occupancy)

    def in_steps(self) -> Profile:
        """Return the profile in steps of a tenth."""
        return Profile(round(self.bandwidth * STEPS) / STEPS, round(self.occupancy * STEPS) / STEPS)


@dataclass(frozen=True)
class Neighbor:
    """A kernel as others on its device feel it. One that was never measured is assumed to use its share."""

    profile: Profile
    is_normal: bool = True
    is_measured: bool = True


def weighted(figures: Iterable[tuple[float, float]]) -> float:
    """Return the mean of (figure, seconds) of CUDA kernels, by their running time; 0 without any."""
    total = seconds = 0.0
    for figure, length in figures:
        total += figure * length
        seconds += length
    return total / seconds if seconds > 0 else 0.0


@dataclass(frozen=True)
class Speed:
    """The speed of the slower of two neighbours, as a part of its speed alone, with its error bar."""

    mean: float
    low: float
    high: float

    def is_at_least(self, floor: float) -> bool:
        """Return whether the mean is; a kernel of normal priority refuses a neighbour otherwise."""
        return self.mean >= floor


class Interference:
    """Predicts the speed of pairs, from those measured: (profile, profile, speed of the slower one)."""

    def __init__(self, measured: Iterable[tuple[Profile, Profile, float]] = ()) -> None:
        pairs = [(_terms(one, other), speed) for one, other, speed in measured]
        self._weights: list[float] | None = None
        self._error = 0.0
        if len(pairs) >= LEAST_PAIRS:
            self._weights = _fit(pairs)
            self._error = _left_out_error(pairs)

    def of(self, one: Profile, other: Profile) -> Speed:
        """Return the predicted speed; the same for both orders."""
        if self._weights is None:
            if not (one.in_steps().load and other.in_steps().load):
                return Speed(1.0, 1.0, 1.0)
            used = max(one.occupancy + other.occupancy, one.bandwidth + other.bandwidth)
            mean, below = (_WITHIN, _WITHIN_BELOW) if used <= 1.0 else (_BEYOND, _BEYOND_BELOW)
            return Speed(mean, mean - below, min(1.0, mean + below))
        mean = sum(weight * term for weight, term in zip(self._weights, _terms(one, other), strict=True))
        mean = min(1.0, max(0.0, mean))
        return Speed(mean, max(0.0, mean - self._error), min(1.0, mean + self._error))

    def cost(self, newcomer: Neighbor, residents: Iterable[Neighbor]) -> Cost:
        """Return what it costs to share a device with these: the speed that the slowest loses, then their load."""
        there = list(residents)
        lost = 1.0 - min((self.of(newcomer.profile, one.profile).mean for one in there), default=1.0)
        return round(lost, 6), round(sum(one.profile.load for one in there), 6)

    def refuses(self, newcomer: Neighbor, residents: Iterable[Neighbor], floor: float) -> bool:
        """Return whether one of a pair has normal priority, and the slower one would fall below the floor.

        A kernel that was never measured is refused by none.
        """
        if floor <= 0 or not newcomer.is_measured:
            return False
        with_normal = [one for one in residents if newcomer.is_normal or one.is_normal]
        return any(not self.of(newcomer.profile, one.profile).is_at_least(floor) for one in with_normal)

    def slowest(self, residents: Sequence[Profile]) -> Speed | None:
        """Return the speed of the slowest of a device's kernels while all work; None for fewer than two."""
        pairs = (self.of(one, other) for one, other in combinations(residents, 2))
        return min(pairs, key=lambda speed: speed.mean, default=None)


@dataclass(frozen=True)
class Loads:
    """The profiles of kernels that were measured: of those that run, and of the last of each owner and kernelspec."""

    of_kernels: Mapping[str, Profile] = field(default_factory=lambda: MappingProxyType({}))
    of_earlier: Mapping[tuple[str, str], Profile] = field(default_factory=lambda: MappingProxyType({}))
    model: Interference = field(default_factory=lambda: Interference())

    def resident(self, kernel_id: str, owner: str, kernelspec: str, *, is_normal: bool) -> Neighbor | None:
        """Return a kernel that has a device; None where it was never measured, nor one like it."""
        found = self.of_kernels.get(kernel_id) or self.of_earlier.get((owner, kernelspec))
        return None if found is None else Neighbor(found, is_normal)

    @property
    def has_any(self) -> bool:
        """Return whether a kernel was measured."""
        return bool(self.of_kernels or self.of_earlier)

    def newcomer(self, owner: str, kernelspec: str, share: float, *, is_normal: bool) -> Neighbor | None:
        """Return a kernel that is to start with this share of a device; None while no kernel was measured."""
        if not self.has_any:
            return None
        found = self.of_earlier.get((owner, kernelspec))
        if found is not None:
            return Neighbor(found, is_normal)
        return Neighbor(Profile(0.0, min(1.0, share)).in_steps(), is_normal, is_measured=False)


NO_LOADS = Loads()


def _terms(one: Profile, other: Profile) -> tuple[float, ...]:
    """Return the terms of the quadratic model, equal for both orders of the pair."""
    bandwidth, occupancy = one.bandwidth + other.bandwidth, one.occupancy + other.occupancy
    return (
        1.0,
        bandwidth,
        occupancy,
        one.bandwidth * other.bandwidth,
        one.occupancy * other.occupancy,
        max(0.0, bandwidth - 1.0) + max(0.0, occupancy - 1.0),
    )


def _fit(pairs: Sequence[tuple[tuple[float, ...], float]]) -> list[float]:
    """Return the weights of least squares, with a little ridge: six equations, solved by elimination."""
    matrix = [
        [sum(x[i] * x[j] for x, _ in pairs) + (_RIDGE if i == j else 0.0) for j in range(_TERMS)] for i in range(_TERMS)
    ]
    right = [sum(x[i] * y for x, y in pairs) for i in range(_TERMS)]
    for at in range(_TERMS):
        pivot = max(range(at, _TERMS), key=lambda row: abs(matrix[row][at]))
        matrix[at], matrix[pivot] = matrix[pivot], matrix[at]
        right[at], right[pivot] = right[pivot], right[at]
        for row in range(at + 1, _TERMS):
            factor = matrix[row][at] / matrix[at][at]
            matrix[row] = [value - factor * top for value, top in zip(matrix[row], matrix[at], strict=True)]
            right[row] -= factor * right[at]
    found = [0.0] * _TERMS
    for at in reversed(range(_TERMS)):
        rest = sum(matrix[at][one] * found[one] for one in range(at + 1, _TERMS))
        found[at] = (right[at] - rest) / matrix[at][at]
    return found


def _left_out_error(pairs: Sequence[tuple[tuple[float, ...], float]]) -> float:
    """Return the error that four of five pairs stay within when they are left out, a fifth at a time."""
    errors: list[float] = []
    for fold in range(5):
        weights = _fit([pair for at, pair in enumerate(pairs) if at % 5 != fold])
        for x, y in pairs[fold::5]:
            errors.append(abs(y - sum(weight * term for weight, term in zip(weights, x, strict=True))))
    return sorted(errors)[min(len(errors) - 1, math.ceil(0.8 * len(errors)) - 1)]
