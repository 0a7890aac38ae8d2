"""Messages of pages to one kernel that is not there yet: kept in order, within a bound, and handed on once when it is.

They belong to the kernel, not to the websocket that brought them: a page that is loaded anew is told of its cells.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.clock import iso
from jupyter_aliquot.gateway.replay.message import LONGEST_READ
from jupyter_aliquot.gpu_hook.waiting import end_task, outlasting_task
from jupyter_aliquot.provisioner.relay.wire.error_replies import NOT_RUN, Answer, answers, content_of, parent_of
from jupyter_aliquot.provisioner.relay.wire.messages import (
    CONTENT,
    HEADER,
    Request,
    is_silent,
    named_cell,
    read_object,
    read_request,
)
from jupyter_aliquot.provisioner.relay.wire.protocol import charge

from .backpressure import StockUnread, Waiting

STOPPED = "KeyboardInterrupt"
STOPPED_WORDS = (
    "The cell was stopped before its kernel had started: it was not run. The kernel keeps its place in the queue."
)
RESTARTED_WORDS = "A restart was asked before the kernel had started: the cell was not run. Run it again."
# How many messages are kept of one kernel; guests leave half of them to its owner. Bytes alone would be too many cells.
MOST_MESSAGES = 1000
# How long one pass waits for the websockets that it connects: one that hangs holds up no other's cells.
CONNECT_SECONDS = 5.0
# So many answers are written before others use the loop.
_ANSWERS_AT_ONCE = 200
_CELL = "execute_request"
_TOO_MANY = (
    "asked the kernel to take one more message; {kept} wait for it to start, and {most} may. This was not run: run it "
    "again when the kernel has started, or interrupt the kernel, which drops the cells that wait"
)
_NOT_STARTED = "The kernel has not started, so nothing can be shut down over this websocket: end the kernel instead."


class Port(Protocol):
    """A websocket, as the messages see it."""

    def __hash__(self) -> int: ...

    @property
    def port_session(self) -> str: ...

    @property
    def is_guest(self) -> bool: ...

    @property
    def user(self) -> User: ...

    @property
    def protocol(self) -> str:
        """What `encode` goes by."""
        ...

    def encode(self, answer: Answer, parent: dict[str, Any]) -> str | bytes:
        """Make a message of the gateway's own, as one of the kernel's, in the websocket's protocol."""
        ...

    def tell_encoded(self, message: str | bytes) -> None:
        """Send an encoded message; closes a websocket that does not read what it is told."""
        ...

    def refuse(self, channel: str, frames: Sequence[Any], size: int, why: str = "") -> None:
        """Answer a message for which there is no room. ``why``: other words than those for bytes."""
        ...

    async def begin(self) -> bool:
        """Connect to the kernel, which is there now; tells whether it is. Closes the websocket where that fails."""
        ...

    def go_on(self) -> None:
        """Send to the kernel itself from now on."""
        ...

    def send_now(self, channel: str, frames: Sequence[Any]) -> None:
        """Send a signed message over the websocket's own channels to the kernel."""
        ...

    def end(self, reason: str) -> None:
        """Close the websocket: the kernel does not come."""
        ...


@dataclass(frozen=True)
class PendingMessage:
    """``frames`` from the delimiter on; their signature is made when the kernel's key is known."""

    channel: str
    session: str
    frames: Sequence[Any]
    request: Request | None
    is_guest: bool
    user: User
    waiting: Waiting
    kept_at: float

    @property
    def is_cell(self) -> bool:
        return self.channel == "shell" and self.request is not None and self.request.msg_type == _CELL


class PendingMessages:
    """Made by PendingKernels. ``clock``: seconds since the epoch."""

    def __init__(self, unread: StockUnread, log: logging.Logger, clock: Callable[[], float] = time.time) -> None:
        """``unread`` counts what is kept, by the rules for what a kernel has not read."""
        self._unread = unread
        self._log = log
        self._clock = clock
        self._messages: list[PendingMessage] = []
        self._ports: dict[Port, bool] = {}  # in the order of their coming; whether it is connected
        self._connecting: dict[Port, asyncio.Task[bool]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._has_moved = asyncio.Event()

    # ---- what websockets do

    def join(self, port: Port) -> None:
        """Have one more websocket wait for the kernel."""
        self._ports[port] = False
        self._has_moved.set()

    def leave(self, port: Port) -> None:
        """Forget a websocket that closed; what it brought stays. Idempotent."""
        self._ports.pop(port, None)
        self._has_moved.set()

    def keep(self, port: Port, channel: str, frames: Sequence[Any]) -> None:
        """Keep a message, or answer it: one too many, and one that is for a running kernel alone."""
        request = read_request(read_object(frames[HEADER]), channel)
        size = charge(frames)
        if request is not None and request.is_for_one_kernel:
            self._answer_urgent(port, channel, frames, request)
        elif len(self._messages) >= (most := MOST_MESSAGES // 2 if port.is_guest else MOST_MESSAGES):
            port.refuse(channel, frames, size, _TOO_MANY.format(kept=len(self._messages), most=most))
        elif self._unread.has_room(channel, size, is_urgent=False, is_guest=port.is_guest):
            waiting = Waiting(size, 0)
            self._unread.add(channel, waiting)
            sender = (port.is_guest, port.user)
            kept = PendingMessage(channel, port.port_session, frames, request, *sender, waiting, self._clock())
            self._messages.append(kept)
            self._has_moved.set()
        else:
            port.refuse(channel, frames, size)

    def _answer_urgent(self, port: Port, channel: str, frames: Sequence[Any], request: Request) -> None:
        header = read_object(frames[HEADER])
        if request.msg_type == "interrupt_request":
            self.stop(STOPPED_WORDS)
            said = [Answer(channel, "interrupt_reply", {"status": "ok"})]
        else:
            said = answers(channel, header, {}, NOT_RUN, _NOT_STARTED)
        if parent := parent_of(header):
            for answer in said:
                port.tell_encoded(port.encode(answer, json.loads(parent)))

    # ---- what is done to the kernel

    def stop(self, words: str) -> None:
        """Drop the cells, and answer each as a kernel that is interrupted: the first of a page fails, others abort."""
        self._answer(self._take(lambda each: each.is_cell), _Stopped(words))

    def drop(self, is_dropped: Callable[[PendingMessage], bool], words: str) -> None:
        """Drop the messages that may not reach the kernel any more, and answer each with ``words``."""
        self._answer(self._take(is_dropped), partial(_not_run, words=words))

    async def give_up(self, reason: str) -> None:
        """Answer the cells with the reason for which the kernel does not come, and close all websockets."""
        words = f"The kernel did not start, so this was not run: {reason}"
        self._answer(self._take(lambda _: True), lambda each: _not_run(each, words) if each.is_cell else [])
        ports, self._ports = list(self._ports), {}
        connecting, self._connecting = list(self._connecting.values()), {}
        for task in connecting:
            await end_task(task)
        while self._answering:
            await asyncio.wait(self._answering)
        for port in ports:
            port.end(reason)

    async def connect(self, most_seconds: float = CONNECT_SECONDS) -> None:
        """Connect the websockets that wait now, in one pass. One that takes longer goes on until a later pass."""
        began = []
        for port in self._ports:
            if not self._ports[port] and port not in self._connecting:
                task = self._connecting[port] = asyncio.ensure_future(port.begin())
                task.add_done_callback(lambda _: self._has_moved.set())
                began.append(port)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._until_begun(began), most_seconds)
        for port, task in list(self._connecting.items()):
            if task.done():
                del self._connecting[port]
                self._note(port, task)

    async def _until_begun(self, began: Sequence[Port]) -> None:
        while any(port in self._ports and not self._connecting[port].done() for port in began):
            self._has_moved.clear()
            await self._has_moved.wait()

    def _note(self, port: Port, task: asyncio.Task[bool]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._log.error("websocket=failed reason=%r", error, exc_info=error)
            port.end("the kernel cannot be connected")
        if port in self._ports:
            self._ports[port] = not task.cancelled() and error is None and task.result()
            if not self._ports[port]:
                del self._ports[port]

    async def until_moved(self) -> None:
        """Wait until a message or a websocket came, one left or is connected, or the kernel ended."""
        self._has_moved.clear()
        if not self._has_more:
            await self._has_moved.wait()

    @property
    def _has_more(self) -> bool:
        """True where a websocket came, or was connected, while `connect` waited for others."""
        is_new = any(not done and port not in self._connecting for port, done in self._ports.items())
        return is_new or any(task.done() for task in self._connecting.values())

    @property
    def lack_ports(self) -> bool:
        """True where there are messages, and no websocket that is connected."""
        return bool(self._messages) and not any(self._ports.values())

    @property
    def has_ports(self) -> bool:
        """True while websockets wait here."""
        return bool(self._ports)

    def end(self) -> None:
        """Note that the kernel ended: no websocket is waited for."""
        self._has_moved.set()

    def hand_on(self, send: Callable[[PendingMessage, Port | None], None]) -> None:
        """Give all messages to ``send`` in their order, each with a websocket, its own if it is open.

        From now on the websockets that are connected send for themselves. A message that ``send`` raises for is
        answered with what it raised, and those behind it go on.
        """
        messages, everyone = self._take(lambda _: True), list(self._ports)
        ports = [port for port, is_connected in self._ports.items() if is_connected]
        self._ports = dict.fromkeys((port for port in everyone if port not in ports), False)
        by_session = {port.port_session: port for port in ports}
        for port in ports:
            port.go_on()
        for message in messages:
            try:
                send(message, by_session.get(message.session, ports[0] if ports else None))
            except Exception as error:
                self._log.warning("pending_message=dropped reason=%r", error, exc_info=True)
                self._answer([message], partial(_not_run, words=str(error)), everyone)

    # ---- what is told

    def ids(self, session: str) -> set[str]:
        """Return the ids of a session's requests that are kept."""
        return {each.request.msg_id for each in self._messages if each.session == session and each.request is not None}

    def cells(self) -> list[PendingMessage]:
        """Return the cells that are kept, save the silent ones."""
        return [each for each in self._messages if each.is_cell and not is_silent(each.frames)]

    def _take(self, is_wanted: Callable[[PendingMessage], bool]) -> list[PendingMessage]:
        taken, left = list[PendingMessage](), list[PendingMessage]()
        for each in self._messages:
            (taken if is_wanted(each) else left).append(each)
        self._messages = left
        for each in taken:
            self._unread.remove(each.channel, each.waiting)
        return taken

    def _answer(
        self,
        messages: Iterable[PendingMessage],
        said: Callable[[PendingMessage], list[Answer]],
        ports: Sequence[Port] | None = None,
    ) -> None:
        """Answer some at once, and the rest in a task, so that others use the loop meanwhile."""
        slices = _tell_each(list(self._ports) if ports is None else ports, messages, said)
        if next(slices, None) is None:
            return
        task = outlasting_task(_finish(slices), name="aliquot-pending-answers")
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)


class _Stopped:
    """As a kernel that is interrupted: the first cell of a page fails, those behind it abort."""

    def __init__(self, words: str) -> None:
        self._words = words
        self._failed = set[str]()

    def __call__(self, cell: PendingMessage) -> list[Answer]:
        header, content = read_object(cell.frames[HEADER]), content_of(cell.frames)
        said = answers(cell.channel, header, content, STOPPED, self._words)
        if cell.session in self._failed:
            return [_aborted(each) for each in said if each.msg_type != "error"]
        self._failed.add(cell.session)
        return said


def _tell_each(
    ports: Sequence[Port], messages: Iterable[PendingMessage], said: Callable[[PendingMessage], list[Answer]]
) -> Iterator[bool]:
    """Tell what the kernel would: iopub to all, a reply to its asker. Yields True after each slice of the work."""
    told = 0
    for message in messages:
        parent = json.loads(parent_of(read_object(message.frames[HEADER])) or b"null")
        for answer in said(message) if parent else []:
            encoded: dict[str, str | bytes] = {}
            for port in ports:
                if answer.channel != "iopub" and port.port_session != message.session:
                    continue
                if port.protocol not in encoded:
                    encoded[port.protocol] = port.encode(answer, parent)
                port.tell_encoded(encoded[port.protocol])
                told += 1
                if told % _ANSWERS_AT_ONCE == 0:
                    yield True


async def _finish(slices: Iterator[bool]) -> None:
    """Owned by _answering."""
    await asyncio.sleep(0)
    for _ in slices:
        await asyncio.sleep(0)


def _not_run(message: PendingMessage, words: str) -> list[Answer]:
    header, content = read_object(message.frames[HEADER]), content_of(message.frames)
    return answers(message.channel, header, content, NOT_RUN, words)


def _aborted(answer: Answer) -> Answer:
    """A reply as that of a kernel that drops what is queued behind a failure."""
    return answer if answer.channel == "iopub" else Answer(answer.channel, answer.msg_type, {"status": "aborted"})


def reports(cells: Iterable[PendingMessage]) -> list[tuple[dict[str, Any], list[tuple[Any, ...]]]]:
    """The cells in the form of `CellsReport.cells`. It may be much to read: not for the loop."""
    return [_report(each) for each in cells]


def _report(cell: PendingMessage) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    assert cell.request is not None  # is_cell says so
    told = {
        **{"msg_id": cell.request.msg_id, "cell_id": named_cell(cell.frames) or None, "began": iso(cell.kept_at)},
        **{"ended": None, "is_open": True, "input": None, "omitted_messages": 0},
    }
    if len(cell.frames[CONTENT]) > LONGEST_READ:
        return told, []
    # Pages find by its code a cell that has no lasting id.
    header = json.dumps({"msg_id": f"{cell.request.msg_id}-input", "msg_type": "execute_input"})
    code = read_object(cell.frames[CONTENT]).get("code")
    content = json.dumps({"code": code, "execution_count": None})
    return told, [(header.encode(), b"{}", content.encode(), "", None)]
