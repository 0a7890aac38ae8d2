"""The own time of each process: the time that a device worked for it while intervals overlapped.

This module owns the sweep over intervals, and the short memory that the sweep needs, since
intervals of processes arrive late and out of step. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import (
    MILLISECOND,
    SECOND,
    DeviceSample,
    Interval,
    ProcessSample,
)

from .slices import HANDOVER, SLICE, Turns

MEMORY = 250 * MILLISECOND  # wait at most so long for the intervals of a process at work; later ones are late
OFTEN = 0.1  # share of the starts beside others from which on starts count as waiting
# for comparisons with NVML's counter, whose samples are up to a second apart
CORRECTION_SPAN = 2 * SECOND
LEAST_CORRECTION, MOST_CORRECTION = 0.5, 2.0


class Account(NamedTuple):
    """The cumulative times of one process, in nanoseconds.

    ``own_now`` goes beyond the settled time, and may fall back a little. ``lost`` is occupied time
    in which opportunistic peers had the device instead of this process; ``lost_to_equals`` is
    the same for peers of class production. ``pending`` is how long work has been on the device
    that no interval shows yet.
    """

    own: float
    own_now: float
    occupied: float
    lost: float
    lost_to_equals: float
    pending: int = 0


class Swept(NamedTuple):
    """The result of one sweep; lists are indexed by process.

    ``pauses`` are the ended pauses of production as a whole.
    """

    own: list[float]
    lost: list[float]
    union: int
    production: int  # nanoseconds during which production had work on the device
    pauses: list[Interval]
    idle_since: int | None  # None: production has work at the end


@dataclass(frozen=True)
class Attributed:
    """The result of one update, for the time from ``start`` to ``until``.

    ``busy`` holds the intervals that were settled in this step, by process.
    """

    accounts: dict[int, Account]
    busy: dict[int, list[Interval]]
    start: int
    until: int
    union: int = 0
    production: int = 0
    pauses: list[Interval] = field(default_factory=list)


def merged(intervals: Sequence[Interval], start: int, until: int) -> list[Interval]:
    """Return the parts of ``intervals`` from ``start`` to ``until``, in order.

    Intervals that touch or overlap become one.
    """
    result: list[Interval] = []
    last = start - 1
    for piece in intervals if _is_ordered(intervals) else sorted(intervals):
        begin, end = piece
        if last < begin < end <= until:  # nearly all intervals take this branch
            result.append(piece)
            last = end
            continue
        begin, end = max(begin, start), min(end, until)
        if end <= begin:
            continue
        if result and begin <= result[-1].end:
            if end > result[-1].end:
                result[-1] = Interval(result[-1].start, end)
        else:
            result.append(Interval(begin, end))
        last = result[-1].end
    return result


def _is_ordered(intervals: Sequence[Interval]) -> bool:
    last = 0
    for begin, _ in intervals:
        if begin < last:
            return False
        last = begin
    return True


def _events(work: Sequence[Sequence[Interval]]) -> tuple[list[int], int]:
    """Encode starts and ends as sorted numbers, and return them with the width of their low part.

    Each number holds the time, then the index of the process, then one bit that is set for an end.
    The second value is the number of bits that the index and that bit take.
    """
    bits = max(1, (len(work) - 1).bit_length()) + 1
    events = []
    for index, intervals in enumerate(work):
        code = index << 1
        for begin, end in intervals:
            events.append(begin << bits | code)
            events.append(end << bits | code | 1)
    events.sort()  # cheap: the events of each process are sorted runs already
    return events, bits


def sweep(work: Sequence[Sequence[Interval]], productions: Sequence[bool], idle_since: int | None) -> Swept:
    """Attribute time by processor sharing: k processes with work on the device get 1/k each.

    ``work`` has one sequence for each process, in order and without overlaps (see `merged`).
    """
    events, bits = _events(work)
    mask = (1 << bits) - 1
    count = opportunistic = union = production = last = 0
    part = others = 0.0  # ∫ 1/k, ∫ (opportunistic)/k
    own, lost, part_at, others_at = ([0.0] * len(work) for _ in range(4))
    pauses = []
    for event in events:
        time = event >> bits
        if count and time > last:
            part += (time - last) / count
            others += (time - last) * opportunistic / count
            union += time - last
            production += time - last if count > opportunistic else 0
        last = time
        index = (event & mask) >> 1
        if event & 1:
            count -= 1
            own[index] += part - part_at[index]
            if productions[index]:
                lost[index] += others - others_at[index]
                if count == opportunistic:
                    idle_since = time
            else:
                opportunistic -= 1
        else:
            part_at[index], others_at[index] = part, others
            if productions[index]:
                if idle_since is not None and count == opportunistic and time > idle_since:
                    pauses.append(Interval(idle_since, time))
                idle_since = None
            else:
                opportunistic += 1
            count += 1
    return Swept(own, lost, union, production, pauses, idle_since)


def sweep_turns(
    work: Sequence[Sequence[Interval]], productions: Sequence[bool], idle_since: int | None, wait: float = 0.0
) -> Swept:
    """Attribute time as `sweep` does, but by turns; see slices.py.

    ``wait`` is how long production waits on average for opportunistic work that was there.
    """
    events, bits = _events(work)
    mask, at_work, production = (1 << bits) - 1, 0, 0
    turns, pauses = Turns(productions, wait), []
    for event in events:
        time, index = event >> bits, (event & mask) >> 1
        production += time - turns.time if at_work else 0
        turns.advance(time)
        if event & 1:
            turns.end(index)
        else:
            turns.begin(index)
        if productions[index]:
            if not event & 1 and idle_since is not None and time > idle_since and not at_work:
                pauses.append(Interval(idle_since, time))
            at_work += -1 if event & 1 else 1
            idle_since = None if at_work else time
    return Swept(turns.own, turns.lost, turns.union, production, pauses, idle_since)


@dataclass
class _Process:
    """The state of one process. ``tail`` holds reported intervals that are not settled yet."""

    is_production: bool
    tail: list[Interval] = field(default_factory=list)
    known: int = 0
    own: float = 0.0
    occupied: float = 0.0
    lost: float = 0.0
    lost_to_equals: float = 0.0
    begun_at: int = 0  # start of announced work, until its interval shows when it ran
    begun_beside: bool = False
    # start of the work that is on the device now and in no interval yet
    open_since: int | None = None
    correction: float = 1.0
    counter: tuple[int, float] | None = None  # NVML's own time and ours at their last comparison
    compared_at: int = 0

    def hear(self, look: ProcessSample, now: int, settled: int) -> float:
        """Take in a new sample; return the occupied time that no interval will show."""
        late = max(0, look.lost)
        for begin, end in look.intervals:
            begin, end = max(0, begin), min(end, now)
            if begin < settled:
                late += max(0, min(end, settled) - begin)
            if end > settled and end > begin:
                self.tail.append(Interval(begin, end))
                self.known = max(self.known, end)
        if look.is_active:
            self.known = min(now, max(self.known, look.active_since))
            self.open_since = self.known
        else:
            self.known, self.open_since = now, None
        return late


class Attribution:
    """The own time of all processes of one device. Call ``update`` with each sample."""

    def __init__(self) -> None:
        self._processes: dict[int, _Process] = {}
        self._settled: int | None = None
        self._idle_since: int | None = None
        self._wait = SLICE / 4  # of the starts of production that waited, on average
        self._waits = 1.0  # share of the work begun beside others whose interval began only after a wait

    def update(self, look: DeviceSample) -> Attributed:
        now = look.now
        if self._settled is None or not self._settled <= now < self._settled + 10 * MEMORY:
            self._restart(now)
        settled = self._settled if self._settled is not None else now
        late = self._hear(look, settled)
        until = min([now, *(p.known for p in self._processes.values())])
        until = max(until, settled, now - MEMORY)
        keys = list(self._processes)
        of = [self._processes[key] for key in keys]
        busy = [merged(p.tail, settled, until) for p in of]
        classes = [p.is_production for p in of]
        by_turns = look.time_slices and self._waits > OFTEN
        swept = (
            sweep_turns(busy, classes, self._idle_since, self._wait)
            if by_turns
            else sweep(busy, classes, self._idle_since)
        )
        self._idle_since, self._settled = swept.idle_since, until
        self._settle(of, busy, swept, late, until - settled, look.time_slices)
        self._correct(look)
        ahead = self._ahead(of, until, now) if until < now else [0.0] * len(of)
        accounts = {
            key: Account(p.own, p.own + more, p.occupied, p.lost, p.lost_to_equals, now - (p.open_since or now))
            for key, p, more in zip(keys, of, ahead, strict=True)
        }
        self._forget(look)
        settled_work = dict(zip(keys, busy, strict=True))
        return Attributed(accounts, settled_work, settled, until, swept.union, swept.production, swept.pauses)

    def _restart(self, now: int) -> None:
        """Forget the past: this is the first sample, or the clock jumped."""
        self._settled, self._idle_since = now, None
        for process in self._processes.values():
            process.tail, process.known = [], now

    def _hear(self, look: DeviceSample, settled: int) -> dict[int, float]:
        late = {}
        for one in look.processes:
            if one.key not in self._processes:
                self._processes[one.key] = _Process(one.is_production, known=settled)
            process = self._processes[one.key]
            process.is_production = one.is_production
            self._watch_waits(process, one, sum(other.is_active for other in look.processes) > 1)
            late[id(process)] = process.hear(one, look.now, settled)
        here = {one.key for one in look.processes}
        for key, process in self._processes.items():
            if key not in here:
                process.known, process.open_since = look.now, None
        return late

    def _watch_waits(self, process: _Process, look: ProcessSample, is_beside: bool) -> None:
        """Learn whether intervals begin with the launch, or when the work first has the device."""
        if look.is_active and look.active_since > process.known:
            process.begun_at, process.begun_beside = look.active_since, is_beside
        if process.begun_at and look.intervals:
            begin = next((start for start, _ in look.intervals if start >= process.begun_at - HANDOVER), None)
            if begin is not None:
                self._learn_wait(begin - process.begun_at, process)
                process.begun_at = 0

    def _learn_wait(self, wait: int, process: _Process) -> None:
        has_waited = wait > HANDOVER
        if process.begun_beside:
            self._waits += 0.05 * (has_waited - self._waits)
        if has_waited and process.is_production:
            # a turn of each that may be before it
            longest = SLICE * max(1, sum(not one.is_production for one in self._processes.values()))
            self._wait += 0.1 * (min(wait, longest) - self._wait)

    def _settle(
        self,
        of: list[_Process],
        busy: list[list[Interval]],
        swept: Swept,
        late: dict[int, float],
        elapsed: int,
        time_slices: bool,
    ) -> None:
        scaled = [own * process.correction for own, process in zip(swept.own, of, strict=True)]
        scale = sum(swept.own) / (sum(scaled) or 1.0)
        # Time that no interval shows fits only into the gaps of the union.
        unseen = sum(late.values())
        room = min(1.0, max(0, elapsed - swept.union) / unseen) if unseen else 0.0
        for i, process in enumerate(of):
            occupied = sum(end - begin for begin, end in busy[i])
            hidden = late.get(id(process), 0.0)
            ratio = process.own / process.occupied if process.occupied else 1.0
            process.own += scaled[i] * scale + hidden * room * ratio
            process.occupied += occupied + hidden
            if time_slices:  # side by side, an overlap does not show its cost; sampled launches do
                process.lost += swept.lost[i]
                process.lost_to_equals += max(0.0, occupied - swept.own[i] - swept.lost[i])
            process.tail = [i for i in process.tail if i.end > (self._settled or 0)]

    def _correct(self, look: DeviceSample) -> None:
        """Bend our own times slowly toward NVML's counter.

        The counter is right in the long run and late in the short run.
        """
        for one in look.processes:
            process = self._processes[one.key]
            if one.own is None or one.own < 0:
                process.counter = None
            elif process.counter is None or one.own < process.counter[0]:
                process.counter, process.compared_at = (one.own, process.own), look.now
            elif look.now - process.compared_at >= CORRECTION_SPAN:
                said, ours = one.own - process.counter[0], process.own - process.counter[1]
                if said > 0 and ours > 10 * MILLISECOND:
                    wanted = process.correction * (0.5 + 0.5 * said / ours)
                    process.correction = min(MOST_CORRECTION, max(LEAST_CORRECTION, wanted))
                process.counter, process.compared_at = (one.own, process.own), look.now

    def _ahead(self, of: list[_Process], until: int, now: int) -> list[float]:
        """Return the own times from ``until`` to ``now`` if all work on the device stays there."""
        work = []
        for process in of:
            still = [Interval(process.open_since, now)] if process.open_since is not None else []
            work.append(merged([*process.tail, *still], until, now))
        return sweep(work, [p.is_production for p in of], None).own

    def _forget(self, look: DeviceSample) -> None:
        here = {one.key for one in look.processes}
        for key in [key for key, p in self._processes.items() if key not in here and not p.tail]:
            del self._processes[key]
