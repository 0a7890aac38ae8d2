"""The division of what no team is owed: by weight, less for teams that had much of it before. Pure.

Use within quota counts nothing: only what a team held beyond it does, and less the longer ago.
Source: KAI-Scheduler's time-based fair share (documents of v0.17).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


def surplus_parts(weights: Mapping[str, float], usage: Mapping[str, float], factor: float = 1.0) -> dict[str, float]:
    """Return the part of the surplus of each team that wants some.

    Args:
        weights: of these teams, 0 or more.
        usage: what each had of the surplus before, as a part of the cluster (``decayed``).
        factor: by how much that counts; 0: not at all.

    A team of which the usage leaves nothing has the part 0.
    """
    total = sum(weights.values())
    if not total:
        return dict.fromkeys(weights, 0.0)
    normal = {team: weight / total for team, weight in weights.items()}
    return {team: max(0.0, one + factor * (one - usage.get(team, 0.0))) for team, one in normal.items()}


def decayed(usage: float, seconds: float, half_life: float, held: float = 0.0) -> float:
    """Return a usage after so many seconds in which the team held a constant part of the cluster over quota.

    It is a moving average: half of the old usage is left after one half-life, and a team that always
    held the same part has that usage. A clock that went back counts as no time.
    """
    left = math.pow(0.5, max(0.0, seconds) / half_life)
    return usage * left + held * (1.0 - left)


@dataclass(frozen=True)
class Usage:
    """The use beyond quota of teams, as parts of the cluster: a moving average up to a moment.

    ``held`` are the parts that they hold since then. Times are seconds on the caller's clock.
    """

    average: Mapping[str, float]
    held: Mapping[str, float]
    at: float

    def at_time(self, now: float, half_life: float) -> dict[str, float]:
        """Return the average at a later moment; teams of which next to nothing is left are dropped."""
        teams = {**self.average, **self.held}
        seconds = now - self.at
        found = {
            team: decayed(self.average.get(team, 0.0), seconds, half_life, self.held.get(team, 0.0)) for team in teams
        }
        return {team: one for team, one in found.items() if one > _LEAST}

    def then(self, held: Mapping[str, float], now: float, half_life: float) -> Usage:
        """Return the usage from now on, when teams hold other parts."""
        return Usage(self.at_time(now, half_life), dict(held), now)


# A part of the cluster that counts as none.
_LEAST = 1e-6
