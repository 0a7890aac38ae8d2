"""Budgets of the quota file: how they are read, what counts for them, and which requests they refuse."""

from __future__ import annotations

from collections.abc import ItemsView
from contextlib import nullcontext
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gateway.accounting.amounts import CHARGE_PER_UNIT, UNITS_PER_HOUR
from jupyter_aliquot.gateway.accounting.book import Book, Spending
from jupyter_aliquot.gateway.accounting.budgets import BudgetCheck
from jupyter_aliquot.gateway.accounting.days import Calendar, find_zone
from jupyter_aliquot.gateway.accounting.looks import Place
from jupyter_aliquot.gateway.accounting.policy import ChargePolicy
from jupyter_aliquot.gateway.accounting.recorder import AccountingSources, UsageAccounting
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gateway.teams.budgets import Budget
from jupyter_aliquot.gateway.teams.reading import QuotaFileError, read_quotas
from jupyter_aliquot.provisioner.errors import LimitError, UnknownUseError
from jupyter_aliquot.provisioner.resources import GpuShare, Request, WorkloadClass

from .life import ALICE, HOUR, LOG, NOON, Life, part, settings

FILE = """\
teams:
  research: {}
  vision: {parent: research, users: [alice, bob], formerNames: [sight]}
  speech: {parent: research, users: [carol]}
budgets:
  users:
    alice: {gpuHours: 10, atLimit: refuse}
    "*": {gpuHours: 4, period: week}
  teams:
    vision: {gpuHours: 20, warnAt: 0.5}
    research: {gpuHours: 100, period: quarter, atLimit: refuse}
"""
TODAY = date(2026, 11, 29).toordinal()
QUARTER = Request(GpuShare(25))
LOW = Request(GpuShare(25), None, WorkloadClass.OPPORTUNISTIC)


def check(spent: dict[tuple[str, str], float], policy: ChargePolicy | None = None, zone: str = "UTC") -> BudgetCheck:
    """Return the budgets of FILE with these GPU-hours charged in every period, by user and team."""
    charges = {key: round(hours * UNITS_PER_HOUR * CHARGE_PER_UNIT) for key, hours in spent.items()}
    spending = Spending(TODAY, dict.fromkeys(("week", "month", "quarter"), charges))
    quotas, calendar = read_quotas(FILE, "a file"), Calendar(find_zone(zone), zone)
    return BudgetCheck(quotas, spending, calendar, policy or ChargePolicy())


class Noon(SystemClock):
    """A clock that stands at NOON."""

    def wall(self) -> float:
        return NOON / 1000


def accounting() -> UsageAccounting:
    """Return an accounting with the budgets of FILE that has looked at nothing yet."""
    quotas = read_quotas(FILE, "a file")
    sources = AccountingSources(admission=lambda: AdmissionSnapshot("ok", "", ()), quotas=lambda: quotas, boot="boot 1")
    return UsageAccounting(settings(None), sources, Noon(), LOG)


def states(budgets: BudgetCheck, user: str) -> dict[str, str]:
    return {use.name: use.state for use in budgets.uses(user, ())}


def test_a_user_has_the_own_budget_the_teams_and_those_above_it() -> None:
    budgets = check({("alice", "vision"): 8.0, ("bob", "sight"): 3.0, ("carol", "speech"): 1.0})
    assert states(budgets, "alice") == {"alice": "warning", "vision": "warning", "research": "ok"}
    assert states(budgets, "bob") == {"bob": "ok", "vision": "warning", "research": "ok"}
    used = {use.name: use.used for use in budgets.uses("bob", ())}
    assert used == {"bob": 3.0, "vision": 11.0, "research": 12.0}


def test_a_request_beyond_a_budget_that_refuses_is_told_which_and_until_when() -> None:
    budgets = check({("alice", "vision"): 10.5})
    with pytest.raises(LimitError) as refused:
        budgets.check("alice", (), QUARTER)
    assert str(refused.value) == (
        "Requested 0.25 GPU, but alice has used 10.50 of the 10 GPU-hours of this month's budget. It renews on "
        "2026-12-01 (UTC). Wait until then, or ask an administrator for more"
    )
    budgets.check("bob", (), QUARTER)


def test_budgets_are_told_before_the_first_look() -> None:
    budgets = accounting().budgets_of(User("alice", "user"))
    assert [(one["name"], one["used_gpu_hours"], one["renews_at"]) for one in budgets] == [
        ("alice", 0.0, "2026-12-01T00:00:00Z"),
        ("vision", 0.0, "2026-12-01T00:00:00Z"),
        ("research", 0.0, "2027-01-01T00:00:00Z"),
    ]


def test_a_budget_that_refuses_admits_nothing_before_the_first_look_at_its_period() -> None:
    counted = accounting()
    with pytest.raises(UnknownUseError):
        counted.check("alice", (), QUARTER)
    # A reloaded quota file has a period that no look has asked for.
    quotas, calendar = read_quotas(FILE, "a file"), Calendar(find_zone("UTC"), "UTC")
    spent = Spending(TODAY, {"week": {}, "month": {}})
    with pytest.raises(UnknownUseError, match="this quarter's"):
        BudgetCheck(quotas, spent, calendar, ChargePolicy()).check("bob", (), QUARTER)


def test_a_budget_that_warns_refuses_nothing_and_has_a_message() -> None:
    budgets = check({("bob", "vision"): 50.0})
    budgets.check("bob", (), QUARTER)
    own, team, _ = [budgets.report(use) for use in budgets.uses("bob", ())]
    assert (own["state"], own["at_limit"], own["left_gpu_hours"]) == ("exceeded", "warn", 0.0)
    assert team["message"] == (
        "The team vision has used 50.00 of the 20 GPU-hours of this month's budget, which renews on 2026-12-01 (UTC)"
    )
    assert (own["start"], own["renews_at"]) == ("2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z")


def test_a_budget_above_the_team_refuses_its_users() -> None:
    budgets = check({("carol", "speech"): 100.0})
    with pytest.raises(LimitError, match=r"the team research has used .* GPU-hours of this quarter's"):
        budgets.check("bob", (), QUARTER)
    budgets.check("dan", (), QUARTER)


def test_a_priority_that_is_charged_nothing_needs_no_budget() -> None:
    budgets = check({("alice", "vision"): 99.0}, ChargePolicy(priorities={"low": 0.0}))
    budgets.check("alice", (), LOW)
    with pytest.raises(LimitError):
        budgets.check("alice", (), QUARTER)


@pytest.mark.parametrize(
    ("before", "request_", "is_refused"),
    [
        (LOW, QUARTER, True),  # the same share at a higher weight
        (QUARTER, LOW, False),
        (QUARTER, QUARTER, False),
        (QUARTER, Request(GpuShare(50)), True),
        (Request(GpuShare(50)), QUARTER, False),
        (QUARTER, replace(LOW, gpus=GpuShare(50)), True),
    ],
)
@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_a_kernel_that_is_charged_more_needs_a_budget(
    before: Request, request_: Request, weight: float, *, is_refused: bool
) -> None:
    budgets = check({("alice", "vision"): 99.0}, ChargePolicy(priorities={"low": weight}))
    is_free = request_.workload_class is WorkloadClass.OPPORTUNISTIC and not weight
    with pytest.raises(LimitError) if is_refused and not is_free else nullcontext():
        budgets.check("alice", (), request_, before)


def test_a_budget_renews_at_midnight_of_the_time_zone() -> None:
    budgets = check({("alice", "vision"): 10.0}, zone="Europe/Berlin")
    with pytest.raises(LimitError, match=r"It renews on 2026-12-01 \(Europe/Berlin\)"):
        budgets.check("alice", (), QUARTER)


def test_administrators_see_the_budget_of_each_user_who_used_something() -> None:
    budgets = check({("erin", ""): 1.0, ("alice", "vision"): 1.0})
    assert [(use.kind, use.name) for use in budgets.all_uses("root")] == [
        ("user", "alice"),
        ("user", "erin"),
        ("user", "root"),
        ("team", "research"),
        ("team", "vision"),
    ]


def test_a_budget_whose_use_cannot_be_read_refuses_new_requests_if_it_is_to_refuse() -> None:
    quotas, calendar = read_quotas(FILE, "a file"), Calendar(find_zone("UTC"), "UTC")
    budgets = BudgetCheck(quotas, Spending(TODAY, {"week": {}, "quarter": {}}), calendar, ChargePolicy())
    with pytest.raises(UnknownUseError) as refused:
        budgets.check("alice", (), QUARTER)
    assert str(refused.value) == (
        "Requested 0.25 GPU, but it cannot be read now how much alice has used of this month's budget. Try again in "
        "a moment. If it stays so, ask an administrator: the status says why"
    )
    budgets.check("alice", (), QUARTER, QUARTER)  # a kernel that takes nothing more
    budgets.check("bob", (), QUARTER)  # his budgets of the month warn
    own, team, _ = [budgets.report(use)["message"] for use in budgets.uses("alice", ())]
    assert own == "How much alice has used of this month's budget cannot be read now"
    assert team == "How much the team vision has used of this month's budget cannot be read now"


class Counted(dict[tuple[str, str], int]):
    """Charges that count how often all of them are read."""

    reads = 0

    def items(self) -> ItemsView[tuple[str, str], int]:
        self.reads += 1
        return super().items()


def test_charges_are_summed_once_a_look_however_many_users_and_questions_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    charges = Counted({(f"user{number}", "vision"): 1 for number in range(50)})

    class Looked(Book):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.spending = Spending(TODAY, {"week": charges, "month": {}, "quarter": {}})

    monkeypatch.setattr("jupyter_aliquot.gateway.accounting.recorder.Book", Looked)
    counted = accounting()
    everyone = counted.budgets_of(User("root", "admin"), is_for_all=True)
    assert len(everyone) == 54  # alice, root, and two teams, too
    counted.budgets_of(User("user1", "user"))
    counted.check("user2", (), QUARTER)
    assert charges.reads == 1


@pytest.mark.parametrize(
    ("budgets", "want"),
    [
        ("users: {alice: {}}", "budgets.users.alice has no gpuHours"),
        ("users: {alice: 5}", "budgets.users.alice"),
        ("users: {alice: {gpuHours: -1}}", "Use a number above 0"),
        ("users: {alice: {gpuHours: 5, period: fortnight}}", "Use one of day, week, month, quarter, year"),
        ("users: {alice: {gpuHours: 5, atLimit: stop}}", "Use one of warn, refuse"),
        ("users: {alice: {gpuHours: 5, warnAt: 80}}", "a part from 0 to 1"),
        ("users: {alice: {gpuhours: 5}}", "Use gpuHours"),
        ("teams: {visoin: {gpuHours: 5}}", "'visoin', which is no team"),
        ("members: {}", "budgets.members is no known key"),
    ],
)
def test_a_budget_that_cannot_be_read_is_told_with_its_line(budgets: str, want: str) -> None:
    with pytest.raises(QuotaFileError) as refused:
        read_quotas(f"teams: {{vision: {{}}}}\nbudgets:\n  {budgets}\n", "f")
    assert want in str(refused.value)
    assert "f:3:" in str(refused.value)


@pytest.mark.parametrize(
    ("teams", "want"),
    [
        ("{vision: {formerNames: [speech]}, speech: {}}", "'speech', which is a team now"),
        ("{vision: {formerNames: [old]}, speech: {formerNames: [old]}}", "as teams.vision in line 1 has"),
    ],
)
def test_a_former_name_is_of_one_team_and_of_none_now(teams: str, want: str) -> None:
    with pytest.raises(QuotaFileError, match=want):
        read_quotas(f"teams: {teams}\n", "f")


def test_without_words_a_budget_is_of_a_month_and_warns() -> None:
    quotas = read_quotas("teams: {vision: {}}\nbudgets: {teams: {vision: {gpuHours: 2.5}}}\n", "f")
    assert quotas.budgets.teams == {"vision": Budget(2.5, "month", "warn", 0.8)}
    assert quotas.budgets.periods == {"month"}


@pytest.mark.parametrize("is_killed", [False, True])
def test_spending_goes_on_over_restarts_and_begins_anew_with_the_period(tmp_path: Path, is_killed: bool) -> None:
    life = Life(settings(tmp_path / "accounting.sqlite"), periods=("day", "month"))
    life.look()
    life.look([part(hundredths=100)])

    def spent(period: str) -> float:
        return sum(life.book.spending.charges[period].values()) / (UNITS_PER_HOUR * CHARGE_PER_UNIT)

    for _ in range(3):
        life.go(HOUR)
        life.look([part(hundredths=100)])
    assert (spent("day"), spent("month")) == (3.0, 3.0)
    if is_killed:
        life.begin()
    else:
        life.restart()
    life.go(HOUR)
    life.look([part(hundredths=100)])
    assert (spent("day"), spent("month")) == (4.0, 4.0)
    life.go(12 * HOUR)
    life.look([part(hundredths=100, place=Place.ON_GPU)])
    # It is 04:00 of the next day.
    assert (spent("day"), spent("month")) == (4.0, 16.0)
    assert life.book.spending.charges["month"].keys() == {(ALICE.user, ALICE.team)}
