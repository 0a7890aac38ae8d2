"""Own time from intervals that overlap: whose work the device did while several had work on it.

Owns the sweep and the short memory it needs (intervals of processes arrive late and out of step). Decides nothing.
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

MEMORY = 250 * MILLISECOND  # so long is waited for the intervals of a process that is at work; later ones are late
OFTEN = 0.1  # waits, of the starts beside others
CORRECTION_SPAN = 2 * SECOND  # of NVML's counter: its samples are up to a second apart
LEAST_CORRECTION, MOST_CORRECTION = 0.5, 2.0


class Account(NamedTuple):
    """Of one process, cumulative, nanoseconds; ``own_now`` goes beyond what is settled, and may fall back a little.

    ``lost``: occupied time in which opportunistic neighbours had the device instead of it; ``lost_to_equals``: the
    same for neighbours of class production. ``pending``: for so long is work on the device that no interval shows yet.
    """

    own: float
    own_now: float
    occupied: float
    lost: float
    lost_to_equals: float
    pending: int = 0


class Swept(NamedTuple):
    """Of one sweep, by index of the work; ``pauses`` of production as a whole, those that ended."""

    own: list[float]
    lost: list[float]
    union: int
    production: int  # during which production had work on the device
    pauses: list[Interval]
    idle_since: int | None  # None: production has work at the end


@dataclass(frozen=True)
class Attributed:
    """``busy``: what was settled in this step, by process; ``start`` to ``until`` is the time it is about."""

    accounts: dict[int, Account]
    busy: dict[int, list[Interval]]
    start: int
    until: int
    union: int = 0
    production: int = 0
    pauses: list[Interval] = field(default_factory=list)


def merged(intervals: Sequence[Interval], start: int, until: int) -> list[Interval]:
    """What of ``intervals`` lies in start to until, in order; those that touch or overlap are one."""
    result: list[Interval] = []
    last = start - 1
    for piece in intervals if _is_ordered(intervals) else sorted(intervals):
        begin, end = piece
        if last < begin < end <= until:  # as nearly all are
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
    """Starts and ends in order, as numbers: time, index, whether it ends. And how many bits index and end take."""
    bits = max(1, (len(work) - 1).bit_length()) + 1
    events = []
    for index, intervals in enumerate(work):
        code = index << 1
        for begin, end in intervals:
            events.append(begin << bits | code)
            events.append(end << bits | code | 1)
    events.sort()  # runs of each process: cheap
    return events, bits


def sweep(work: Sequence[Sequence[Interval]], productions: Sequence[bool], idle_since: int | None) -> Swept:
    """Processor sharing: of each moment each of the k who have work on the device gets the k-th part.

    ``work`` by process, each in order and without overlaps (`merged`).
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
    """As `sweep`, by turns; ``wait``: of production for opportunistic work that was there. See slices.py."""
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
    """What is remembered of one process. ``tail``: told, not settled yet."""

    is_production: bool
    tail: list[Interval] = field(default_factory=list)
    known: int = 0
    own: float = 0.0
    occupied: float = 0.0
    lost: float = 0.0
    lost_to_equals: float = 0.0
    begun_at: int = 0  # of work that was announced, until its interval says when it ran
    begun_beside: bool = False
    open_since: int | None = None  # work that is on the device now, and in no interval yet
    correction: float = 1.0
    counter: tuple[int, float] | None = None  # NVML's own time and ours when they were last compared
    compared_at: int = 0

    def hear(self, look: ProcessSample, now: int, settled: int) -> float:
        """Takes in what is new; returns occupied time that no interval will show."""
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
    """The own time of all processes of one device. ``update`` at each look."""

    def __init__(self) -> None:
        self._processes: dict[int, _Process] = {}
        self._settled: int | None = None
        self._idle_since: int | None = None
        self._wait = SLICE / 4  # of production's starts that waited, on average
        self._waits = 1.0  # the part of work that began beside others and waited until its interval began

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
        """The first look, or a clock that jumped: nothing that was remembered has a place in time."""
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
        """Whether intervals begin with the launch or, later, when the work first has the device."""
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
            self._wait += 0.1 * (min(wait, SLICE) - self._wait)

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
        # What no interval shows can have been only where the union has room.
        unseen = sum(late.values())
        room = min(1.0, max(0, elapsed - swept.union) / unseen) if unseen else 0.0
        for i, process in enumerate(of):
            occupied = sum(end - begin for begin, end in busy[i])
            hidden = late.get(id(process), 0.0)
            ratio = process.own / process.occupied if process.occupied else 1.0
            process.own += scaled[i] * scale + hidden * room * ratio
            process.occupied += occupied + hidden
            if time_slices:  # side by side an overlap says nothing of what it costs; sampled launches do
                process.lost += swept.lost[i]
                process.lost_to_equals += max(0.0, occupied - swept.own[i] - swept.lost[i])
            process.tail = [i for i in process.tail if i.end > (self._settled or 0)]

    def _correct(self, look: DeviceSample) -> None:
        """NVML's counter is right in the long run and late in the short one: it bends ours slowly."""
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
        """Own time from ``until`` to now, as it will be if all that is on the device stays there."""
        work = []
        for process in of:
            still = [Interval(process.open_since, now)] if process.open_since is not None else []
            work.append(merged([*process.tail, *still], until, now))
        return sweep(work, [p.is_production for p in of], None).own

    def _forget(self, look: DeviceSample) -> None:
        here = {one.key for one in look.processes}
        for key in [key for key, p in self._processes.items() if key not in here and not p.tail]:
            del self._processes[key]
