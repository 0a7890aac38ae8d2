"""An estimate of the idle time that a clairvoyant controller could use.

It knows when each pause ends. A launch cannot be taken back: it runs in a pause that is long
enough, or it delays production, which may lose one part in twenty.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from compute.programs import GRAPH, HOST, LAUNCH, Workload
from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import Interval

LEAST_PAUSE = 50_000  # nanoseconds; the device switches no context in shorter pauses
SLACK = 0.05  # production may lose this part of its time
SWITCH = 50_000


def most_harvest(intervals: Sequence[Interval], workload: Workload, step: float) -> float:
    """Return the most harvest, as a part of the pauses between these intervals.

    ``step``: the length of production's step, over which slack accumulates.
    """
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
