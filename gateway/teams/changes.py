"""The differences of two quota files, in lines for the audit. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from types import MappingProxyType

from .budgets import Budget, Budgets
from .values import Quotas, Team

# A line of the audit is no longer, but for a single change that is.
_MOST_CHARACTERS = 2000
_UNTOLD = ("name", "line")  # a line moves when others do
_NAMES = MappingProxyType(
    {
        "nominal": "nominalQuota",
        "borrowing": "borrowingLimit",
        "lending": "lendingLimit",
        "weight": "overQuotaWeight",
        "reclaim_seconds": "reclaimMinRuntime",
        "may_be_ended": "mayBeEnded",
        "borrowers": "borrowingPriority",
        "queue_order": "queueOrder",
        "is_backfilling": "queue.backfill",
        "order": "queue.order",
        "node_order": "queue.placement",
        "usage_half_life": "queue.usageHalfLife",
        "locality_seconds": "queue.localityWait",
    }
)


def quota_changes(before: Quotas | None, after: Quotas) -> list[str]:
    """Return the teams and budgets that came, went or changed, with the keys of each, in lines; none where none did."""
    old = Quotas() if before is None else before
    told = _differences("", old, after, ("teams", "budgets"))
    told += _budget_changes(old.budgets, after.budgets)
    told += [f"team {name} removed" for name in old.teams if name not in after.teams]
    for name, team in after.teams.items():
        known = old.teams.get(name)
        told += [f"team {name} added"] if known is None else _differences(f"team {name}: ", known, team, _UNTOLD)
    # A user of several groups counts in the first team of one of them.
    stayed, stays = [name for name in old.teams if name in after.teams], [n for n in after.teams if n in old.teams]
    told += [f"order of the teams {', '.join(stayed)} → {', '.join(stays)}"] if stayed != stays else []
    return _lines(told)


def _lines(told: Iterable[str]) -> list[str]:
    lines: list[str] = []
    for one in told:
        if lines and len(lines[-1]) + len(one) + 2 <= _MOST_CHARACTERS:
            lines[-1] += f"; {one}"
        else:
            lines.append(one)
    return lines


def _budget_changes(old: Budgets, new: Budgets) -> list[str]:
    pairs = (("user", old.users, new.users), ("team", old.teams, new.teams))
    return [
        f"budget of {kind} {name} {_budget(before.get(name))} → {_budget(after.get(name))}"
        for kind, before, after in pairs
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]


def _budget(budget: Budget | None) -> str:
    """Return a budget's values with the keys of the file."""
    if budget is None:
        return "none"
    return (
        f"gpuHours {budget.gpu_hours:.15g}, period {budget.period}, atLimit {budget.at_limit}, "
        f"warnAt {budget.warn_at:.15g}"
    )


def _differences(prefix: str, old: Quotas | Team, new: Quotas | Team, untold: tuple[str, ...]) -> list[str]:
    names = [field.name for field in fields(new) if field.name not in untold]
    pairs = ((name, getattr(old, name), getattr(new, name)) for name in names)
    return [f"{prefix}{_NAMES.get(name, name)} {_text(a)} → {_text(b)}" for name, a, b in pairs if a != b]


def _text(value: object) -> str:
    """Return a value as the file might have it; amounts are hundredths of a GPU there."""
    if value is None:
        return "none"
    if isinstance(value, (dict, MappingProxyType)):
        amounts = ", ".join(f"{model or 'all'} {_amount(amount)}" for model, amount in value.items())
        return amounts or "nothing"
    if isinstance(value, tuple):
        return ", ".join(str(one) for one in value) or "none"
    return str(value) or "none"


def _amount(amount: object) -> str:
    return f"{amount / 100:g}" if isinstance(amount, (int, float)) else str(amount)
