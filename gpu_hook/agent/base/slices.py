"""Long work on the event loop in slices.

Between two slices, due work runs, compute control first of all.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

SLICE_SECONDS = 0.002  # a tenth of a control period


class Slices:
    """The slices of one piece of long work. ``clock`` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._until = clock() + SLICE_SECONDS

    async def pause_if_due(self) -> None:
        """Let the loop run due work, if this slice is over."""
        if self._clock() >= self._until:
            await asyncio.sleep(0)
            self._until = self._clock() + SLICE_SECONDS


async def encode_line(message: Mapping[str, Any], slices: Slices) -> bytes:
    """Return a message as a line of JSON.

    Pauses between its fields, and between the entries of a list.
    """
    fields = []
    for name, value in message.items():
        if isinstance(value, list):
            entries = []
            for entry in value:
                entries.append(_encode(entry))
                await slices.pause_if_due()
            text = f"[{','.join(entries)}]"
        else:
            text = _encode(value)
            await slices.pause_if_due()
        fields.append(f"{_encode(name)}:{text}")
    return f"{{{','.join(fields)}}}\n".encode()


_encode = json.JSONEncoder(separators=(",", ":")).encode  # one encoder: json.dumps makes one for each value
