"""An estimate of what could be harvested by one who knows when each pause ends. A launch cannot be taken back: it runs
in a pause that is long enough, or it delays production, which may lose one part in twenty.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from compute.programs import GRAPH, HOST, LAUNCH, Workload
from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import Interval

LEAST_PAUSE = 50_000  # nanoseconds; between shorter ones no context is switched
SLACK = 0.05  # of production's time may be lost
SWITCH = 50_000


def most_harvest(intervals: Sequence[Interval], workload: Workload, step: float) -> float:
    """As a part of the pauses between these intervals. ``step``: production's, so far slack may be saved up."""
    pauses = [
        (one.end, other.start) for one, other in itertools.pairwise(intervals) if other.start - one.end >= LEAST_PAUSE
    ]
    idle = sum(end - begin for begin, end in pauses)
    if not idle:
        return 0.0
    harvest, slack, place, done = 0, 0.0, 0, 0
    last_end = intervals[0].start
    for begin, end in pauses:
        slack = min(SLACK * step, slack + SLACK * (end - last_end)) - SWITCH
        last_end, now = end, begin + SWITCH
        while now < end:
            kind, _, count, each, host_each, _ = workload.ops[place]
            if kind == HOST:
                now, place, done = now + each, (place + 1) % len(workload.ops), 0
                continue
            if kind not in (LAUNCH, GRAPH) or done >= count:
                place, done = (place + 1) % len(workload.ops), 0
                continue
            each = max(each, host_each)
            late = now + each - end
            if late > max(0.0, slack):
                break
            fits = max(1, min(count - done, (end - now) // each))
            slack -= max(0, late)
            harvest += fits * each
            done, now = done + fits, now + fits * each
    return min(1.0, harvest / idle)
