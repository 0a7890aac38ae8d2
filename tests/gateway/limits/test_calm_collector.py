"""Looks for garbage spare what has survived one, and none is kept for ever."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from aliquot.gateway.calm_collector import WHOLE_SECONDS, CalmCollector


class Knot:
    """Garbage as soon as nobody has it, and found by a look alone."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def now() -> Iterator[list[float]]:
    """The collector's clock; Python's own ways are back at the end."""
    clock, thresholds, callbacks = [0.0], gc.get_threshold(), list(gc.callbacks)
    CalmCollector(lambda: clock[0]).start()
    yield clock
    gc.callbacks[:] = callbacks
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_what_survived_a_look_is_left_out_until_all_is_looked_at_again(now: list[float]) -> None:
    knot = Knot()
    is_there = weakref.ref(knot)
    gc.collect()
    del knot
    gc.collect()
    assert is_there() is not None
    now[0] = WHOLE_SECONDS
    gc.collect()
    assert is_there() is None


def test_what_is_new_garbage_is_found_at_once(now: list[float]) -> None:
    gc.collect()
    is_there = weakref.ref(Knot())
    gc.collect()
    assert is_there() is None
