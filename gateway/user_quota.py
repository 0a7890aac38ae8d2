"""What one user may hold at once, and what of it is left. Pure; admission refuses by the same sums."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aliquot.provisioner.resources import GpuShare

from .ledger import LedgerSnapshot
from .planner import Pending
from .request_queue import waits_for


def quota_report(
    limit: GpuShare | None, ledger: LedgerSnapshot, pending: Iterable[Pending], name: str
) -> dict[str, Any]:
    """``UserQuota`` of api.yaml. What waits is counted as admission counts it: it is left for nobody else."""
    held, waits = ledger.held_by(name), waits_for(name, pending)
    left = None if limit is None else max(0, limit.hundredths - held.hundredths - waits.hundredths) / 100
    return {
        "gpus": None if limit is None else float(limit),
        "held_gpus": float(held),
        "waiting_gpus": float(waits),
        "left_gpus": left,
    }
