"""Track which requests the kernel has taken and not finished. Pure; time is an argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_aliquot.provisioner.relay.wire.messages import Request, read_object

# A gateway that comes learns of so many cells that ended: it asks for a notebook's cells one by
# one.
_ENDED_CELLS = 64
# A gateway learns of the first so many open cells; the others wait for them, and a record has its
# bounds.
_OPEN_CELLS = 1000
_LONGEST_ID = 256
# Facts about open requests may take so much (about 30,000 requests), because a kernel may read
# requests and finish none. The tracker forgets the oldest: the kernel is as busy with the others.
_MOST_BYTES, _OPEN_BYTES = 32 << 20, 1024
# ipykernel sends what a request printed up to a fifth of a second after its end. A page that comes
# back reads widgets' state, and in a kernel without widgets that prints a warning. For so long, and
# for so many requests, such output is no activity.
_LATE_SECONDS, _LATE_REQUESTS = 5.0, 64


class _Open:
    """An open request.

    ``began``: when the kernel said busy for it; ``asked``: since when it waits for input;
    ``question``: what it asked. ``cell``: what gateways learn of a cell that shows its output, None
    for all other requests.
    """

    __slots__ = ("asked", "began", "cell", "has_shown", "header", "is_work", "lane", "order", "question", "size")

    def __init__(
        self, order: int, is_work: bool, lane: str, header: bytes, cell: Mapping[str, Any] | None = None
    ) -> None:
        self.order = order
        self.is_work = is_work
        self.lane = lane
        self.header = header
        self.cell = cell
        self.has_shown = False
        self.began: float | None = None
        self.asked: float | None = None
        self.question: Mapping[str, Any] | None = None
        self.size = 0  # its approximate cost in bytes


@dataclass(frozen=True)
class RunningCell:
    """A running cell that shows output. ``header`` is as its client wrote it."""

    msg_id: str
    began: float
    header: bytes
    has_shown: bool = False


class ActivityTracker:
    """Open requests by msg_id, in the order of opening.

    ``snapshot`` is the report for links and the agent.
    """

    def __init__(self, now: float) -> None:
        self._open: dict[str, _Open] = {}
        self._opened = 0
        self._bytes = 0
        self._work = 0
        self._asking = 0
        self._since: float | None = None
        self._last = now
        self._ended_cells: deque[Mapping[str, Any]] = deque(maxlen=_ENDED_CELLS)
        self._quiet: deque[str] = deque(maxlen=_LATE_REQUESTS)  # ended, and were no work
        self._quiet_until = 0.0

    @property
    def open(self) -> int:
        return len(self._open)

    @property
    def work(self) -> int:
        return self._work

    @property
    def last(self) -> float:
        return self._last

    def is_open(self, msg_id: str) -> bool:
        """Tell whether the kernel has this request, and has not finished it."""
        return msg_id in self._open

    @property
    def is_asking(self) -> bool:
        """Tell whether a request waits for its user's input."""
        return self._asking > 0

    @property
    def cells(self) -> list[RunningCell]:
        """The cells that run now and show output, without those that wait for input."""
        return [
            RunningCell(msg_id, each.began, each.header, each.has_shown)
            for msg_id, each in self._open.items()
            if each.header and each.began is not None and each.asked is None
        ]

    @property
    def known_cells(self) -> list[Mapping[str, Any]]:
        """The cells that ended last, then those that are open, in their order.

        A new gateway gets them.
        """
        open_ones = [each for each in self._open.values() if each.cell is not None][:_OPEN_CELLS]
        running = [{**(each.cell or {}), "is_open": True, "input": each.question} for each in open_ones]
        return [*self._ended_cells, *running]

    def opened(self, request: Request, now: float, header: bytes = b"", cell_id: str | None = None) -> bool:
        """Note that a request goes to the kernel; False if one of the same id is open.

        ``header``: of a cell that shows what is written to it; ``cell_id``: its name in its
        notebook, empty for one without, None for a request that is no such cell.
        """
        if request.msg_id in self._open:
            return False
        is_told = cell_id is not None and len(request.msg_id) <= _LONGEST_ID
        cell = {"msg_id": request.msg_id, "cell_id": cell_id or None, "began": now} if is_told else None
        opened = self._open[request.msg_id] = _Open(self._opened, request.is_work, request.lane, header, cell)
        opened.size = _OPEN_BYTES + len(request.msg_id) + len(request.lane) + len(header)
        self._bytes += opened.size
        self._opened += 1
        while self._bytes > _MOST_BYTES and len(self._open) > 1:
            self._count(self._open.pop(next(iter(self._open))), now)
        if request.is_work:
            self._last = now
            self._work += 1
            if self._work == 1:
                self._since = now
        return True

    def began(self, msg_id: str, now: float) -> bool:
        """Note that the kernel is busy with a request.

        True if others wait for input, so that links get the news.
        """
        found = self._open.get(msg_id)
        if found is None or found.began is not None:
            return False
        found.began = now
        return self.is_asking

    def asked(self, msg_id: str, now: float, question: Mapping[str, Any] | None = None) -> bool:
        """Note that a request waits for its user's input.

        True if it is open and did not wait before.
        """
        found = self._open.get(msg_id)
        if found is None or found.asked is not None:
            return False
        found.asked, found.question = now, question
        self._asking += 1
        return True

    def answered(self, msg_id: str | None = None) -> bool:
        """Note that a request has its input; None: all that waited have it.

        True if this changed anything.
        """
        waiting = [self._open.get(msg_id)] if msg_id is not None else list(self._open.values())
        had = self._asking
        for each in waiting:
            if each is not None:
                self._forget_question(each)
        return self._asking != had

    def _forget_question(self, request: _Open) -> None:
        if request.asked is not None:
            request.asked = request.question = None
            self._asking -= 1

    def closed(self, msg_id: str, now: float) -> bool:
        """Note that the kernel is done with a request; True if it was open.

        Some kernels say nothing of requests that they ignore: earlier requests on its lane that
        never began are over.
        """
        found = self._open.pop(msg_id, None)
        if found is None:
            return False
        self._count(found, now)
        if not found.is_work and len(msg_id) <= _LONGEST_ID:
            self._quiet.append(msg_id)
            self._quiet_until = now + _LATE_SECONDS
        if self._open:
            self._close_ignored(found, now)
        return True

    def _close_ignored(self, closed: _Open, now: float) -> None:
        for earlier, request in tuple(self._open.items()):
            if request.order > closed.order:
                return
            if request.lane == closed.lane and request.began is None:
                del self._open[earlier]
                self._count(request, now)

    def _count(self, closed: _Open, now: float) -> None:
        self._bytes -= closed.size
        self._forget_question(closed)
        if closed.cell is not None:
            self._ended_cells.append({**closed.cell, "is_open": False, "input": None})
        if closed.is_work:
            self._last = now
            self._work -= 1
            if not self._work:
                self._since = None

    def showed(self, msg_id: str) -> None:
        """Note that the kernel sent an output of this request, or another message for clients."""
        found = self._open.get(msg_id)
        if found is not None:
            found.has_shown = True

    def saw_output(self, now: float, parent: Any = b"") -> None:
        """Note an output as activity, unless it answers a request that is no work.

        An output that names no request and comes with such an answer is no activity either:
        ipykernel sends its own log once more, from stderr.
        """
        if len(self._open) > self._work or now < self._quiet_until:
            asked = read_object(parent).get("msg_id")
            request = self._open.get(asked) if isinstance(asked, str) else None
            if not asked or asked in self._quiet or (request is not None and not request.is_work):
                return
        self._last = now

    def kernel_began(self, now: float) -> None:
        """Note a start as activity: the kernel is idle since then, not since the work of the one before."""
        self._last = now

    def clear(self, now: float) -> bool:
        """Forget all requests: the kernel ended. True if any was open."""
        had_any = bool(self._open)
        if self._work:
            self._last = now
        self._ended_cells.clear()  # what its cells showed goes with the kernel
        self._open.clear()
        self._bytes = 0
        self._work, self._asking, self._since = 0, 0, None
        return had_any

    def _input(self) -> float | None:
        """Return since when all that runs waits for its user; None if something runs on."""
        if not self._asking:
            return None
        running = [each for each in self._open.values() if each.is_work and each.began is not None]
        asked = [each.asked for each in running if each.asked is not None]
        return max(asked) if asked and len(asked) == len(running) else None

    def snapshot(self) -> dict[str, Any]:
        """Return the activity for the wire."""
        return {
            "open": len(self._open),
            "work": self._work,
            "since": self._since,
            "last": self._last,
            "input": self._input(),
        }
