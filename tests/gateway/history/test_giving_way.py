"""A thread that reads and writes rows: it lets others have the interpreter between them."""

from __future__ import annotations

import sqlite3
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from jupyter_aliquot.gateway.base import gil
from jupyter_aliquot.gateway.base.gil import giving_way, take_short_turns, unhurried, while_a_user_waits


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


def test_only_background_threads_rest_between_items() -> None:
    """The main thread runs the loop, which must not rest."""
    items = range(3)
    assert unhurried(items) is items
    with ThreadPoolExecutor(1) as thread:
        rests = thread.submit(unhurried, items).result()
        assert rests is not items
        assert list(rests) == [0, 1, 2]


def test_a_thread_rests_less_while_a_user_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[tuple[float, float]] = []

    def note(items: range, work_seconds: float = 0.003, pause_seconds: float = 0.0003) -> range:
        rests.append((work_seconds, pause_seconds))
        return items

    monkeypatch.setattr(gil, "giving_way", note)

    def work() -> None:
        unhurried(range(3))
        with while_a_user_waits():
            unhurried(range(3))
        unhurried(range(3))

    with ThreadPoolExecutor(1) as thread:
        thread.submit(work).result()
    alone, asked, again = (pause / work for work, pause in rests)
    assert alone == again > 1 > asked
