"""The moves of the agents, which have the queue looked at again: one came, went, or may have room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

# While no request waits, moves are gathered for so long.
_IDLE_SECONDS = 0.05


class Moves:
    """Sets *work* for the agents' moves. *is_idle* returns whether no request waits for one."""

    def __init__(self, work: asyncio.Event, is_idle: Callable[[], bool]) -> None:
        self._work = work
        self._is_idle = is_idle
        self._timer: asyncio.TimerHandle | None = None
        # Whether an agent moved after the last answer of the own one.
        self._has_moved = False
        self._is_in_cycle = False

    def note(self) -> None:
        """Have a move looked at; one during a cycle after it, unless an answer tells of it."""
        self._has_moved = True
        if not self._is_in_cycle:
            self._look_again()

    def begin(self) -> None:
        """Note that a cycle begins."""
        self._is_in_cycle = True

    def end(self) -> None:
        """Note that the cycle is over."""
        self._is_in_cycle = False
        self._look_again()

    def forget(self) -> None:
        """Forget the moves before now: the answer that comes next tells of them."""
        self._has_moved = False

    def stop_looking(self) -> None:
        """End the time for which moves are gathered: a cycle comes now, or none any more."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _look_again(self) -> None:
        if not self._has_moved:
            return
        self._has_moved = False
        if not self._is_idle():
            self._work.set()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._work.set)
