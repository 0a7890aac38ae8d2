"""Plans of later moments: what starts when kernels end as announced. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from jupyter_aliquot.gateway.scheduling.ledger import LedgerSnapshot
from jupyter_aliquot.gateway.scheduling.planner import Pending, Plan, Serving, serve
from jupyter_aliquot.gateway.scheduling.serving.order import queue_order

# Bounds of the forecast, which is made anew each second: so many requests, and twice so many ends.
_MOST_FORESEEN = 16


def expected_starts(
    snapshot: LedgerSnapshot, pending: Sequence[Pending], ends: Mapping[str, float], now: float
) -> dict[str, float]:
    """Return the first moment at which each request fits, by kernel id.

    The forecast plans again at each end of a kernel, at each deadline of a request, and when one takes
    devices of several domains. *ends* are the ends of kernels that hold a grant; an end before *now*
    counts as now. Requests that fit at no such moment are left out, and those behind the first 16 of
    the queue.
    """
    found: dict[str, float] = {}
    left = queue_order(snapshot, pending, now)[:_MOST_FORESEEN]
    for one in left:
        ends = {**ends, **dict.fromkeys(one.replaces if one.is_preempting else (), now)}
    known = {kernel_id: max(now, at) for kernel_id, at in ends.items() if kernel_id in snapshot.holdings}
    patience = {one.deadline for one in left if one.deadline is not None and one.deadline > now}
    wait = 0.0 if snapshot.quotas is None else snapshot.quotas.locality_seconds
    relaxed = {at for one in left if wait and (at := moment_after(one.since, wait)) > now}
    for moment in sorted({now, *known.values(), *patience, *relaxed})[: 2 * _MOST_FORESEEN]:
        gone = [kernel_id for kernel_id, at in known.items() if at == moment]
        snapshot, left = _ended(snapshot, gone), [one for one in left if one.kernel_id not in gone]
        is_settled = False
        while left and not is_settled:
            served = serve(snapshot, queue_order(snapshot, left, moment), moment)
            found |= {admit.kernel_id: moment for admit in served.admissions}
            snapshot = carried_out(snapshot, left, served)
            left, is_settled = list(served.blocked), not served.preempting
    return found


def moment_after(since: float, seconds: float) -> float:
    """Return the first moment that is so many seconds after another by its difference, which is rounded."""
    at = since + seconds
    while at - since < seconds:
        at = math.nextafter(at, math.inf)
    return at


def carried_out(snapshot: LedgerSnapshot, pending: Sequence[Pending], planned: Plan | Serving) -> LedgerSnapshot:
    """Return the ledger once the admitted kernels hold their parts, and replaced ones have ended.

    The replaced kernels of a preempting request are told to end, and it starts when they have.
    """
    requests = {one.kernel_id: one for one in pending}
    for admit in planned.admissions:
        snapshot = snapshot.with_parts(admit.kernel_id, requests[admit.kernel_id].request, admit.parts)
    for kernel_id in planned.preempting:
        snapshot = _ended(snapshot, requests[kernel_id].replaces)
    return snapshot


def _ended(snapshot: LedgerSnapshot, kernel_ids: Iterable[str]) -> LedgerSnapshot:
    for kernel_id in kernel_ids:
        snapshot = snapshot.without(kernel_id)
    return snapshot
