"""The differences of two quota files, in one line for the audit. Pure."""

from __future__ import annotations

from dataclasses import fields
from types import MappingProxyType

from .values import Quotas, Team

# More would hide what matters, and each is a line of the audit.
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
        "is_backfilling": "queue.backfill",
        "order": "queue.order",
    }
)


def quota_changes(before: Quotas | None, after: Quotas) -> str:
    """Return the teams that came, went or changed, with the keys of each; empty where none did."""
    old = Quotas() if before is None else before
    told = _differences("", old, after, ("teams", "budgets"))
    told += ["budgets changed"] if old.budgets != after.budgets else []
    told += [f"team {name} removed" for name in old.teams if name not in after.teams]
    for name, team in after.teams.items():
        known = old.teams.get(name)
        told += [f"team {name} added"] if known is None else _differences(f"team {name}: ", known, team, _UNTOLD)
    text = "; ".join(told)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


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
