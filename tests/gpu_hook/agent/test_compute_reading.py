"""The agent's reading of a process's words: always bounded, and exact for honest content."""

from __future__ import annotations

from hypothesis import given, settings, strategies as some

from jupyter_aliquot.gpu_hook.agent.compute.measurement.reading import LONGEST, MOST_BATCHES, NO_WORK, Reader, Who
from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND, SECOND, Interval, ProcessSample
from jupyter_aliquot.gpu_hook.agent.pages.activity_page import ActivityWords
from jupyter_aliquot.gpu_hook.agent.pages.hook_page import ComputeWords
from jupyter_aliquot.gpu_hook.protocol.codec import ACTIVITY_INTERVALS, NO_LIMIT

WHO = Who(1, "k", True, 50)
START = 10 * SECOND
ANY = some.integers(0, NO_LIMIT) | some.integers(0, 5 * SECOND).map(lambda near: START + near) | some.just(7)
ANY_HALF = some.integers(0, 2**32 - 1)
WORDS = some.builds(
    ComputeWords, ANY, ANY, ANY, ANY_HALF, ANY_HALF, ANY, ANY, ANY, ANY_HALF, ANY_HALF, waiting_calls=ANY_HALF
)
ACTIVITY_PAGES = some.builds(ActivityWords, ANY_HALF, ANY, ANY, ANY)
RINGS = some.lists(ANY, min_size=2 * ACTIVITY_INTERVALS, max_size=2 * ACTIVITY_INTERVALS)


class AnActivityPage:
    """An honest activity page."""

    def __init__(self) -> None:
        self.ring = [0] * (2 * ACTIVITY_INTERVALS)
        self.count = self.occupied = 0

    def add(self, start: int, end: int) -> None:
        place = 2 * (self.count % ACTIVITY_INTERVALS)
        self.ring[place : place + 2] = start, end
        self.count += 1
        self.occupied += end - start

    def look(self, reader: Reader, now: int, is_active: int = 0, since: int = 0, lost: int = 0) -> ProcessSample:
        words = NO_WORK._replace(occupied=self.occupied)
        return reader.read(
            WHO, words, ActivityWords(is_active, since, self.count, lost), lambda: (self.ring, self.count), now
        )


@settings(max_examples=150, deadline=None)
@given(some.lists(some.tuples(WORDS, ACTIVITY_PAGES, RINGS, ANY, some.integers(0, SECOND)), min_size=1, max_size=6))
def test_garbage_is_bounded_and_never_raises(
    looks: list[tuple[ComputeWords, ActivityWords, list[int], int, int]],
) -> None:
    reader, now, until, before = Reader(START), START, START, ProcessSample(1, "k", True, 50)
    for words, activity, ring, count_after, pause in looks:
        now += pause
        look = reader.read(WHO, words, activity, lambda ring=ring, after=count_after: (ring, after), now)
        elapsed = now - START
        for interval in look.intervals:
            assert until <= interval.start < interval.end <= now
            until = interval.end
        assert 0 <= look.lost <= elapsed
        assert before.occupied <= look.occupied <= elapsed
        assert before.launches <= look.launches < 1 << 40
        assert look.active_since <= now
        assert isinstance(look.is_active, bool)
        assert look.in_flight <= MOST_BATCHES >= max(look.waiting_launches, look.waiting_calls)
        assert look.longest <= LONGEST
        assert 0 <= reader.raw_allowed(look.occupied) <= NO_LIMIT
        before = look


def test_intervals_are_told_once_and_their_growth_after_them() -> None:
    reader, activity, ms = Reader(START), AnActivityPage(), MILLISECOND
    activity.add(START + ms, START + 2 * ms)
    assert activity.look(reader, START + 5 * ms).intervals == (Interval(START + ms, START + 2 * ms),)
    assert activity.look(reader, START + 6 * ms).intervals == ()
    activity.ring[1] = START + 7 * ms  # the newest interval grew
    activity.occupied += 5 * ms
    assert activity.look(reader, START + 8 * ms).intervals == (Interval(START + 2 * ms, START + 7 * ms),)
    activity.add(START + 8 * ms, START + 9 * ms)
    assert activity.look(reader, START + 9 * ms).intervals == (Interval(START + 8 * ms, START + 9 * ms),)


def test_what_was_overwritten_before_it_was_read_is_lost_and_not_forgotten() -> None:
    reader, activity, ms = Reader(START), AnActivityPage(), MILLISECOND
    for number in range(100):
        activity.add(START + 10 * number * ms, START + (10 * number + 2) * ms)
    look = activity.look(reader, START + SECOND)
    assert len(look.intervals) == ACTIVITY_INTERVALS - 1
    assert sum(i.end - i.start for i in look.intervals) + look.lost == look.occupied == 200 * ms


def test_a_counter_that_starts_high_counts_from_there_and_is_ordered_in_its_own_measure() -> None:
    """The hook of a process from before this agent, or one that lies."""
    reader = Reader(START, NO_WORK._replace(occupied=1 << 60))
    words = NO_WORK._replace(occupied=(1 << 60) + 3 * MILLISECOND)
    look = reader.read(WHO, words, ActivityWords(0, 0, 0, 0), lambda: ([], 0), START + SECOND)
    assert look.occupied == 3 * MILLISECOND
    assert reader.raw_allowed(look.occupied + 5) == (1 << 60) + 3 * MILLISECOND + 5
    assert reader.raw_allowed(NO_LIMIT) == NO_LIMIT


def test_work_from_before_the_process_was_known_is_not_shown() -> None:
    reader, activity = Reader(START), AnActivityPage()
    activity.add(START - SECOND, START + MILLISECOND)
    assert activity.look(reader, START + SECOND).intervals == (Interval(START, START + MILLISECOND),)
