"""Budgets against what was charged: how much is left, and which requests are refused. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from jupyter_aliquot.gateway.reports.usage import Budget as BudgetReport
from jupyter_aliquot.gateway.teams.budgets import REFUSE, Budget
from jupyter_aliquot.gateway.teams.values import Quotas
from jupyter_aliquot.provisioner.errors import LimitError, UnknownUseError
from jupyter_aliquot.provisioner.resources import Request

from .amounts import CHARGE_PER_UNIT, UNITS_PER_HOUR
from .book import Spending
from .days import Calendar, period_of
from .looks import Teams
from .policy import ChargePolicy

USER, TEAM = "user", "team"
_OK, _WARNING, _EXCEEDED = "ok", "warning", "exceeded"
_THIS = {
    "day": "today's",
    "week": "this week's",
    "month": "this month's",
    "quarter": "this quarter's",
    "year": "this year's",
}


@dataclass(frozen=True)
class BudgetUse:
    """One budget and what is used of it, in GPU-hours of charge."""

    kind: str
    name: str
    budget: Budget
    used: float
    is_unknown: bool = False

    @property
    def state(self) -> str:
        if self.used >= self.budget.gpu_hours:
            return _EXCEEDED
        return _WARNING if self.used >= self.budget.warn_at * self.budget.gpu_hours else _OK

    @property
    def refuses(self) -> bool:
        return self.state == _EXCEEDED and self.budget.at_limit == REFUSE


@dataclass(frozen=True)
class _Sums:
    """The charges of one period by user, and by team with those below it."""

    users: Mapping[str, int]
    teams: Mapping[str, int]


class BudgetCheck:
    """The budgets of a quota file on one day, with what is charged so far.

    It sums each period once: one of these objects answers all questions until the next look.
    """

    def __init__(self, quotas: Quotas | None, spending: Spending, calendar: Calendar, policy: ChargePolicy) -> None:
        self._quotas = quotas or Quotas()
        self._spending = spending
        self._calendar = calendar
        self._policy = policy
        self._teams = Teams(quotas)
        # Made when they are first needed, as the texts of a period's bounds are.
        self._sums: dict[str, _Sums] = {}
        self._bounds: dict[str, tuple[str, str]] = {}

    def is_of(self, quotas: Quotas, spending: Spending) -> bool:
        """Return whether these are the quotas and the charges that it was made of."""
        return self._quotas is quotas and self._spending is spending

    def uses(self, user: str, groups: Iterable[str]) -> list[BudgetUse]:
        """Return the budgets that a user's kernels count for: the user's own, the team's, and those above it."""
        budgets, found = self._quotas.budgets, []
        own = budgets.of_user(user)
        if own is not None and user:
            found.append(self._of_user(user, own))
        for team in self._above(self._teams.of(user, groups)):
            budget = budgets.of_team(team)
            if budget is not None:
                found.append(self._of_team(team, budget))
        return found

    def all_uses(self, user: str) -> list[BudgetUse]:
        """Return all budgets, as administrators see them; of each other user those who used something."""
        budgets = self._quotas.budgets
        charged = {key for charges in self._spending.charges.values() for key in charges}
        users = {*(budgets.users), *(name for name, _ in charged), user} - {"*", ""}
        teams = {*budgets.teams, *self._quotas.teams, *(self._present(team) for _, team in charged)} - {"*", ""}
        found = []
        for name in sorted(users):
            if (own := budgets.of_user(name)) is not None:
                found.append(self._of_user(name, own))
        for team in sorted(teams):
            if (budget := budgets.of_team(team)) is not None:
                found.append(self._of_team(team, budget))
        return found

    def check(self, user: str, groups: Iterable[str], request: Request, before: Request | None = None) -> None:
        """Refuse a request for more than a budget has, or may have. Raises LimitError and UnknownUseError.

        A priority that is charged nothing needs no budget, and neither does a kernel that has ``before``
        and takes no more GPUs, at no higher weight.
        """
        weight = self._weight(request)
        if not self._quotas.budgets.periods or not weight:
            return
        if before is not None and request.gpus <= before.gpus and weight <= self._weight(before):
            return
        for use in self.uses(user, groups):
            if use.is_unknown and use.budget.at_limit == REFUSE:
                raise UnknownUseError(
                    f"Requested {request.gpus} GPU, but it cannot be read now how much {_named(use)} has used of "
                    f"{_THIS[use.budget.period]} budget. Try again in a moment. If it stays so, ask an administrator: "
                    "the status says why"
                )
            if use.refuses:
                raise LimitError(
                    f"Requested {request.gpus} GPU, but {_named(use)} has used {_hours_text(use.used)} of the "
                    f"{use.budget.gpu_hours:g} GPU-hours of {_THIS[use.budget.period]} budget. It renews on "
                    f"{self._renews(use)}. Wait until then, or ask an administrator for more"
                )

    def _weight(self, request: Request) -> float:
        return self._policy.priorities.get(request.workload_class.priority, 1.0)

    def report(self, use: BudgetUse) -> BudgetReport:
        """Return ``Budget`` of api/openapi.yaml."""
        (start, renews_at), most = self._bounds_of(use.budget.period), use.budget.gpu_hours
        return {
            "kind": use.kind,
            "name": use.name,
            "period": use.budget.period,
            "start": start,
            "renews_at": renews_at,
            "gpu_hours": most,
            "used_gpu_hours": round(use.used, 4),
            "left_gpu_hours": round(max(0.0, most - use.used), 4),
            "warn_at_gpu_hours": round(most * use.budget.warn_at, 4),
            "state": use.state,
            "at_limit": use.budget.at_limit,
            "message": self._told(use),
        }

    def _told(self, use: BudgetUse) -> str | None:
        told = _named(use)
        if use.is_unknown:
            return f"How much {told} has used of {_THIS[use.budget.period]} budget cannot be read now"
        if use.state == _OK:
            return None
        # A user's name stays as it is written.
        told = told[0].upper() + told[1:] if use.kind == TEAM else told
        of = f"the {use.budget.gpu_hours:g} GPU-hours of {_THIS[use.budget.period]} budget"
        return f"{told} has used {_hours_text(use.used)} of {of}, which renews on {self._renews(use)}"

    def _renews(self, use: BudgetUse) -> str:
        """Return the day on which a budget's next period begins, in the time zone in which days are counted."""
        return f"{self._bounds_of(use.budget.period)[1][:10]} ({self._calendar.name})"

    def _bounds_of(self, period: str) -> tuple[str, str]:
        """Return the first moment of the present period, and that of the next one."""
        if period not in self._bounds:
            span = period_of(self._spending.day, period)
            self._bounds[period] = self._calendar.iso(span.first), self._calendar.iso(span.end)
        return self._bounds[period]

    def _of_user(self, user: str, budget: Budget) -> BudgetUse:
        return self._use(USER, user, budget, self._summed(budget.period).users)

    def _of_team(self, team: str, budget: Budget) -> BudgetUse:
        return self._use(TEAM, team, budget, self._summed(budget.period).teams)

    def _use(self, kind: str, name: str, budget: Budget, charged: Mapping[str, int]) -> BudgetUse:
        is_unknown = budget.period not in self._spending.charges
        return BudgetUse(kind, name, budget, _hours(charged.get(name, 0)), is_unknown)

    def _summed(self, period: str) -> _Sums:
        if period not in self._sums:
            users, named, teams = Counter[str](), Counter[str](), Counter[str]()
            for (user, team), charge in self._spending.charges.get(period, {}).items():
                users[user] += charge
                named[team] += charge
            for name, charge in named.items():
                for team in self._above(self._present(name)):
                    teams[team] += charge
            self._sums[period] = _Sums(users, teams)
        return self._sums[period]

    def _present(self, team: str) -> str:
        return self._quotas.present_names.get(team, team)

    def _above(self, team: str) -> Iterator[str]:
        """Yield the team and those above it."""
        if team in self._quotas.teams:
            yield from (one.name for one in self._quotas.ancestors(team))
        elif team:
            yield team


def _hours(charge: int) -> float:
    return charge / (UNITS_PER_HOUR * CHARGE_PER_UNIT)


def _named(use: BudgetUse) -> str:
    return f"the team {use.name}" if use.kind == TEAM else use.name


def _hours_text(hours: float) -> str:
    """Return hours with two decimals, and less than one with four."""
    return f"{hours:.2f}" if hours >= 1 or not hours else f"{hours:.4f}"
