"""The truth about busy and idle: which requests the kernel has taken and not finished. Pure; time is an argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .messages import Request


class ActivityTracker:
    """Open requests by msg_id. ``snapshot`` is what links and the agent are told."""

    # A dict keeps the order of opening: the first that is work began the present work, unless work never ceased.

    def __init__(self, now: float) -> None:
        self._open: dict[str, bool] = {}
        self._work = 0
        self._since: float | None = None
        self._last = now

    @property
    def open(self) -> int:
        return len(self._open)

    @property
    def work(self) -> int:
        return self._work

    @property
    def last(self) -> float:
        return self._last

    def opened(self, request: Request, now: float) -> bool:
        """A request goes to the kernel. Tells whether this changed anything: a second one of the same id does not."""
        if request.msg_id in self._open:
            return False
        self._open[request.msg_id] = request.is_work
        if request.is_work:
            self._last = now
            self._work += 1
            if self._work == 1:
                self._since = now
        return True

    def closed(self, msg_id: str, now: float) -> bool:
        """The kernel is idle again as far as this request goes. Tells whether it was open."""
        is_work = self._open.pop(msg_id, None)
        if is_work is None:
            return False
        if is_work:
            self._last = now
            self._work -= 1
            if not self._work:
                self._since = None
        return True

    def saw_output(self, now: float) -> None:
        """The kernel sent something that is no status."""
        self._last = now

    def clear(self, now: float) -> bool:
        """The kernel ended: it will finish none of them. Tells whether any was open."""
        had_any = bool(self._open)
        if self._work:
            self._last = now
        self._open.clear()
        self._work, self._since = 0, None
        return had_any

    def snapshot(self) -> dict[str, Any]:
        """For the wire."""
        return {"open": len(self._open), "work": self._work, "since": self._since, "last": self._last}


Clock = Callable[[], float]
