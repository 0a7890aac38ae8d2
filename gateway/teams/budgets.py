"""Budgets of GPU-hours in the quota file: their values, and how they are read. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from .yaml_nodes import Value

BUDGET_PERIODS = ("day", "week", "month", "quarter", "year")
WARN, REFUSE = "warn", "refuse"
# A budget of this name is that of each user, or each team, without a budget of its own.
EACH_OTHER = "*"
_KINDS = ("users", "teams")
BUDGET_KEYS = ("gpuHours", "period", "atLimit", "warnAt")


@dataclass(frozen=True)
class Budget:
    """GPU-hours that may be charged in each period.

    ``at_limit``: whether new kernels are refused then. ``warn_at``: the part of it from which users
    are warned.
    """

    gpu_hours: float
    period: str = "month"
    at_limit: str = WARN
    warn_at: float = 0.8


@dataclass(frozen=True)
class Budgets:
    """All budgets, by the names of users and teams."""

    users: Mapping[str, Budget] = field(default_factory=lambda: MappingProxyType({}))
    teams: Mapping[str, Budget] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def periods(self) -> frozenset[str]:
        """The periods of all budgets."""
        return frozenset(one.period for one in (*self.users.values(), *self.teams.values()))

    def of_user(self, name: str) -> Budget | None:
        return self.users.get(name) or self.users.get(EACH_OTHER)

    def of_team(self, name: str) -> Budget | None:
        return self.teams.get(name) or self.teams.get(EACH_OTHER)


NO_BUDGETS = Budgets()


def read_budgets(value: Value, teams: Mapping[str, object]) -> Budgets:
    """Return the budgets of the key ``budgets``. ``teams``: the file's, by name."""
    found = value.fields(_KINDS)
    budgets: dict[str, dict[str, Budget]] = {kind: {} for kind in _KINDS}
    for kind, table in found.items():
        for name, line, one in table.entries():
            if kind == "teams" and name not in (*teams, EACH_OTHER):
                value.problems.add(
                    line, f"budgets.teams names {name!r}, which is no team. Use a name below teams, or *"
                )
                continue
            read = _budget(one)
            if read is not None:
                budgets[kind][name] = read
    return Budgets(MappingProxyType(budgets["users"]), MappingProxyType(budgets["teams"]))


def _budget(value: Value) -> Budget | None:
    found = value.fields(BUDGET_KEYS)
    if "gpuHours" not in found:
        if value.is_table:
            value.problems.add(value.line, f"{value.path} has no gpuHours. Write how many GPU-hours it is")
        return None
    hours = found["gpuHours"].number_above_zero()
    period = found["period"].choice(BUDGET_PERIODS) if "period" in found else "month"
    at_limit = found["atLimit"].choice((WARN, REFUSE)) if "atLimit" in found else WARN
    warn_at = found["warnAt"].number_above_zero() if "warnAt" in found else 0.8
    if warn_at is not None and warn_at > 1:
        found["warnAt"].refuse("a part from 0 to 1, such as 0.8")
    if hours is None or period is None or at_limit is None or warn_at is None:
        return None
    return Budget(hours, period, at_limit, warn_at)
