"""When Python looks for garbage in the gateway's process: at what is new in small steps, at all that lives rarely.

A thousand kernels are millions of objects, and a look at all of them holds everybody up for half a second.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

# Of its three generations; what one request makes dies in the first, and nothing comes into the last.
# Python's own: 700, 10, 10.
_THRESHOLDS = (5_000, 10, 10)
_MIDDLE = 1
# Between two questions whether all is looked at, for to count it takes a quarter of the look itself. It is where so
# much more was left out since, and after some hours in any case: until then garbage waits that had lived long.
WHOLE_SECONDS = 600.0
LONGEST_SECONDS = 6 * 3600.0
_MORE = 1.03


# From this version on CPython's collector is another: its second generation is collected in small steps, each of which
# would have us freeze everything, garbage too. It makes no long pauses, and is left as it is.
_OTHER_COLLECTOR = (3, 14)


def is_known_collector(version: tuple[int, ...] = sys.version_info[:2], name: str = sys.implementation.name) -> bool:
    """Tell whether an interpreter's collector has the three generations that this policy is made for."""
    return name == "cpython" and version < _OTHER_COLLECTOR


class CalmCollector:
    """What a look at more than the newest finds alive is left out of later ones, until all is looked at again."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, is_known: bool = is_known_collector()) -> None:
        self._monotonic = monotonic
        self._is_known = is_known
        self._whole_at = self._asked_at = monotonic()
        self._kept = 0

    def start(self) -> None:
        """For the rest of this process's life. Changes nothing where the collector is another."""
        if not self._is_known:
            return
        gc.set_threshold(*_THRESHOLDS)
        self.look_at_all()
        gc.callbacks.append(self.told)

    def look_at_all(self) -> None:
        """Whatever is garbage goes."""
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._whole_at = self._asked_at = self._monotonic()
        self._kept = gc.get_freeze_count()

    def look_if_due(self) -> None:
        """Called once in a while."""
        now = self._monotonic()
        if not self._is_known or now - self._asked_at < WHOLE_SECONDS:
            return
        self._asked_at, count = now, gc.get_freeze_count()
        if count > _MORE * self._kept or now - self._whole_at >= LONGEST_SECONDS:
            self.look_at_all()
        else:
            self._kept = min(self._kept, count)

    def told(self, phase: str, info: Mapping[str, Any]) -> None:
        """Called by Python before ("start") and after ("stop") each look."""
        if phase == "stop" and info["generation"] >= _MIDDLE:
            gc.freeze()
