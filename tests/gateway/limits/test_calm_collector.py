"""The calm collector: it spares survivors of one collection, and keeps no garbage for ever."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest
from jupyter_server.serverapp import ServerApp

from jupyter_aliquot.gateway.serverapp import app as server
from jupyter_aliquot.gateway.serverapp.gc_policy import (
    GROWN_OBJECTS,
    LONGEST_SECONDS,
    WHOLE_SECONDS,
    CalmCollector,
    is_known_collector,
)


class Knot:
    """An object that refers to itself: once dropped, only a collection frees it. It is one object for every Python."""

    __slots__ = ("__weakref__", "itself")

    def __init__(self) -> None:
        self.itself = self


def old_garbage(generation: int = 0) -> weakref.ref[Knot]:
    """Return a reference to garbage that was alive at an earlier collection."""
    knot = Knot()
    gc.collect(generation)
    return weakref.ref(knot)


@pytest.fixture
def now() -> Iterator[list[float]]:
    """Yield the collector's clock, and restore Python's own settings at the end."""
    clock, thresholds, callbacks = [0.0], gc.get_threshold(), list(gc.callbacks)
    yield clock
    gc.callbacks[:] = callbacks
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.fixture
def collector(now: list[float]) -> CalmCollector:
    found = CalmCollector(lambda: now[0])
    found.start()
    return found


@pytest.mark.parametrize(
    ("version", "name", "want"),
    [((3, 10), "cpython", True), ((3, 13), "cpython", True), ((3, 14), "cpython", False), ((3, 11), "pypy", False)],
)
def test_the_policy_is_for_collectors_of_three_generations(version: tuple[int, int], name: str, want: bool) -> None:
    assert is_known_collector(version, name) is want


def test_a_collector_that_is_called_known_tells_its_three_generations(now: list[float]) -> None:
    """Read the facts that the policy relies on from the interpreter that runs this test."""
    if not is_known_collector():
        pytest.skip("this interpreter's collector is another, and is left as it is")
    generations: list[int] = []
    gc.callbacks.append(lambda phase, info: generations.append(info["generation"]))
    for generation in range(3):
        gc.collect(generation)
    assert generations == [0, 0, 1, 1, 2, 2]
    assert len(gc.get_threshold()) == len(gc.get_stats()) == 3


def test_another_collector_is_left_as_it_is(now: list[float]) -> None:
    before = gc.get_threshold(), list(gc.callbacks), gc.get_freeze_count()
    other = CalmCollector(lambda: now[0], is_known=False)
    other.start()
    now[0] = 2 * LONGEST_SECONDS
    other.collect_if_due()
    assert (gc.get_threshold(), list(gc.callbacks), gc.get_freeze_count()) == before


@pytest.mark.parametrize("generation", [0, 1])
def test_what_survived_a_look_is_left_out_until_all_is_looked_at_again(
    now: list[float], collector: CalmCollector, generation: int
) -> None:
    is_there = old_garbage(generation)
    gc.collect()
    assert is_there() is not None
    more = [Knot() for _ in range(gc.get_freeze_count() // 5)]
    gc.collect(1)
    collector.collect_if_due()
    assert is_there() is not None, "it is not time yet"
    now[0] = WHOLE_SECONDS
    collector.collect_if_due()
    assert is_there() is None
    assert more


def test_nothing_is_looked_at_anew_while_little_came_until_hours_have_passed(
    now: list[float], collector: CalmCollector
) -> None:
    is_there = old_garbage()
    for now[0] in (WHOLE_SECONDS, 2 * WHOLE_SECONDS, LONGEST_SECONDS - 1):
        collector.collect_if_due()
        assert is_there() is not None
    now[0] = LONGEST_SECONDS + WHOLE_SECONDS
    collector.collect_if_due()
    assert is_there() is None


def test_more_is_more_than_the_least_that_there_was(now: list[float], collector: CalmCollector) -> None:
    many = [Knot() for _ in range(gc.get_freeze_count())]
    collector.collect_all()
    for knot in many:
        del knot.itself  # these are freed without a collection
    many.clear()
    now[0] += WHOLE_SECONDS
    collector.collect_if_due()
    garbage = [Knot() for _ in range(gc.get_freeze_count() // 5)]
    is_there = weakref.ref(garbage[0])
    gc.collect(1)
    garbage.clear()
    now[0] += WHOLE_SECONDS
    collector.collect_if_due()
    assert is_there() is None


def test_much_frozen_garbage_is_found_before_the_time_of_a_check(now: list[float], collector: CalmCollector) -> None:
    fewer = [Knot() for _ in range(GROWN_OBJECTS // 2)]
    is_there = weakref.ref(fewer[0])
    fewer.clear()
    collector.collect_if_due()
    assert is_there() is not None, "so little waits for the time"
    more = [Knot() for _ in range(GROWN_OBJECTS * 2 // 3)]
    more.clear()
    collector.collect_if_due()
    assert is_there() is None
    kept = [old_garbage() for _ in range(3)]
    collector.collect_if_due()
    assert all(one() is not None for one in kept), "the count begins anew"


def test_new_garbage_that_is_found_at_once_calls_for_no_check(now: list[float], collector: CalmCollector) -> None:
    is_there = old_garbage()
    for _ in range(2 * GROWN_OBJECTS):
        Knot()
    collector.collect_if_due()
    assert is_there() is not None


async def test_the_server_asks_whether_a_look_is_due_and_gives_freed_memory_back(
    monkeypatch: pytest.MonkeyPatch, collector: CalmCollector
) -> None:
    said, asked, given_back = list[str](), asyncio.Event(), asyncio.Event()
    monkeypatch.setattr(server, "_COLLECT_SECONDS", 0.01)
    monkeypatch.setattr(server, "keep_little", lambda environ: said.append("keep little"))
    monkeypatch.setattr(server, "take_short_turns", lambda: said.append("short turns"))
    monkeypatch.setattr(server, "give_back", given_back.set)
    monkeypatch.setattr(CalmCollector, "collect_if_due", lambda self: asked.set())
    monkeypatch.setattr(ServerApp, "initialize", lambda self, *args, **kwargs: said.append("initialize"))
    monkeypatch.setattr(ServerApp, "start", lambda self: said.append("start"))
    application = server.GatewayServerApp()
    application.initialize([])
    application.start()
    assert said == ["keep little", "short turns", "initialize", "start"], "before there are threads"
    await asyncio.wait_for(asked.wait(), 60)
    await asyncio.wait_for(given_back.wait(), 60)


def test_what_is_new_garbage_is_found_at_once(collector: CalmCollector) -> None:
    is_there = weakref.ref(Knot())
    gc.collect(1)
    assert is_there() is None


def test_no_look_by_itself_is_at_all_that_lives(collector: CalmCollector) -> None:
    looked_at = list[int]()
    gc.callbacks.append(lambda phase, info: looked_at.append(len(gc.get_objects())) if phase == "start" else None)
    kept = [Knot() for _ in range(300_000)]
    assert len(looked_at) >= 20
    assert max(looked_at) < 20_000 < len(kept)
