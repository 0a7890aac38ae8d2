"""Own time from intervals that overlap: cases by hand, and any intervals."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from jupyter_aliquot.gpu_hook.agent.compute.measurement.attribution import (
    MEMORY,
    Attribution,
    merged,
    sweep,
    sweep_turns,
)
from jupyter_aliquot.gpu_hook.agent.compute.measurement.slices import SLICE
from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import (
    MILLISECOND,
    SECOND,
    DeviceSample,
    Interval,
    ProcessSample,
)

START = 1000 * SECOND


def at(*pairs: tuple[float, float]) -> list[Interval]:
    return [Interval(round(a * MILLISECOND), round(b * MILLISECOND)) for a, b in pairs]


def look(key: int, *pairs: tuple[float, float], is_production: bool = True, **more: object) -> ProcessSample:
    intervals = tuple(Interval(START + a, START + b) for a, b in at(*pairs))
    return ProcessSample(key, str(key), is_production, 50, intervals=intervals, **more)  # type: ignore[arg-type]


def test_who_is_alone_has_all_and_two_have_halves() -> None:
    swept = sweep([at((0, 10)), at((4, 8))], [True, True], None)
    assert swept.own == [8 * MILLISECOND, 2 * MILLISECOND]
    assert swept.union == 10 * MILLISECOND


def test_only_opportunistic_neighbours_make_production_lose_time() -> None:
    swept = sweep([at((0, 9)), at((0, 9)), at((0, 9))], [True, True, False], None)
    assert swept.lost == [3 * MILLISECOND, 3 * MILLISECOND, 0]


def test_pauses_are_those_of_all_production_together() -> None:
    swept = sweep([at((0, 4), (9, 10)), at((2, 6)), at((6, 9))], [True, True, False], None)
    assert swept.pauses == at((6, 9))
    assert swept.idle_since == 10 * MILLISECOND


def test_by_turns_who_begins_has_the_device() -> None:
    """An interval of 1 ms that begins when the work runs is all own time: the neighbour waited."""
    swept = sweep_turns([at((0, 10)), at((4, 5))], [True, False], None)
    assert swept.own == [9 * MILLISECOND, 1 * MILLISECOND]
    assert swept.lost[0] == 1 * MILLISECOND


def test_by_turns_long_neighbours_alternate() -> None:
    swept = sweep_turns([at((0, 40)), at((0.001, 40))], [True, True], None)
    assert swept.own[0] == pytest.approx(20 * MILLISECOND, abs=SLICE)
    assert sum(swept.own) == swept.union == 40 * MILLISECOND


def test_production_that_begins_where_others_left_off_had_waited() -> None:
    swept = sweep_turns([at((5.05, 8)), at((1, 5))], [True, False], None, wait=300_000)
    assert swept.lost[0] == 300_000


times = st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 2000)), max_size=30)
works = st.lists(times, min_size=1, max_size=6)


def intervals_of(pieces: list[tuple[int, int]]) -> list[Interval]:
    result, now = [], 0
    for gap, length in pieces:
        result.append(Interval(now + gap, now + gap + length))
        now += gap + length
    return result


@given(works, st.integers(0, 63))
def test_own_times_are_together_the_time_that_the_device_had_work(raw: list[list[tuple[int, int]]], mask: int) -> None:
    work = [merged(intervals_of(pieces), 0, 1 << 40) for pieces in raw]
    classes = [bool(mask >> index & 1) for index in range(len(work))]
    covered = merged([interval for pieces in work for interval in pieces], 0, 1 << 40)
    want = sum(end - start for start, end in covered)
    for way in (sweep, sweep_turns):
        swept = way(work, classes, None)
        assert sum(swept.own) == pytest.approx(want, abs=1)
        assert swept.union == want
        for own, pieces in zip(swept.own, work, strict=True):
            assert -1 <= own <= sum(end - start for start, end in pieces) + 1


def test_intervals_that_come_a_look_later_are_settled_together() -> None:
    """Nothing is settled beyond the known intervals of a process at work."""
    attribution = Attribution()
    attribution.update(DeviceSample(START))
    active = look(1, is_active=True, active_since=START)
    first = attribution.update(DeviceSample(START + 20 * MILLISECOND, (active, look(2, (0, 20)))))
    assert first.until == START
    second = attribution.update(DeviceSample(START + 40 * MILLISECOND, (look(1, (0, 40)), look(2))))
    assert second.accounts[1].own == 30 * MILLISECOND
    assert second.accounts[2].own == 10 * MILLISECOND


def test_a_process_that_tells_nothing_is_not_waited_for_beyond_memory() -> None:
    attribution = Attribution()
    attribution.update(DeviceSample(START))
    silent = look(1, is_active=True, active_since=START)
    for number in range(1, 40):
        result = attribution.update(DeviceSample(START + number * 20 * MILLISECOND, (silent,)))
        assert result.until >= START + number * 20 * MILLISECOND - MEMORY


def test_lost_time_counts_only_where_the_device_had_room() -> None:
    attribution = Attribution()
    attribution.update(DeviceSample(START))
    processes = (look(1, (0, 15)), look(2, lost=50 * MILLISECOND))
    result = attribution.update(DeviceSample(START + 20 * MILLISECOND, processes))
    assert result.accounts[2].own == 5 * MILLISECOND


def test_a_clock_that_goes_back_is_a_new_beginning() -> None:
    attribution = Attribution()
    attribution.update(DeviceSample(START + 10 * SECOND, (look(1),)))
    attribution.update(DeviceSample(START, (look(1),)))
    result = attribution.update(DeviceSample(START + 20 * MILLISECOND, (look(1, (5, 10)),)))
    assert result.accounts[1].own == 5 * MILLISECOND


def test_nvmls_counter_bends_ours_slowly_and_the_sum_stays() -> None:
    attribution = Attribution()
    attribution.update(DeviceSample(START))
    for number in range(600):
        begin = number * 20
        both = (begin, begin + 20)
        processes = (look(1, both, own=number * 15 * MILLISECOND), look(2, both, own=number * 5 * MILLISECOND))
        before = attribution.update(DeviceSample(START + (begin + 20) * MILLISECOND, processes))
    last = (12000, 12020)
    after = attribution.update(DeviceSample(START + 12020 * MILLISECOND, (look(1, last), look(2, last))))
    gained = [after.accounts[key].own - before.accounts[key].own for key in (1, 2)]
    assert gained[0] == pytest.approx(15 * MILLISECOND, rel=0.1)
    assert sum(gained) == pytest.approx(20 * MILLISECOND)
