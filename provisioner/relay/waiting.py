"""What a cell is told while its kernel waits for GPU memory, and when. Pure: time is an argument, sending another's.

Sparing: one line after a second, one more each ten seconds, one when the memory is back after a wait that was long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .activity import RunningCell

_FIRST_SECONDS = 1.0
_NEXT_SECONDS = 10.0
_LONG_SECONDS = 5.0
_LONGEST_WORD = 200
_WORDS = {
    "coming": "it is being copied back",
    "link": "another kernel's memory is being copied",
    "moving": "other kernels' memory is being moved out",
    "hold": "it was given to others a moment ago",
    "turn": "others have their turn",
    "queue": "others came before",
    "busy": "those that hold it are busy",
    "host": "host memory for what would have to leave is full",
    "stuck": "what holds it cannot be moved out",
}


@dataclass(frozen=True)
class Lease:
    """What the agent told last. ``waits_since`` None: the kernel has what it asked for."""

    waits_since: float | None
    before: int = 0
    reason: str = ""
    expected_seconds: float | None = None


def read_lease(event: Mapping[str, Any], now: float) -> Lease:
    """From the agent's event. What cannot be read is left out: a notice is no reason to fail."""
    waited, calls = _number(event.get("waits_seconds")), event.get("waiting_calls")
    if waited is None or calls == 0:  # a wake that no call waits for yet keeps nobody waiting
        return Lease(None)
    before = _number(event.get("before"))
    reason = str(event.get("reason") or "")[:_LONGEST_WORD]
    return Lease(now - waited, int(before or 0), _WORDS.get(reason, reason), _number(event.get("expected_seconds")))


@dataclass
class _Told:
    """One cell's. ``since``: of the wait it was told of, None when that is over."""

    since: float | None
    last: float


class WaitingNotices:
    """``due`` gives each line once. Times are seconds since the epoch, as the tracker's."""

    def __init__(self) -> None:
        self._lease: Lease | None = None
        self._told: dict[str, _Told] = {}

    @property
    def is_needed(self) -> bool:
        """Whether anything may be due: in nearly every turn of a relay, nothing is."""
        return bool(self._told) or (self._lease is not None and self._lease.waits_since is not None)

    def heard(self, event: Mapping[str, Any] | None, now: float) -> None:
        """None: the agent went away. Until it is back, nobody knows what is waited for."""
        self._lease = None if event is None else read_lease(event, now)

    def due(self, cells: Iterable[RunningCell], now: float) -> list[tuple[RunningCell, str]]:
        """Who is to be told what now. ``cells``: all that run; one that does not is forgotten."""
        running = list(cells)
        lines = []
        for cell in running:
            text = self._text(cell, now)
            if text:
                lines.append((cell, text))
        if self._told:
            here = {cell.msg_id for cell in running}
            self._told = {msg_id: told for msg_id, told in self._told.items() if msg_id in here}
        return lines

    def due_in(self, cells: Iterable[RunningCell], now: float) -> float | None:
        """Seconds until a line may be due; None: not before something happens."""
        if self._lease is None or self._lease.waits_since is None:
            return None
        return min((max(0.0, self._next(cell, self._lease.waits_since) - now) for cell in cells), default=None)

    def _next(self, cell: RunningCell, waits_since: float) -> float:
        told = self._told.get(cell.msg_id)
        first = max(cell.began, waits_since) + _FIRST_SECONDS
        return first if told is None else max(first, told.last + _NEXT_SECONDS)

    def _text(self, cell: RunningCell, now: float) -> str:
        lease, told = self._lease, self._told.get(cell.msg_id)
        if lease is None:
            return ""
        if lease.waits_since is None:
            return "" if told is None else self._came_back(told, now)
        if now < self._next(cell, lease.waits_since):
            return ""
        since = max(cell.began, lease.waits_since)
        is_first = told is None or told.since is None
        self._told[cell.msg_id] = _Told(since, now)
        begin = "waiting for GPU memory" if is_first else f"still waiting for GPU memory after {now - since:.0f} s"
        return f"[Aliquot: {begin}{_facts(lease)}]\n"

    def _came_back(self, told: _Told, now: float) -> str:
        since, told.since = told.since, None
        if since is None or now - since < _LONG_SECONDS:
            return ""
        told.last = now
        return f"[Aliquot: GPU memory is there after {now - since:.0f} s]\n"


def _facts(lease: Lease) -> str:
    parts = [lease.reason] if lease.reason else []
    if lease.before > 0:
        parts.append(f"{lease.before} kernel{'s' if lease.before > 1 else ''} before it")
    if lease.expected_seconds is not None:
        parts.append(f"about {max(1.0, lease.expected_seconds):.0f} s")
    return f": {'; '.join(parts)}" if parts else ""


def _number(value: object) -> float | None:
    """Nothing below 0, and nothing that is no number."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e9:
        return None
    return float(value)
