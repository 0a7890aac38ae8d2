"""GPU time since the gateway's start, as counters for Prometheus. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from jupyter_aliquot.gateway.status.user_metrics import UsageCounter

from .amounts import CHARGE_PER_UNIT, UNITS_PER_HOUR, Amounts, Subject

_UNITS_PER_SECOND = UNITS_PER_HOUR / 3600


def usage_counters(sums: Mapping[Subject, Amounts]) -> list[UsageCounter]:
    """Return the counters by user, team, model and priority: sizes are added, of which there may be many."""
    found: dict[tuple[str, str, str, str], Amounts] = {}
    for subject, amounts in sums.items():
        key = (subject.user, subject.team, subject.model, subject.priority)
        found[key] = found.get(key, Amounts()) + amounts
    return [
        UsageCounter(
            *key,
            working=amounts.used / _UNITS_PER_SECOND,
            on_gpu=amounts.on_gpu / _UNITS_PER_SECOND,
            swapped_out=amounts.swapped_out / _UNITS_PER_SECOND,
            waiting=amounts.waiting / _UNITS_PER_SECOND,
            charged=amounts.charged / (_UNITS_PER_SECOND * CHARGE_PER_UNIT),
        )
        for key, amounts in sorted(found.items())
    ]
