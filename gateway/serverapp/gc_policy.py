"""Tune the garbage collector of the gateway's process: frequent young collections, rare full ones.

A thousand kernels are millions of objects, and a full collection blocks every request for half a
second.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

# Thresholds of the three generations. The objects of one request die in the first, and none reaches
# another. A collection stops all threads, and looks at a thousand new objects and all that they
# refer to, tables of a thousand kernels among them: 1 to 3 ms in the mean. Once more among four
# thousand, in the middle generation, took 7 ms, and found no garbage. Python's own: 700, 10, 10.
_THRESHOLDS = (1_000, 10, 10)
# The time between two checks whether a full collection is due: a check counts objects, which takes
# a quarter of the collection. It is due once ``_MORE`` times as many objects are frozen as after
# the last one, and after some hours in any case: until then garbage among the frozen objects stays.
# So many more objects call for a check sooner: of 150 bytes each, garbage of 75 MB. A hundred requests
# a second that leave 40 objects each in cycles make that a full collection in some two minutes.
GROWN_OBJECTS = 500_000
WHOLE_SECONDS = 600.0
LONGEST_SECONDS = 6 * 3600.0
_MORE = 1.03


# From this version on CPython has another collector. It collects its second generation in small
# steps, each of which would make us freeze everything, garbage too. It makes no long pauses, so it
# is left as it is.
_OTHER_COLLECTOR = (3, 14)


def is_known_collector(version: tuple[int, ...] = sys.version_info[:2], name: str = sys.implementation.name) -> bool:
    """Return whether an interpreter's collector has the three generations of this policy."""
    return name == "cpython" and version < _OTHER_COLLECTOR


class CalmCollector:
    """A collector that freezes what survives a collection.

    Later collections skip frozen objects, until a full collection.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, is_known: bool = is_known_collector()) -> None:
        self._monotonic = monotonic
        self._is_known = is_known
        self._whole_at = self._asked_at = monotonic()
        self._kept = 0
        # The objects that were frozen since the last check, those that died since among them; and those
        # that the collection which runs began with. A count of all frozen objects would walk over them.
        self._grown = self._fresh = 0

    def start(self) -> None:
        """Apply the policy from now on. Does nothing with another collector."""
        if not self._is_known:
            return
        gc.set_threshold(*_THRESHOLDS)
        self.collect_all()
        gc.callbacks.append(self.note_collection)

    def collect_all(self) -> None:
        """Run a full collection, and freeze what survives it."""
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._whole_at = self._asked_at = self._monotonic()
        self._kept = gc.get_freeze_count()
        self._grown = 0

    def collect_if_due(self) -> None:
        """Run a full collection if one is due. Called periodically."""
        now = self._monotonic()
        if not self._is_known or (now - self._asked_at < WHOLE_SECONDS and self._grown < GROWN_OBJECTS):
            return
        self._asked_at, self._grown, count = now, 0, gc.get_freeze_count()
        if count > _MORE * self._kept or now - self._whole_at >= LONGEST_SECONDS:
            self.collect_all()
        else:
            self._kept = min(self._kept, count)

    def note_collection(self, phase: str, info: Mapping[str, Any]) -> None:
        """Called by Python before ("start") and after ("stop") each collection."""
        if phase == "start":
            self._fresh = gc.get_count()[0]
        else:
            self._grown += max(0, self._fresh - info["collected"])
            gc.freeze()
