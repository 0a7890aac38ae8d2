"""Bound the values of a sample, whatever the page says. The controller uses no other values."""

from __future__ import annotations

from dataclasses import replace

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import SECOND, DeviceSample, ProcessSample

MOST_COUNTER = 1 << 62  # 146 years of nanoseconds; sums of some stay below what the pages hold
MOST_LONGEST = 3600 * SECOND


def _counter(value: int) -> int:
    return min(MOST_COUNTER, max(0, value))


def _is_bounded(look: ProcessSample, now: int) -> bool:
    """Return whether a sample is bounded already.

    Most are, and a copy of each would cost a tenth of a step.
    """
    counters = (
        look.occupied,
        look.in_flight,
        look.waiting_launches,
        look.waiting_calls,
        look.launches,
        look.throttled,
        look.sampled,
        look.sampled_solo,
        look.samples,
        look.without_baseline,
        0 if look.own is None else look.own,
    )
    is_in_time = 0 <= look.lost <= SECOND and 0 <= look.active_since <= now and 0 <= look.longest <= MOST_LONGEST
    return is_in_time and min(counters) >= 0 and max(counters) <= MOST_COUNTER


def _bounded(look: ProcessSample, now: int) -> ProcessSample:
    if _is_bounded(look, now):
        return look
    return replace(
        look,
        lost=min(SECOND, max(0, look.lost)),  # between two samples
        occupied=_counter(look.occupied),
        active_since=min(now, max(0, look.active_since)),
        in_flight=_counter(look.in_flight),
        waiting_launches=_counter(look.waiting_launches),
        waiting_calls=_counter(look.waiting_calls),
        launches=_counter(look.launches),
        longest=min(MOST_LONGEST, max(0, look.longest)),
        throttled=_counter(look.throttled),
        sampled=_counter(look.sampled),
        sampled_solo=_counter(look.sampled_solo),
        samples=_counter(look.samples),
        without_baseline=_counter(look.without_baseline),
        own=None if look.own is None else _counter(look.own),
    )


def bounded(look: DeviceSample) -> DeviceSample:
    """Return the sample with every number of each process in its range.

    The attribution checks the intervals.
    """
    unique = {one.key: one for one in look.processes}
    return replace(look, processes=tuple(_bounded(one, look.now) for one in unique.values()))
