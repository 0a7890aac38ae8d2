"""Decide which notices a cell shows while its kernel waits for GPU memory, and when.

Pure: time is an argument. A cell that has shown nothing gets one line after a second, and a newer
one in its place each ten seconds. The relay takes the line back when the wait is over, before the
cell's first output, and before the cell's end: no notebook keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_aliquot.provisioner.relay.server.activity_tracker import RunningCell

_FIRST_SECONDS = 1.0
_NEXT_SECONDS = 10.0
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
    "relocating": "this kernel is being moved to another GPU",
    "refused": "it could not be restored, and is tried again; if that lasts, restart the kernel",
    "lost": "it is lost; restart the kernel",
    "stuck": "what holds it cannot be moved out",
}


@dataclass(frozen=True)
class Lease:
    """The agent's last event.

    ``waits_since`` is None if the kernel has the memory that it requested.
    """

    waits_since: float | None
    before: int = 0
    reason: str = ""
    expected_seconds: float | None = None


def read_lease(event: Mapping[str, Any], now: float) -> Lease:
    """Return the lease in an agent's event. Unreadable fields are left out: a notice must not fail."""
    waited, calls = _number(event.get("waits_seconds")), event.get("waiting_calls")
    if waited is None or calls == 0:  # a wake that no call waits for yet delays no cell
        return Lease(None)
    before = _number(event.get("before"))
    reason = str(event.get("reason") or "")[:_LONGEST_WORD]
    return Lease(now - waited, int(before or 0), _WORDS.get(reason, reason), _number(event.get("expected_seconds")))


@dataclass
class _Told:
    """The line that a cell shows, written at ``last``."""

    cell: RunningCell
    last: float


class WaitingNotices:
    """Return each line once, and each cell with a line once for its removal.

    Times are seconds since the epoch.
    """

    def __init__(self) -> None:
        self._lease: Lease | None = None
        self._told: dict[str, _Told] = {}
        self._quiet: dict[str, float] = {}  # by cell whose line was taken back: the earliest time of its next one

    @property
    def is_needed(self) -> bool:
        """Tell whether a line may be due: in nearly every turn of a relay none is."""
        return bool(self._told or self._quiet) or self._waits_since is not None

    @property
    def has_told(self) -> bool:
        """Tell whether a cell shows a line."""
        return bool(self._told)

    def heard(self, event: Mapping[str, Any] | None, now: float) -> None:
        """Note the agent's event.

        None: the agent went away, and the lease is unknown until it is back.
        """
        self._lease = None if event is None else read_lease(event, now)

    def due(self, cells: Iterable[RunningCell], now: float) -> list[tuple[RunningCell, str]]:
        """Return the lines to write now, in the place of earlier ones.

        ``cells`` are running, and have no output yet.
        """
        lines = []
        for cell in cells:
            if self._waits_since is not None and now >= self._next(cell, self._waits_since):
                lines.append((cell, self._text(cell, self._waits_since, now)))
                self._told[cell.msg_id] = _Told(cell, now)
        return lines

    def over(self, cells: Iterable[RunningCell], now: float) -> list[RunningCell]:
        """Return the cells whose line the relay must take back, and forget the others.

        Their wait or they themselves are over.
        """
        here = {cell.msg_id for cell in cells}
        self._quiet = {msg_id: until for msg_id, until in self._quiet.items() if msg_id in here}
        ended = [name for name in self._told if self._waits_since is None or name not in here]
        return [cell for name in ended if (cell := self.take_back(name, now)) is not None]

    def take_back(self, msg_id: str, now: float) -> RunningCell | None:
        """Forget the line that this cell shows; None: it shows none."""
        told = self._told.pop(msg_id, None)
        if told is None:
            return None
        self._quiet[msg_id] = told.last + _NEXT_SECONDS
        return told.cell

    def due_in(self, cells: Iterable[RunningCell], now: float) -> float | None:
        """Return the seconds until a line may be due; None: not before something happens."""
        since = self._waits_since
        if since is None:
            return None
        return min((max(0.0, self._next(cell, since) - now) for cell in cells), default=None)

    @property
    def _waits_since(self) -> float | None:
        return None if self._lease is None else self._lease.waits_since

    def _next(self, cell: RunningCell, waits_since: float) -> float:
        told = self._told.get(cell.msg_id)
        first = max(cell.began, waits_since) + _FIRST_SECONDS
        return max(first, self._quiet.get(cell.msg_id, first) if told is None else told.last + _NEXT_SECONDS)

    def _text(self, cell: RunningCell, waits_since: float, now: float) -> str:
        is_first = cell.msg_id not in self._told
        since = now - max(cell.began, waits_since)
        begin = "waiting for GPU memory" if is_first else f"still waiting for GPU memory after {since:.0f} s"
        return f"[Aliquot: {begin}{_facts(self._lease)}]\n" if self._lease is not None else ""


def _facts(lease: Lease) -> str:
    parts = [lease.reason] if lease.reason else []
    if lease.before > 0:
        parts.append(f"{lease.before} kernel{'s' if lease.before > 1 else ''} before it")
    if lease.expected_seconds is not None:
        parts.append(f"about {max(1.0, lease.expected_seconds):.0f} s")
    return f": {'; '.join(parts)}" if parts else ""


def _number(value: object) -> float | None:
    """Return a number that is not negative; None for anything else."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e9:
        return None
    return float(value)
