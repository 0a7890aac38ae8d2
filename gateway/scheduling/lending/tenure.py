"""The facts about a grant that the node agent does not keep, for the next gateway. Values."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jupyter_aliquot.gateway.scheduling.ledger import Holding


@dataclass(frozen=True)
class Tenure:
    """Since when a kernel has its GPU, in seconds since the epoch, and the condition on which it has it.

    ``passed`` are the requests ahead of which it started. ``left_for`` is the one that it was
    evicted for.
    """

    granted_at: float
    passed: tuple[str, ...] = ()
    left_for: str = ""


def tenure_of(holding: Holding, offset: float) -> Tenure:
    """Return the facts. ``offset`` added to admission's clock is the time of day."""
    passed = tuple(sorted(holding.passed)) if holding.is_backfilled else ()
    return Tenure(holding.granted_at + offset, passed, holding.leaves_for if holding.is_evicted else "")


def resumed(holding: Holding, tenure: Tenure | None, now: float, offset: float) -> Holding:
    """Return a grant that an earlier gateway gave, with what that one knew of it.

    Without a tenure it counts as granted when it was requested. No moment is later than now, also
    where the time of day was set back since. ``now`` is of admission's clock, ``offset`` as above.
    """
    queued_at = min(now, holding.since - offset)
    if tenure is None:
        return replace(holding, queued_at=queued_at, granted_at=queued_at, is_confirmed=False)
    return replace(
        holding,
        queued_at=queued_at,
        granted_at=min(now, tenure.granted_at - offset),
        is_backfilled=bool(tenure.passed),
        passed=frozenset(tenure.passed),
        leaves_for=tenure.left_for,
        is_evicted=bool(tenure.left_for),
        is_confirmed=False,
    )
