"""The ended moves of one kernel.

These are the last move of each direction, how often each was made, and the refusal that still
holds.
"""

from __future__ import annotations

import logging

from .facts import Move, MoveRefusal
from .table import Event

log = logging.getLogger(__name__)


class MoveHistory:
    """The history of one kernel, since this agent has it."""

    def __init__(self, kernel_id: str) -> None:
        self.refusal: MoveRefusal | None = None
        self._kernel_id = kernel_id
        self._last: dict[Event, Move] = {}
        self._counts: dict[Event, int] = {}

    def last(self, way: Event) -> Move | None:
        return self._last.get(way)

    def count(self, way: Event) -> int:
        return self._counts.get(way, 0)

    def note(self, event: Event, move: Move, now: float, counts: bool) -> None:
        """Log an ended move.

        ``counts``: it is the last of its direction, or the refusal that holds from now on.
        """
        log.info(
            "event=moved kernel=%s to=%s result=%s bytes=%d seconds=%.3f text=%r",
            self._kernel_id,
            event.value,
            move.result.value,
            move.moved_bytes,
            move.seconds,
            move.text,
        )
        if not counts:
            return
        if move.is_done:
            self._last[event] = move
            self._counts[event] = self.count(event) + 1
            self.refusal = None
            return
        self.refusal = MoveRefusal.after(self.refusal, move, now)
