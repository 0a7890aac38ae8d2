"""When Python looks for garbage in the gateway's process: at all that lives only once in a while.

A thousand kernels are millions of objects, and a look at all of them holds everybody up for half a second.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

# Of its three generations; what one request makes dies in the first. Python's own: 700, 10, 10.
_THRESHOLDS = (20_000, 20, 10)
_OLDEST = 2
# Between two looks at everything: until then garbage waits that had lived long. Ended kernels leave none.
WHOLE_SECONDS = 600.0


class CalmCollector:
    """What survives a look at the oldest generation is left out of later ones, until all is looked at again."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._whole_at = monotonic()

    def start(self) -> None:
        """For the rest of this process's life."""
        gc.set_threshold(*_THRESHOLDS)
        gc.callbacks.append(self.told)

    def told(self, phase: str, info: Mapping[str, Any]) -> None:
        """Called by Python before ("start") and after ("stop") each look."""
        if info["generation"] != _OLDEST:
            return
        if phase == "stop":
            gc.freeze()
        elif self._monotonic() - self._whole_at >= WHOLE_SECONDS:
            self._whole_at = self._monotonic()
            gc.unfreeze()
