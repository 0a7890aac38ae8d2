"""Keep what one kernel's running and recently ended cells showed. Pure: time is an argument.

It keeps memory only. It sees every request and every iopub message once. Of messages that no longer
matter (cleared, updated again) and of those beyond the bounds only the numbers are kept.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from jupyter_aliquot.gateway.base.clock import iso, iso_moment
from jupyter_aliquot.gateway.reports import to_json
from jupyter_aliquot.gateway.reports.outputs import (
    CellQuestion,
    CellState,
    RunningCell,
    RunningCells,
    SeenMessages as SeenReport,
)
from jupyter_aliquot.provisioner.relay.client.link import KnownCell
from jupyter_aliquot.provisioner.relay.wire.messages import CONTENT, HEADER, PARENT, is_silent, named_cell, read_object

from .message import LONGEST_READ, KeptMessage, read_content, read_message
from .seen_ids import SeenMessages

_OUTPUTS = frozenset({"stream", "display_data", "execute_result", "error"})
_KEPT = _OUTPUTS | {"execute_input", "clear_output", "update_display_data"}
_MOST_CELLS = 1000
# The most dropped messages that keep their places behind others, beyond as many as are kept:
# each holds its cell.
_UNTIDY = 16
# Kernels and pages choose the ids: of one that is longer nothing is kept.
_LONGEST_ID = 256


@dataclass
class Budget:
    """Bounds of what is kept, of one kernel and of all.

    The kernels' cells write `used`, which is of all.
    """

    kernel_bytes: int
    kernel_messages: int
    all_bytes: int
    seconds: float
    used: int = 0


@dataclass
class _Cell:
    msg_id: str
    cell_id: str | None
    began: float
    ended: float | None = None
    omitted: int = 0
    # False if its first message was not seen; then the number of its messages is unknown.
    is_whole: bool = True
    # False until the relay has it: it may be on its way there.
    has_come: bool = False
    input: CellQuestion | None = None
    asks: KeptMessage | None = None  # its execute_input
    shown: deque[KeptMessage] = field(default_factory=deque)
    updates: dict[str, KeptMessage] = field(default_factory=dict)
    clears_next: bool = False


class KernelCells:
    """One kernel's cells. The kernel's link passes them the messages."""

    def __init__(self, budget: Budget, make_room: Callable[[], None]) -> None:
        """Make an empty store.

        ``make_room`` is called when all kernels together keep more than they may.
        """
        self._budget = budget
        self._make_room = make_room
        self._cells: dict[str, _Cell] = {}
        self._named: dict[str, _Cell] = {}  # the last run of each cell of a notebook
        self._order: deque[tuple[_Cell, KeptMessage]] = deque()
        self._messages = 0
        self.bytes = 0
        self._seen = SeenMessages(budget.kernel_messages)
        self._last_parent: tuple[bytes, _Cell | None] = (b"", None)
        self._is_closed = False

    # ---- what passes

    def asked(self, frames: Sequence[Any], now: float) -> None:
        """Note a request to the kernel's shell."""
        if b'"execute_request"' not in bytes(frames[HEADER]) or is_silent(frames):
            return
        msg_id = _id(read_object(frames[HEADER]))
        if msg_id and msg_id not in self._cells:
            self._begin(_Cell(msg_id, named_cell(frames) or None, now))

    def answered(self) -> None:
        """Note that a question was answered: the cells that asked go on."""
        for cell in self._cells.values():
            cell.input = None

    def knows(self, cells: Iterable[KnownCell], now: float) -> None:
        """Take the relay's list of cells, some from before this gateway.

        Cells that it leaves out are over.
        """
        told = {cell.msg_id: cell for cell in cells if len(cell.msg_id) <= _LONGEST_ID}
        for each in told.values():
            found = self._cells.get(each.msg_id)
            if found is None:
                found = _Cell(each.msg_id, each.cell_id, each.began, None if each.is_open else now, is_whole=False)
                self._begin(found)
            self._name(found, found.cell_id or each.cell_id)
            found.has_come = True
            found.input = None if each.input is None else cast(CellQuestion, dict(each.input))
        for cell in self._cells.values():
            if cell.ended is None and cell.has_come and (cell.msg_id not in told or not told[cell.msg_id].is_open):
                cell.ended = now

    def told(self, frames: Sequence[Any], now: float) -> None:
        """Note a message that the kernel published."""
        if len(frames) <= CONTENT or self._is_closed:
            return
        header = read_object(frames[HEADER])
        msg_type, msg_id = header.get("msg_type"), _id(header)
        if msg_id:
            self._seen.add(msg_id)
        is_kept = isinstance(msg_type, str) and (msg_type == "status" or msg_type in _KEPT)
        cell = self._parent(frames[PARENT], now) if is_kept else None
        if cell is None:
            return
        if msg_type == "status":
            self._tell_state(cell, b'"idle"' in bytes(frames[CONTENT]), now)
        else:
            self._keep(cell, str(msg_type), frames)

    def _parent(self, frame: Any, now: float) -> _Cell | None:
        parent = bytes(frame)
        if parent != self._last_parent[0]:
            self._last_parent = parent, self._find(read_object(parent), now)
        return self._last_parent[1]

    def _find(self, header: dict[str, Any], now: float) -> _Cell | None:
        """Return the cell of a request, made here if another client asked for it."""
        msg_id = _id(header)
        if not msg_id or header.get("msg_type") != "execute_request":
            return None
        if msg_id not in self._cells:
            self._begin(_Cell(msg_id, None, now, is_whole=False))
        self._cells[msg_id].has_come = True
        return self._cells[msg_id]

    @staticmethod
    def _tell_state(cell: _Cell, is_idle: bool, now: float) -> None:
        cell.ended = now if is_idle else None
        if is_idle:
            cell.input = None

    # ---- cells

    def _begin(self, cell: _Cell) -> None:
        """Add a cell's run. Only the last run of each cell of a notebook is kept."""
        before = self._named.get(cell.cell_id or "")
        if before is not None:
            before.cell_id = None
            if before.ended is not None:
                self._forget(before)
        self._cells[cell.msg_id] = cell
        self._name(cell, cell.cell_id)
        if len(self._cells) > _MOST_CELLS:
            self._forget_one()

    def _name(self, cell: _Cell, name: str | None) -> None:
        cell.cell_id = name
        if name:
            self._named[name] = cell

    def _forget_one(self) -> None:
        ended = (one for one in self._cells.values() if one.ended is not None)
        self._forget(next(ended, next(iter(self._cells.values()))))

    def forget_old(self, now: float) -> None:
        """Forget cells that ended long enough ago."""
        due = now - self._budget.seconds
        for cell in [one for one in self._cells.values() if one.ended is not None and one.ended < due]:
            self._forget(cell)

    def close(self) -> None:
        """Keep nothing from now on: what still comes would be counted for ever."""
        self._is_closed = True
        self.clear()

    def clear(self) -> None:
        """Forget all cells: the kernel ended."""
        for cell in list(self._cells.values()):
            self._forget(cell)
        self._seen = SeenMessages(self._budget.kernel_messages)

    def _forget(self, cell: _Cell) -> None:
        self._drop_shown(cell)
        if cell.asks is not None:
            self._charge(-cell.asks.size)
        self._cells.pop(cell.msg_id, None)
        self._tidy()
        if cell.cell_id and self._named.get(cell.cell_id) is cell:
            del self._named[cell.cell_id]
        self._last_parent = (b"", None)

    # ---- messages

    def _keep(self, cell: _Cell, msg_type: str, frames: Sequence[Any]) -> None:
        size = len(frames[CONTENT])
        content = read_content(msg_type, frames[CONTENT])
        if msg_type == "execute_input":
            self._keep_input(cell, frames)
            return
        if msg_type == "clear_output" and not content.get("wait"):
            self._start_over(cell)
            return
        if cell.clears_next and msg_type in _OUTPUTS:
            self._start_over(cell)
        last = cell.shown[-1] if cell.shown else None
        if size > self._budget.kernel_bytes:
            cell.omitted += 1
        elif msg_type == "stream" and last and not last.is_gone and (grown := last.join(content, size)) is not None:
            self._charge(grown)
        else:
            self._add(cell, KeptMessage(msg_type, frames, content))
        self._fit()

    def _keep_input(self, cell: _Cell, frames: Sequence[Any]) -> None:
        if cell.asks is not None:
            return
        if len(frames[CONTENT]) > LONGEST_READ:  # code that long is not kept, its number is
            count = {"execution_count": read_object(frames[CONTENT]).get("execution_count")}
            frames = [*frames[:CONTENT], json.dumps(count).encode()]
        cell.asks = KeptMessage("execute_input", frames, {})
        cell.is_whole = cell.is_whole or not (cell.shown or cell.omitted)
        self._charge(cell.asks.size)
        self._fit()

    def _start_over(self, cell: _Cell) -> None:
        self._drop_shown(cell)
        cell.omitted, cell.is_whole, cell.clears_next = 0, True, False

    def _add(self, cell: _Cell, message: KeptMessage) -> None:
        if message.msg_type == "clear_output":
            cell.clears_next = True
        elif message.msg_type == "update_display_data":
            self._supersede(cell, message)
        cell.shown.append(message)
        self._order.append((cell, message))
        self._messages += 1
        self._charge(message.size)

    def _supersede(self, cell: _Cell, message: KeptMessage) -> None:
        if message.display_id is not None:
            before = cell.updates.get(message.display_id)
            if before is not None:
                self._discard(before)
            cell.updates[message.display_id] = message

    def _drop_shown(self, cell: _Cell) -> None:
        for message in cell.shown:
            self._discard(message)
        cell.shown.clear()
        cell.updates.clear()

    def _discard(self, message: KeptMessage) -> None:
        """Drop a message's content.

        The message stays in its place until `_tidy`, for a search would take longer.
        """
        if not message.is_gone:
            message.drop()
            self._messages -= 1
            self._charge(-message.size)

    def _charge(self, size: int) -> None:
        self.bytes += size
        self._budget.used += size

    def _fit(self) -> None:
        self.fit(self._budget.kernel_bytes)
        if self._budget.used > self._budget.all_bytes:
            self._make_room()

    def fit(self, most_bytes: int) -> None:
        """Drop the oldest messages until the bounds on bytes and messages hold."""
        while self._order and (self.bytes > most_bytes or self._messages > self._budget.kernel_messages):
            cell, message = self._order.popleft()
            if not message.is_gone:
                cell.omitted += message.count
                if message.display_id is not None:
                    cell.updates.pop(message.display_id, None)
                self._discard(message)
                while cell.shown and cell.shown[0].is_gone:
                    cell.shown.popleft()
        while self.bytes > most_bytes and self._cells:
            self._forget_one()
        self._tidy()

    def _tidy(self) -> None:
        """Remove dropped messages: those at the beginning at once, others in an occasional pass."""
        while self._order and self._order[0][1].is_gone:
            self._order.popleft()
        if len(self._order) <= 2 * self._messages + (_UNTIDY if self._messages else 0):
            return
        self._order = deque(each for each in self._order if not each[1].is_gone)
        for cell in self._cells.values():
            if cell.shown:
                cell.shown = deque(message for message in cell.shown if not message.is_gone)

    # ---- reports

    def report(self, now: float, idle_since: float | None) -> CellsReport:
        """Return a report of all cells.

        ``idle_since``: when the kernel's last work ended, if it is known to be idle.
        """
        self.forget_old(now)
        cells = []
        for cell in self._cells.values():
            is_over = cell.ended is not None or (idle_since is not None and cell.began <= idle_since)
            told: CellState = {
                "msg_id": cell.msg_id,
                "cell_id": cell.cell_id,
                "began": iso_moment(cell.began),
                "ended": iso(cell.ended),
                "is_open": not is_over,
                "input": None if is_over else cell.input,
                "omitted_messages": cell.omitted or (0 if cell.is_whole else 1),
            }
            asks = [cell.asks] if cell.asks is not None else []
            cells.append((told, [message.value() for message in (*asks, *cell.shown) if not message.is_gone]))
        return CellsReport(cells, self._seen.report())


# A cell's state, and the values of its messages, to be read later by `read_message`.
CellMessages = tuple[CellState, list[tuple[Any, ...]]]


@dataclass(frozen=True)
class CellsReport:
    """The state at one moment, to be written later."""

    cells: list[CellMessages]
    seen: SeenReport

    def with_cells(self, more: list[CellMessages]) -> CellsReport:
        """Return this report with cells added that have not reached the kernel yet."""
        known = {told["msg_id"] for told, _ in self.cells}
        return CellsReport([*self.cells, *(each for each in more if each[0]["msg_id"] not in known)], self.seen)

    def text(
        self,
        *,
        is_brief: bool = False,
        is_own: bool = True,
        may_answer: bool = True,
        not_received: Sequence[str] | None = (),
    ) -> str:
        """Return the answer to a page in JSON, as `RunningCells` of openapi.yaml has it.

        A brief one has no messages. Without ``may_answer`` it has no questions. It takes a while
        for much output, and reads nothing that changes.
        """
        cells: list[RunningCell] = []
        for told, values in ((told, [] if is_brief else values) for told, values in self.cells):
            read = [read_message(value, told["msg_id"]) for value in values]
            messages = [message for message in read if message is not None]
            omitted = told["omitted_messages"] + len(read) - len(messages)
            asked = told["input"] if may_answer else None
            cells.append({**told, "input": asked, "omitted_messages": omitted, "messages": messages})
        lost = None if not_received is None else list(not_received)
        return to_json(RunningCells(is_own=is_own, cells=cells, seen=self.seen, not_received=lost))


def _id(header: dict[str, Any]) -> str:
    """Return a message's id; empty for none, or for one that is too long to be kept."""
    msg_id = header.get("msg_id")
    return msg_id if isinstance(msg_id, str) and len(msg_id) <= _LONGEST_ID else ""


NOTHING = CellsReport([], {"ranges": {}, "ids": []})
