"""The meter: from one look at the node to the next, how much of what each part used. Pure.

It keeps a mark of each part: up to when, and up to which value of the agent's counters, its GPU
time is counted. All that lies beyond a mark is counted once, however long ago the mark was made: a
gateway that comes back goes on from the marks that it wrote. Durations are of the monotonic clock,
which the gateways of one start of the machine share; the wall clock only names the days.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from jupyter_aliquot.gateway.base.gil import unhurried

from .amounts import Amounts, Subject
from .days import Calendar
from .looks import NO_DEVICE, Look, Part, PartKey, Place, node_of
from .policy import ChargePolicy

# GPU time may be reported by so much later than it was used: the driver tells it about once a second.
_LATE_MILLISECONDS = 2000
# So long the mark of a part is kept that the agent does not list, in case that it lists it again. It
# begins with the agent's first answer without the part, not with its absence.
_GONE_MILLISECONDS = 600_000


@dataclass(frozen=True)
class Mark:
    """The point up to which a part's GPU time is counted. ``part`` is as it was then; times in milliseconds."""

    part: Part
    at: int
    agent: str
    own: int | None
    busy: int


@dataclass(frozen=True)
class Moment:
    """The last look whose kernels were seen. ``boot`` empty: none was."""

    boot: str = ""
    monotonic: int = 0


@dataclass(frozen=True)
class Entry:
    """Amounts of one subject on one day."""

    day: int
    subject: Subject
    amounts: Amounts


class Meter:
    """The marks of all parts that hold or want a GPU."""

    def __init__(self, calendar: Calendar, policy: ChargePolicy, last: Moment, marks: Iterable[Mark] = ()) -> None:
        self._calendar = calendar
        self._policy = policy
        self.last = last
        self.marks: dict[PartKey, Mark] = {mark.part.key: mark for mark in marks}
        # When the agent first answered without a part that has a mark.
        self._missing: dict[PartKey, int] = {}

    def take(self, look: Look) -> list[Entry]:
        """Count up to this look, and return what there is to count: one entry for each subject and day.

        While the agent does not answer, its kernels keep their marks: when it is back, the time
        between is counted. A part that is gone ended after the last look.
        """
        if look.boot != self.last.boot:
            # No kernel outlives its machine, and monotonic time began anew.
            self.marks, self.last, self._missing = {}, Moment(), {}
        # Summed at once: the garbage collector would look at an entry of each of a thousand parts.
        found: dict[tuple[int, Subject], Amounts] = {}
        marks = self.marks if look.has_only_new else self._kept(look)
        for part in unhurried((*(look.parts or ()), *look.waiting)):
            marks[part.key], entries = self._count(part, look)
            for entry in entries:
                _add(found, entry)
        self.marks = marks
        if look.parts is not None and not look.has_only_new:
            self.last = Moment(look.boot, look.monotonic)
        return [Entry(day, subject, amounts) for (day, subject), amounts in found.items()]

    def _kept(self, look: Look) -> dict[PartKey, Mark]:
        """Return the marks that stay while nothing is said of their parts."""
        found = {key: mark for key, mark in self.marks.items() if key.device != NO_DEVICE}
        if look.parts is None:
            return found
        listed = {part.key for part in look.parts}
        if look.away:  # as if they were listed: nothing is known of them
            listed |= {key for key, mark in found.items() if node_of(mark.agent) in look.away}
        missing = {key: self._missing.get(key, look.monotonic) for key in found if key not in listed}
        self._missing = missing
        return {
            key: mark
            for key, mark in found.items()
            if key in listed or look.monotonic - missing[key] < _GONE_MILLISECONDS
        }

    def _count(self, part: Part, look: Look) -> tuple[Mark, list[Entry]]:
        before = self.marks.get(part.key)
        if before is None or not _is_same(before, part):
            before = self._first(part, look)
        milliseconds = look.monotonic - before.at
        if milliseconds <= 0:
            return replace(before, part=part), []
        used, mark = _used(before, part, look, milliseconds)
        entries: list[Entry] = []
        begin, left = look.wall - milliseconds, used
        for place, hundredths, subject, length in _stretches(before.part, part, look.wall, milliseconds):
            # The GPU time goes to the time on the GPU in proportion; the last stretch has the rest.
            is_last = begin + length == look.wall
            share = left if is_last else used * length // milliseconds
            left -= share
            entries += self._entries(subject, place, hundredths, begin, length, share)
            begin += length
        return mark, entries

    def _entries(
        self, subject: Subject, place: Place, hundredths: int, begin: int, length: int, used: int
    ) -> Iterable[Entry]:
        """Divide one stretch among the days in it."""
        left, end = used, begin + length
        for day, inside in self._calendar.parts(begin, end):
            begin += inside
            share = left if begin == end else used * inside // length
            left -= share
            counted = {"used": 100 * share, place.value: hundredths * inside}
            charged = self._policy.charge(subject, Amounts(**counted))
            yield Entry(day, subject, Amounts(**counted, charged=charged))

    def _first(self, part: Part, look: Look) -> Mark:
        """Return the mark of a part that is seen for the first time.

        It is counted from its beginning, but not from before the last look, which did not see it. Its
        counters began with it. Without an earlier look, as with a new file, it is counted from now on.
        """
        if not self.last.boot:
            return Mark(part, look.monotonic, part.agent, part.own, part.busy)
        age = max(0, look.wall - part.began)
        return Mark(part, look.monotonic - min(age, look.monotonic - self.last.monotonic), part.agent, None, 0)


def _is_same(before: Mark, part: Part) -> bool:
    """Return whether the part is the marked one. A kernel that another node got has left the first."""
    return before.part.began == part.began and node_of(before.agent) == node_of(part.agent)


def _used(before: Mark, part: Part, look: Look, milliseconds: int) -> tuple[int, Mark]:
    """Return the GPU time used since the mark, and the next mark.

    A kernel writes its own counters, so that no device counts more time than there was: the rest of
    it waits for the next look.
    """
    most = milliseconds + _LATE_MILLISECONDS
    if part.own is None:
        used = min(most, max(0, part.busy - before.busy))
        return used, Mark(part, look.monotonic, part.agent, None, part.busy)
    counted = before.own or 0
    # The counter of another agent, or one that was begun anew, has counted from zero.
    if before.agent != part.agent or part.own < counted:
        counted = 0
    used = min(most, part.own - counted)
    return used, Mark(part, look.monotonic, part.agent, counted + used, part.busy)


def _stretches(before: Part, part: Part, wall: int, milliseconds: int) -> Iterable[tuple[Place, int, Subject, int]]:
    """Divide the time since the mark: as the part was until it moved, and as it is since then.

    A part that changed otherwise changed just now: the agent reports changes at once.
    """
    if part.place == before.place:
        return [(before.place, before.hundredths, before.subject, milliseconds)]
    now = 0 if part.since is None else min(milliseconds, max(0, wall - part.since))
    stretches = [
        (before.place, before.hundredths, before.subject, milliseconds - now),
        (part.place, part.hundredths, part.subject, now),
    ]
    return [one for one in stretches if one[3]]


def _add(sums: dict[tuple[int, Subject], Amounts], entry: Entry) -> None:
    key = (entry.day, entry.subject)
    known = sums.get(key)
    sums[key] = entry.amounts if known is None else known + entry.amounts
