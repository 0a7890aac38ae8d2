"""Turn the untrusted words of one process on one device into a ProcessSample.

The reader bounds them and never raises. Counters only grow, and no faster than time does. Intervals
are in order and in the past; a time in the future counts as now. A hook's counter may start
anywhere: its value at the first sample counts as 0, and ``raw`` converts back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import SECOND, Interval, ProcessSample
from jupyter_aliquot.gpu_hook.agent.pages.activity_page import ActivityWords
from jupyter_aliquot.gpu_hook.agent.pages.hook_page import ComputeWords
from jupyter_aliquot.gpu_hook.protocol.codec import ACTIVITY_INTERVALS, NO_LIMIT

MOST_BATCHES = 4096  # in flight, or waiting threads: a device could not do more
MOST_STREAMS = 128  # of one process at once, for sums over streams and threads
MOST_LAUNCHES_PER_SECOND = 50_000_000
LONGEST = 24 * 3600 * SECOND

NO_ACTIVITY = ActivityWords(0, 0, 0, 0)
NO_WORK = ComputeWords(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


class Who(NamedTuple):
    """The agent's own facts about the process; see ProcessSample."""

    key: int
    kernel_id: str
    is_production: bool
    hundredths: int
    is_capped: bool = False


class Counter:
    """One counter of a hook.

    ``value`` starts at 0, and is bounded by the work that fits into the elapsed time.
    """

    __slots__ = ("_last", "_most_per_second", "value")

    def __init__(self, first: int, most_per_second: int = SECOND) -> None:
        self.value = 0
        self._last = first
        self._most_per_second = most_per_second

    def read(self, raw: int, elapsed: int) -> int:
        """Return the growth since the last read. A counter that shrinks starts anew."""
        if raw == self._last:
            return 0
        growth, self._last = raw - self._last, raw
        if growth < 0:
            return 0
        growth = max(0, min(growth, elapsed * self._most_per_second // SECOND - self.value))
        self.value += growth
        return growth

    def raw(self, value: int) -> int:
        """Return the hook's own number for a future ``value``."""
        return NO_LIMIT if value >= NO_LIMIT else max(0, min(NO_LIMIT, self._last + value - self.value))


class Reader:
    """Reader of one process on one device, since ``started``.

    ``ring`` reads the activity page's intervals, and its count after that.
    """

    def __init__(self, started: int, words: ComputeWords = NO_WORK, activity_page: ActivityWords = NO_ACTIVITY) -> None:
        self._started = started
        self._occupied = Counter(words.occupied)
        self._launches = Counter(words.launches, MOST_LAUNCHES_PER_SECOND)
        self._throttled = Counter(words.throttled, SECOND * MOST_STREAMS)
        self._sampled = Counter(words.sampled, SECOND * MOST_STREAMS)
        self._solo = Counter(words.sampled_solo, SECOND * MOST_STREAMS)
        self._samples = Counter(words.samples, MOST_LAUNCHES_PER_SECOND)
        self._lost = Counter(activity_page.lost)
        # intervals below it were read, the last of them perhaps not to its end
        self._count = activity_page.interval_count
        self._shown_until = started
        self._shown = 0  # occupied time that intervals or losses have shown
        self._before: tuple[object, ...] = ()
        self._look: ProcessSample | None = None

    def raw_allowed(self, value: int) -> int:
        """Convert an amount of occupied time to the hook's own count."""
        return self._occupied.raw(value)

    def read(
        self,
        who: Who,
        words: ComputeWords,
        activity_page: ActivityWords,
        ring: Callable[[], tuple[Sequence[int], int]],
        now: int,
        own: int | None = None,
    ) -> ProcessSample:
        said = (who, words, activity_page, own)
        is_quiet = self._look is not None and not (activity_page.is_active or self._look.intervals or self._look.lost)
        if self._look is not None and is_quiet and said == self._before:
            return self._look
        self._before = said
        elapsed = max(0, now - self._started)
        occupied_growth = self._read_counters(words, elapsed)
        intervals, lost = self._read_activity_page(activity_page, ring, occupied_growth, now, elapsed)
        self._look = self._make_look(who, words, activity_page, intervals, lost, now, own)
        return self._look

    def _make_look(
        self,
        who: Who,
        words: ComputeWords,
        activity_page: ActivityWords,
        intervals: tuple[Interval, ...],
        lost: int,
        now: int,
        own: int | None,
    ) -> ProcessSample:
        return ProcessSample(
            key=who.key,
            kernel_id=who.kernel_id,
            is_production=who.is_production,
            hundredths=who.hundredths,
            is_capped=who.is_capped,
            intervals=intervals,
            lost=lost,
            occupied=self._occupied.value,
            is_active=activity_page.is_active != 0,
            active_since=min(activity_page.since or self._started, now),
            in_flight=min(words.in_flight, MOST_BATCHES),
            waiting_launches=min(words.waiting_launches, MOST_BATCHES),
            launches=self._launches.value,
            longest=min(words.longest, LONGEST, max(0, now)),
            throttled=self._throttled.value,
            sampled=self._sampled.value,
            sampled_solo=self._solo.value,
            samples=self._samples.value,
            without_baseline=min(words.without_baseline, 1 << 20),
            own=own,
            waiting_calls=min(words.waiting_calls, MOST_BATCHES),
        )

    def _read_counters(self, words: ComputeWords, elapsed: int) -> int:
        """Return the growth of its occupied time."""
        self._launches.read(words.launches, elapsed)
        self._throttled.read(words.throttled, elapsed)
        self._sampled.read(words.sampled, elapsed)
        self._solo.read(words.sampled_solo, elapsed)
        self._samples.read(words.samples, elapsed)
        return self._occupied.read(words.occupied, elapsed)

    def _read_activity_page(
        self,
        activity_page: ActivityWords,
        ring: Callable[[], tuple[Sequence[int], int]],
        occupied_growth: int,
        now: int,
        elapsed: int,
    ) -> tuple[tuple[Interval, ...], int]:
        lost, is_cut = self._lost.read(activity_page.lost, elapsed), False
        intervals: tuple[Interval, ...] = ()
        if activity_page.interval_count < self._count:
            self._count = activity_page.interval_count  # hooks never do this: do not count the older intervals twice
        elif activity_page.interval_count > 0 and (
            activity_page.interval_count > self._count or occupied_growth or activity_page.is_active
        ):
            words, count_after = ring()
            intervals, is_cut = self._read_ring(activity_page.interval_count, words, count_after, now)
        covered = sum(interval.end - interval.start for interval in intervals)
        if is_cut:
            lost = max(lost, occupied_growth - covered)
        lost = max(0, min(lost, elapsed - self._shown - covered))
        self._shown += covered + lost
        return intervals, lost

    def _read_ring(
        self, count: int, words: Sequence[int], count_after: int, now: int
    ) -> tuple[tuple[Interval, ...], bool]:
        """Return the ring's new intervals, and whether some were overwritten before the read."""
        first = max(self._count - 1, 0)  # the newest interval of the last sample may have grown
        # the hook may be overwriting the place of the one before just now
        oldest = max(count, count_after) - ACTIVITY_INTERVALS + 1
        is_cut = oldest > self._count
        found, until = [], self._shown_until
        for number in range(max(first, oldest), count):
            slot = 2 * (number % ACTIVITY_INTERVALS)
            start, end = max(words[slot], until), min(words[slot + 1], now)
            if end > start:
                found.append(Interval(start, end))
                until = end
        self._count, self._shown_until = count, until
        return tuple(found), is_cut
