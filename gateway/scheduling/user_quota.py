"""What one user and the user's teams may hold at once, and what of it is left. Pure; the rule is gpu_caps'."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .ledger import LedgerSnapshot
from .planner import Pending
from .quotas import CapUse, GpuCaps, cap_uses, claims_of


def quota_report(
    caps: GpuCaps, ledger: LedgerSnapshot, pending: Iterable[Pending], name: str, teams: Iterable[str]
) -> dict[str, Any]:
    """``UserQuota`` of api.yaml. What waits is counted as admission counts it: it is left for nobody else."""
    claims = claims_of(ledger, pending, caps, name, teams)
    own, *of_teams = cap_uses(caps, claims, name, teams)
    return {**_report(own), "teams": [{"name": use.team, **_report(use)} for use in of_teams]}


def _report(use: CapUse) -> dict[str, Any]:
    return {
        "gpus": None if use.limit is None else float(use.limit),
        "held_gpus": float(use.held),
        "waiting_gpus": float(use.waits),
        "left_gpus": None if use.left is None else float(use.left),
    }
