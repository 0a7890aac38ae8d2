"""The quota file: from its text to values, or to all of its problems with their lines. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from jupyter_aliquot.gateway.planning.colocation import MOST_FLOOR
from jupyter_aliquot.gateway.planning.hierarchy import faults
from jupyter_aliquot.gateway.planning.node_choice import NodeOrder
from jupyter_aliquot.provisioner.errors import RequestError

from .budgets import NO_BUDGETS, read_budgets
from .values import ANY_MODEL, BORROWERS, ENDED, NOTHING, QUEUE_ORDERS, TEAM_ORDERS, Amounts, Quotas, Team
from .yaml_nodes import Problem, Problems, Value, read_yaml

_FILE = ("organization", "queue", "defaults", "teams", "budgets")
_QUEUE = ("order", "backfill", "placement", "usageHalfLife", "localityWait", "neighborFloor")
_WHY_MOST_FLOOR = "above that no two measured kernels at work would share a GPU"
_POLICY = ("overQuotaWeight", "reclaimMinRuntime", "mayBeEnded", "borrowingPriority", "overcommit", "queueOrder")
_MEMBERS = ("parent", "users", "groups", "formerNames")
TEAM_KEYS = (*_MEMBERS, "nominalQuota", "borrowingLimit", "lendingLimit", *_POLICY)


class QuotaFileError(RequestError):
    """A quota file that is not put in force, with its ``problems``."""

    def __init__(self, path: str, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        lines = [f"{path}:{one.line}: {one.text}" if one.line else f"{path}: {one.text}" for one in self.problems]
        super().__init__("\n".join(lines))


def read_quotas(text: str, path: str) -> Quotas:
    """Return the quotas of a file's text. Raises QuotaFileError with all problems that were found.

    *path* names the file in the problems.
    """
    problems = Problems()
    document = read_yaml(text, problems)
    quotas = Quotas() if document is None else _read(document)
    if not problems.found and (document is None or not document.has("teams")):
        # A file that an editor has emptied to write it anew would end the requests of all teams.
        problems.add(0, "The file has no teams. Write them below the key teams, or teams: {} for none")
    if not problems.found:
        _check(quotas, problems)
    if problems.found:
        raise QuotaFileError(path, problems.sorted())
    return quotas


def _read(document: Value) -> Quotas:
    top = document.fields(_FILE)
    organization = top["organization"].text() if "organization" in top else None
    queue = top["queue"].fields(_QUEUE) if "queue" in top else {}
    order = queue["order"].choice(QUEUE_ORDERS) if "order" in queue else None
    backfill = queue["backfill"].truth() if "backfill" in queue else None
    placement = queue["placement"].choice([one.value for one in NodeOrder]) if "placement" in queue else None
    half_life = queue["usageHalfLife"].seconds() if "usageHalfLife" in queue else None
    default = _policy(Team(""), top["defaults"].fields(_POLICY)) if "defaults" in top else Team("")
    locality = queue["localityWait"].seconds() if "localityWait" in queue else None
    floor = queue["neighborFloor"].part(MOST_FLOOR, _WHY_MOST_FLOOR) if "neighborFloor" in queue else None
    teams = {}
    for name, line, value in top["teams"].entries() if "teams" in top else ():
        teams[name] = _team(default, name, line, value)
    is_backfilling = True if backfill is None else backfill
    budgets = read_budgets(top["budgets"], teams) if "budgets" in top else NO_BUDGETS
    return Quotas(
        organization or "",
        MappingProxyType(teams),
        order or "fifo",
        is_backfilling,
        NodeOrder(placement or NodeOrder.BEST_FIT),
        half_life or None,
        budgets,
        locality or 0.0,
        floor or 0.0,
    )


def _team(default: Team, name: str, line: int, value: Value) -> Team:
    found = value.fields(TEAM_KEYS)
    policy = _policy(default, found)
    return Team(
        name=name,
        line=line,
        parent=(found["parent"].text() or "") if "parent" in found else "",
        users=found["users"].texts() if "users" in found else (),
        groups=found["groups"].texts() if "groups" in found else (),
        nominal=_amounts(found.get("nominalQuota")) or NOTHING,
        borrowing=_amounts(found.get("borrowingLimit")),
        lending=_amounts(found.get("lendingLimit")),
        weight=policy.weight,
        reclaim_seconds=policy.reclaim_seconds,
        may_be_ended=policy.may_be_ended,
        borrowers=policy.borrowers,
        overcommit=policy.overcommit,
        queue_order=policy.queue_order,
        former_names=found["formerNames"].texts() if "formerNames" in found else (),
    )


def _policy(default: Team, found: dict[str, Value]) -> Team:
    weight = found["overQuotaWeight"].number_above_zero() if "overQuotaWeight" in found else None
    seconds = found["reclaimMinRuntime"].seconds() if "reclaimMinRuntime" in found else None
    ended = found["mayBeEnded"].choice(ENDED) if "mayBeEnded" in found else None
    borrowers = found["borrowingPriority"].choice(BORROWERS) if "borrowingPriority" in found else None
    overcommit = found["overcommit"].number_from_one() if "overcommit" in found else None
    order = found["queueOrder"].choice(TEAM_ORDERS) if "queueOrder" in found else None
    return Team(
        "",
        weight=default.weight if weight is None else weight,
        reclaim_seconds=default.reclaim_seconds if seconds is None else seconds,
        may_be_ended=ended or default.may_be_ended,
        borrowers=borrowers or default.borrowers,
        overcommit=default.overcommit if overcommit is None else overcommit,
        queue_order=order or default.queue_order,
    )


def _amounts(value: Value | None) -> Amounts | None:
    """Return a number of GPUs, or a table of them by GPU model; None where the file says nothing."""
    if value is None:
        return None
    if not value.is_table:
        amount = value.hundredths()
        return None if amount is None else MappingProxyType({ANY_MODEL: amount})
    found = {model: one.hundredths() for model, _, one in value.entries()}
    return MappingProxyType({model: amount for model, amount in found.items() if amount is not None})


def _check(quotas: Quotas, problems: Problems) -> None:
    """Find the problems between teams."""
    _check_parents(quotas, problems)
    _check_members(quotas, problems)
    _check_models(quotas, problems)
    _check_former_names(quotas, problems)


def _check_parents(quotas: Quotas, problems: Problems) -> None:
    for fault in faults({team.name: team.parent for team in quotas.teams.values()}):
        if fault.cycle:
            way = " → ".join(fault.cycle)
            told = f"teams.{fault.name} is its own parent: {way}. Remove one of these parents"
        else:
            told = f"teams.{fault.name} has the parent {fault.parent!r}, which is no team. Add it, or remove parent"
        problems.add(quotas.teams[fault.name].line, told)


def _check_members(quotas: Quotas, problems: Problems) -> None:
    for kind in ("users", "groups"):
        seen: dict[str, Team] = {}
        for team in quotas.teams.values():
            for name in getattr(team, kind):
                if name in seen:
                    other = seen[name]
                    problems.add(
                        team.line,
                        f"teams.{team.name}.{kind} names {name!r}, as teams.{other.name} in line {other.line} does. "
                        "Name each in one team",
                    )
                seen.setdefault(name, team)


def _check_former_names(quotas: Quotas, problems: Problems) -> None:
    """Refuse a former name that is a team's name now, or that two teams had."""
    seen: dict[str, Team] = {}
    for team in quotas.teams.values():
        for name in team.former_names:
            if name in quotas.teams:
                problems.add(
                    team.line, f"teams.{team.name}.formerNames has {name!r}, which is a team now. Remove it there"
                )
            elif name in seen:
                other = seen[name]
                problems.add(
                    team.line,
                    f"teams.{team.name}.formerNames has {name!r}, as teams.{other.name} in line {other.line} has. "
                    "Name it in one team",
                )
            seen.setdefault(name, team)


def _check_models(quotas: Quotas, problems: Problems) -> None:
    """Refuse a file in which a quota is of all GPUs, and another one of a model."""
    first: Team | None = None
    for team in quotas.teams.values():
        for amounts in (team.nominal, team.borrowing or NOTHING, team.lending or NOTHING):
            if not amounts:
                continue
            first = first or team
            if (ANY_MODEL in amounts) != (ANY_MODEL in _all_amounts(first)):
                problems.add(
                    team.line,
                    f"teams.{team.name} and teams.{first.name} in line {first.line} count differently: one by GPU "
                    "model, one all GPUs together. Write all quotas and limits of the file in one way",
                )
                break


def _all_amounts(team: Team) -> Amounts:
    return next((a for a in (team.nominal, team.borrowing, team.lending) if a), NOTHING)
