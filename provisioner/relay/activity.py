"""The truth about busy and idle: which requests the kernel has taken and not finished. Pure; time is an argument."""

from __future__ import annotations

from typing import Any

from .messages import Request


class _Open:
    """``has_begun``: the kernel said busy for it."""

    __slots__ = ("has_begun", "is_work", "lane", "order")

    def __init__(self, order: int, is_work: bool, lane: str) -> None:
        self.order = order
        self.is_work = is_work
        self.lane = lane
        self.has_begun = False


class ActivityTracker:
    """Open requests by msg_id, in the order of opening. ``snapshot`` is what links and the agent are told."""

    def __init__(self, now: float) -> None:
        self._open: dict[str, _Open] = {}
        self._opened = 0
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
        self._open[request.msg_id] = _Open(self._opened, request.is_work, request.lane)
        self._opened += 1
        if request.is_work:
            self._last = now
            self._work += 1
            if self._work == 1:
                self._since = now
        return True

    def began(self, msg_id: str) -> None:
        """The kernel is busy with it."""
        found = self._open.get(msg_id)
        if found is not None:
            found.has_begun = True

    def closed(self, msg_id: str, now: float) -> bool:
        """The kernel is idle again as far as this request goes. Tells whether it was open.

        Some kernels say nothing of requests that they ignore: those before it on its lane that never began are over.
        """
        found = self._open.pop(msg_id, None)
        if found is None:
            return False
        self._count(found, now)
        if self._open:
            self._close_ignored(found, now)
        return True

    def _close_ignored(self, closed: _Open, now: float) -> None:
        for earlier, request in tuple(self._open.items()):
            if request.order > closed.order:
                return
            if request.lane == closed.lane and not request.has_begun:
                del self._open[earlier]
                self._count(request, now)

    def _count(self, closed: _Open, now: float) -> None:
        if closed.is_work:
            self._last = now
            self._work -= 1
            if not self._work:
                self._since = None

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
