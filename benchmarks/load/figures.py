"""Statistics of measured times: percentiles, and the slope of a growth with its confidence.

The functions are pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

# Two-sided 95 % of Student's t by degrees of freedom; beyond the table the normal distribution's.
_T95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 8: 2.31, 10: 2.23, 15: 2.13, 20: 2.09, 30: 2.04, 60: 2.0}
_NORMAL95 = 1.96


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that at least so many percent of all do not exceed.

    Raises ValueError without values.
    """
    if not values:
        raise ValueError("A percentile needs one value or more, but there is none")
    rank = max(1, math.ceil(percent / 100 * len(values)))
    return sorted(values)[rank - 1]


def means(values: Sequence[float], parts: int) -> list[float]:
    """Return the means of as many parts of equal length, one after the other.

    If there are fewer values, each is a part of its own.
    """
    count = len(values)
    bounds = [number * count // min(parts, count) for number in range(min(parts, count) + 1)] if count else []
    return [sum(values[start:end]) / (end - start) for start, end in pairwise(bounds)]


@dataclass(frozen=True)
class Slope:
    """Growth per unit of time, and half the width of its 95 % interval."""

    value: float
    margin: float

    @property
    def is_growth(self) -> bool:
        """Return whether the interval lies above zero: then it did grow."""
        return self.value - self.margin > 0

    @property
    def most(self) -> float:
        """Return the upper end of the interval."""
        return self.value + self.margin


def slope(times: Sequence[float], values: Sequence[float]) -> Slope:
    """Return the least-squares line through these points.

    Raises ValueError for fewer than three, or one moment alone.
    """
    count = len(times)
    if count < 3 or len(values) != count:
        raise ValueError(
            f"A slope needs three moments and values or more, but there are {count} moments and {len(values)} values"
        )
    mean_time, mean = sum(times) / count, sum(values) / count
    spread = sum((time - mean_time) ** 2 for time in times)
    if spread == 0:
        raise ValueError("A slope needs values of several moments, but all are of one")
    steepness = sum((t - mean_time) * (v - mean) for t, v in zip(times, values, strict=True)) / spread
    left = sum((v - mean - steepness * (t - mean_time)) ** 2 for t, v in zip(times, values, strict=True))
    error = math.sqrt(left / (count - 2) / spread)
    return Slope(steepness, _student(count - 2) * error)


def _student(freedom: int) -> float:
    """Return Student's t, a little wide between the table's rows: that of the row before."""
    known = [one for one in _T95 if one <= freedom]
    return _NORMAL95 if freedom > 2 * max(_T95) else _T95[max(known)]
