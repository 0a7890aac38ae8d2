"""A thread that reads and writes rows: it lets others have the interpreter between them."""

from __future__ import annotations

import logging
import sqlite3
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jupyter_aliquot.gateway.base.gil import giving_way, take_short_turns, unhurried, while_a_user_waits
from jupyter_aliquot.gateway.history.database import Limits
from jupyter_aliquot.gateway.history.recorder import HistoryKeeper, HistorySettings
from jupyter_aliquot.gateway.history.samples import Reading

from .node import node

LOG = logging.getLogger("test")
KERNELS = 30


def test_the_items_are_the_same() -> None:
    assert list(giving_way(range(1000))) == list(range(1000))
    assert list(giving_way(())) == []


def test_it_pauses_each_time_it_has_worked_for_a_while() -> None:
    clock, pauses = [0.0], list[float]()

    def pause(seconds: float) -> None:
        pauses.append(clock[0])

    for _ in giving_way(range(10), lambda: clock[0], pause):
        clock[0] += 0.001
    assert [round(1e3 * at) for at in pauses] == [3, 6, 9]


def test_others_have_their_turn_while_rows_are_written() -> None:
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.execute("CREATE TABLE point (number INTEGER)")
    may_go_on, has_its_turn = threading.Event(), threading.Event()

    def pause(seconds: float) -> None:
        has_its_turn.set()
        assert may_go_on.wait(60)

    rows = giving_way(((number,) for number in range(100_000)), pause=pause)
    writer = threading.Thread(target=database.executemany, args=("INSERT INTO point VALUES (?)", rows))
    writer.start()
    assert has_its_turn.wait(60), "a hundred thousand rows take longer than one turn"
    may_go_on.set()
    writer.join()
    assert database.execute("SELECT COUNT(*) FROM point").fetchone() == (100_000,)
    database.close()


@pytest.mark.parametrize(("before", "want"), [(0.005, 0.0005), (0.0001, 0.0001)])
def test_a_thread_that_computes_keeps_the_lock_for_a_short_turn(before: float, want: float) -> None:
    usual = sys.getswitchinterval()
    try:
        sys.setswitchinterval(before)
        take_short_turns()
        assert sys.getswitchinterval() == pytest.approx(want, rel=0.02)  # in whole microseconds
    finally:
        sys.setswitchinterval(usual)


class Day:
    """A thread's day: an item takes a tenth of a millisecond, and a rest as long as it is asked to."""

    def __init__(self) -> None:
        self.now = self.rested = 0.0

    def pause(self, seconds: float) -> None:
        self.now += seconds
        self.rested += seconds

    def work(self) -> float:
        """Go through a thousand items; return the part of the time for which others had the lock."""
        began, self.rested = self.now, 0.0
        for _ in unhurried(range(1000), lambda: self.now, self.pause):
            self.now += 0.0001
        return self.rested / (self.now - began)


def test_only_background_threads_rest_between_items() -> None:
    """The main thread runs the loop, which must not rest."""
    assert Day().work() == 0
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(Day().work).result() >= 0.6, "users wait for the lock most of the time"


def test_a_thread_rests_less_while_a_user_waits_for_it() -> None:
    day = Day()

    def work() -> tuple[float, float, float]:
        alone = day.work()
        with while_a_user_waits():
            asked = day.work()
        return alone, asked, day.work()

    with ThreadPoolExecutor(1) as thread:
        alone, asked, again = thread.submit(work).result()
    assert alone == pytest.approx(again, rel=0.1)
    assert 0 < asked < 0.15


def test_a_waiting_user_is_served_before_a_thread_goes_on() -> None:
    """The thread's first rest lasts until the user has the answer, as a rest without the lock may."""
    order: list[str] = []
    rests, is_answered = threading.Event(), threading.Event()
    clock = iter(range(10**9))

    def pause(seconds: float) -> None:
        rests.set()
        assert is_answered.wait(60)

    def count() -> None:
        for number in unhurried(range(3), lambda: float(next(clock)), pause):
            order.append(f"kernel {number}")

    with ThreadPoolExecutor(1) as thread:
        counting = thread.submit(count)
        assert rests.wait(60), "it never rests"
        order.append("answer")
        is_answered.set()
        counting.result(60)
    assert order == ["answer", "kernel 0", "kernel 1", "kernel 2"]


def test_the_history_rests_at_each_kernel_in_each_part_of_its_work(tmp_path: Path, rests: Counter[str]) -> None:
    keeper = HistoryKeeper(HistorySettings(True, tmp_path / "h", Limits(64 << 20, 10**6), 2.0, 10.0), LOG)
    with ThreadPoolExecutor(1, "counts") as thread:
        for at in (1000.0, 1002.0):
            thread.submit(keeper.take, Reading(at, at, node(kernels=KERNELS))).result()
        thread.submit(keeper.close, 1002.0, 1002.0).result()
    subjects = KERNELS + 1  # with the device
    once = {"counters of the first reading": KERNELS, "samples": KERNELS, "rows of subjects": subjects}
    of_each_resolution = ("points", "subjects of points", "rows of points")
    assert rests == {"counts": sum(once.values()) + 2 * len(of_each_resolution) * subjects}
