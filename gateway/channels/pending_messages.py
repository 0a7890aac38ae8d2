"""Messages of pages to one kernel that has not started: kept in order, and handed on once.

Their number and size are bounded. They belong to the kernel, not to the websocket that brought
them: a page that is loaded anew learns of its cells.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.clock import iso_moment
from jupyter_aliquot.gateway.replay.cells import CellMessages
from jupyter_aliquot.gateway.replay.message import LONGEST_READ
from jupyter_aliquot.gateway.reports.outputs import CellState
from jupyter_aliquot.gpu_hook.waiting import end_task, outlasting_task
from jupyter_aliquot.provisioner.relay.wire.error_replies import (
    NOT_RUN,
    Answer,
    answers,
    content_of,
    parent_of,
    unread_words,
)
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

STOPPED = "KeyboardInterrupt"
STOPPED_WORDS = (
    "The cell was stopped before its kernel had started: it was not run. The kernel keeps its place in the queue."
)
RESTARTED_WORDS = "A restart was asked before the kernel had started: the cell was not run. Run it again."
# The most messages kept of one kernel; collaborators leave half of them to its owner. Within a limit of
# bytes alone, there could be too many cells.
MOST_MESSAGES = 1000
# The time that one pass waits for the websockets that it connects: one that hangs must not delay
# the others' cells.
CONNECT_SECONDS = 5.0
# The answers that are written before other tasks use the loop.
_ANSWERS_AT_ONCE = 200
_CELL = "execute_request"
_TOO_MANY = (
    "{kept} messages wait for the kernel to start, and at most {most} may. This was not run: run it again when the "
    "kernel has started, or interrupt the kernel, which drops the cells that wait."
)
_NOT_STARTED = "The kernel has not started, so nothing can be shut down over this websocket: end the kernel instead."


class Subscriber(Protocol):
    """A websocket, as the pending messages see it."""

    def __hash__(self) -> int: ...

    @property
    def session_name(self) -> str: ...

    @property
    def is_collaborator(self) -> bool: ...

    @property
    def user(self) -> User: ...

    @property
    def protocol(self) -> str:
        """The name of the protocol in which `encode` writes."""
        ...

    def encode(self, answer: Answer, parent: dict[str, Any]) -> str | bytes:
        """Make a message of the gateway's own, as one of the kernel's, in the websocket's protocol."""
        ...

    def tell_encoded(self, message: str | bytes) -> None:
        """Send an encoded message; closes a websocket that does not read."""
        ...

    def refuse(self, channel: str, frames: Sequence[Any], words: str) -> None:
        """Answer a message for which there is no room."""
        ...

    async def begin(self) -> bool:
        """Connect to the kernel, which has started, and return whether that succeeded.

        Closes the websocket if it failed.
        """
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
    """A kept message.

    ``frames`` start at the delimiter; they are signed when the kernel's key is known.
    """

    channel: str
    session: str
    frames: Sequence[Any]
    request: Request | None
    is_collaborator: bool
    user: User
    size: int
    kept_at: float

    @property
    def is_cell(self) -> bool:
        return self.channel == "shell" and self.request is not None and self.request.msg_type == _CELL


class PendingMessages:
    """The messages for one kernel. ``clock`` returns seconds since the epoch."""

    def __init__(self, most_bytes: int, log: logging.Logger, clock: Callable[[], float] = time.time) -> None:
        """Make an empty queue of messages.

        ``most_bytes`` bounds what is kept, by the rules for what a kernel has not read; 0: no
        bound.
        """
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept_on: Counter[str] = Counter()  # messages by channel
        self._log = log
        self._clock = clock
        self._messages: list[PendingMessage] = []
        # In order of joining; the value: whether it is connected.
        self._subscribers: dict[Subscriber, bool] = {}
        self._connecting: dict[Subscriber, asyncio.Task[bool]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._has_moved = asyncio.Event()

    # ---- called by websockets

    def join(self, subscriber: Subscriber) -> None:
        """Add a websocket that waits for the kernel."""
        self._subscribers[subscriber] = False
        self._has_moved.set()

    def leave(self, subscriber: Subscriber) -> None:
        """Forget a websocket that closed; its messages stay. Idempotent."""
        self._subscribers.pop(subscriber, None)
        self._has_moved.set()

    def keep(self, subscriber: Subscriber, channel: str, frames: Sequence[Any]) -> None:
        """Keep a message, or answer it if there is no room or it needs a running kernel."""
        request = read_request(read_object(frames[HEADER]), channel)
        size = charge(frames)
        if request is not None and request.is_for_one_kernel:
            self._answer_urgent(subscriber, channel, frames, request)
        elif len(self._messages) >= (most := MOST_MESSAGES // 2 if subscriber.is_collaborator else MOST_MESSAGES):
            subscriber.refuse(channel, frames, _TOO_MANY.format(kept=len(self._messages), most=most))
        elif self._has_room(channel, size, is_collaborator=subscriber.is_collaborator):
            self._count(channel, size)
            sender = (subscriber.is_collaborator, subscriber.user)
            kept = PendingMessage(channel, subscriber.session_name, frames, request, *sender, size, self._clock())
            self._messages.append(kept)
            self._has_moved.set()
        else:
            msg_type = None if request is None else request.msg_type
            most = self._bound(is_collaborator=subscriber.is_collaborator)
            subscriber.refuse(channel, frames, unread_words(size, self._bytes, most, msg_type))

    def _bound(self, *, is_collaborator: bool) -> int:
        """Return the bytes up to which a user's messages may wait: half of the room is the owner's."""
        return self._most_bytes // 2 if is_collaborator else self._most_bytes

    def _has_room(self, channel: str, size: int, *, is_collaborator: bool) -> bool:
        """Return whether a message may wait. On an empty channel it may, whatever its size."""
        if not self._most_bytes or not self._kept_on[channel]:
            return True
        return self._bytes + size <= self._bound(is_collaborator=is_collaborator)

    def _count(self, channel: str, size: int, messages: int = 1) -> None:
        self._bytes += size
        self._kept_on[channel] += messages

    def _answer_urgent(self, subscriber: Subscriber, channel: str, frames: Sequence[Any], request: Request) -> None:
        header = read_object(frames[HEADER])
        if request.msg_type == "interrupt_request":
            self.stop(STOPPED_WORDS)
            said = [Answer(channel, "interrupt_reply", {"status": "ok"})]
        else:
            said = answers(channel, header, {}, NOT_RUN, _NOT_STARTED)
        if parent := parent_of(header):
            for answer in said:
                subscriber.tell_encoded(subscriber.encode(answer, json.loads(parent)))

    # ---- events of the kernel

    def stop(self, words: str) -> None:
        """Drop the cells, and answer each as a kernel that is interrupted.

        The first cell of a page fails, the others abort.
        """
        self._answer(self._take(lambda each: each.is_cell), _Stopped(words))

    def drop(self, is_dropped: Callable[[PendingMessage], bool], words: str) -> None:
        """Drop the messages that may not reach the kernel any more, and answer each with ``words``."""
        self._answer(self._take(is_dropped), partial(_not_run, words=words))

    async def give_up(self, reason: str) -> None:
        """Answer the cells with the reason why the kernel does not start, and close all websockets."""
        words = f"The kernel did not start, so this was not run: {reason}"
        self._answer(self._take(lambda _: True), lambda each: _not_run(each, words) if each.is_cell else [])
        subscribers, self._subscribers = list(self._subscribers), {}
        connecting, self._connecting = list(self._connecting.values()), {}
        for task in connecting:
            await end_task(task)
        while self._answering:
            await asyncio.wait(self._answering)
        for subscriber in subscribers:
            subscriber.end(reason)

    async def connect(self, most_seconds: float = CONNECT_SECONDS) -> None:
        """Connect the websockets that wait now, in one pass.

        A connection that takes longer goes on until a later pass.
        """
        began = []
        for subscriber in self._subscribers:
            if not self._subscribers[subscriber] and subscriber not in self._connecting:
                task = self._connecting[subscriber] = asyncio.ensure_future(subscriber.begin())
                task.add_done_callback(lambda _: self._has_moved.set())
                began.append(subscriber)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._until_begun(began), most_seconds)
        for subscriber, task in list(self._connecting.items()):
            if task.done():
                del self._connecting[subscriber]
                self._note(subscriber, task)

    async def _until_begun(self, began: Sequence[Subscriber]) -> None:
        while any(subscriber in self._subscribers and not self._connecting[subscriber].done() for subscriber in began):
            self._has_moved.clear()
            await self._has_moved.wait()

    def _note(self, subscriber: Subscriber, task: asyncio.Task[bool]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._log.error("websocket=failed reason=%r", error, exc_info=error)
            subscriber.end("the kernel cannot be connected")
        if subscriber in self._subscribers:
            self._subscribers[subscriber] = not task.cancelled() and error is None and task.result()
            if not self._subscribers[subscriber]:
                del self._subscribers[subscriber]

    async def until_moved(self) -> None:
        """Wait until a message or a websocket came, one left or is connected, or the kernel ended."""
        self._has_moved.clear()
        if not self._has_more:
            await self._has_moved.wait()

    @property
    def _has_more(self) -> bool:
        """True if a websocket came, or was connected, while `connect` waited for others."""
        is_new = any(not done and subscriber not in self._connecting for subscriber, done in self._subscribers.items())
        return is_new or any(task.done() for task in self._connecting.values())

    @property
    def lacks_subscribers(self) -> bool:
        """True if there are messages and no connected websocket."""
        return bool(self._messages) and not any(self._subscribers.values())

    @property
    def has_subscribers(self) -> bool:
        """True while websockets wait here."""
        return bool(self._subscribers)

    def end(self) -> None:
        """Note that the kernel ended, so that `connect` waits for no websocket."""
        self._has_moved.set()

    def hand_on(self, send: Callable[[PendingMessage, Subscriber | None], None]) -> None:
        """Give all messages to ``send`` in order, each with a websocket, its own if it is open.

        From now on the connected websockets send for themselves. If ``send`` raises for a message,
        the message is answered with the error, and those behind it go on.
        """
        messages, everyone = self._take(lambda _: True), list(self._subscribers)
        subscribers = [subscriber for subscriber, is_connected in self._subscribers.items() if is_connected]
        self._subscribers = dict.fromkeys(
            (subscriber for subscriber in everyone if subscriber not in subscribers), False
        )
        by_session = {subscriber.session_name: subscriber for subscriber in subscribers}
        for subscriber in subscribers:
            subscriber.go_on()
        for message in messages:
            try:
                send(message, by_session.get(message.session, subscribers[0] if subscribers else None))
            except Exception as error:
                self._log.warning("pending_message=dropped reason=%r", error, exc_info=True)
                self._answer([message], partial(_not_run, words=str(error)), everyone)

    # ---- queries and answers

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
            self._count(each.channel, -each.size, -1)
        return taken

    def _answer(
        self,
        messages: Iterable[PendingMessage],
        said: Callable[[PendingMessage], list[Answer]],
        subscribers: Sequence[Subscriber] | None = None,
    ) -> None:
        """Answer some at once, and the rest in a task, so that others use the loop meanwhile."""
        slices = _tell_each(list(self._subscribers) if subscribers is None else subscribers, messages, said)
        if next(slices, None) is None:
            return
        task = outlasting_task(_finish(slices), name="aliquot-pending-answers")
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)


class _Stopped:
    """Answers as of an interrupted kernel: the first cell of a page fails, those behind it abort."""

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
    subscribers: Sequence[Subscriber],
    messages: Iterable[PendingMessage],
    said: Callable[[PendingMessage], list[Answer]],
) -> Iterator[bool]:
    """Send what the kernel would: iopub messages to all, a reply to the sender of its request.

    Yields True after each slice of the work.
    """
    told = 0
    for message in messages:
        parent = json.loads(parent_of(read_object(message.frames[HEADER])) or b"null")
        for answer in said(message) if parent else []:
            encoded: dict[str, str | bytes] = {}
            for subscriber in subscribers:
                if answer.channel != "iopub" and subscriber.session_name != message.session:
                    continue
                if subscriber.protocol not in encoded:
                    encoded[subscriber.protocol] = subscriber.encode(answer, parent)
                subscriber.tell_encoded(encoded[subscriber.protocol])
                told += 1
                if told % _ANSWERS_AT_ONCE == 0:
                    yield True


async def _finish(slices: Iterator[bool]) -> None:
    """Write the remaining answers. The task is in `_answering`."""
    await asyncio.sleep(0)
    for _ in slices:
        await asyncio.sleep(0)


def _not_run(message: PendingMessage, words: str) -> list[Answer]:
    header, content = read_object(message.frames[HEADER]), content_of(message.frames)
    return answers(message.channel, header, content, NOT_RUN, words)


def _aborted(answer: Answer) -> Answer:
    """Return the reply of a kernel that drops the requests queued behind a failure."""
    return answer if answer.channel == "iopub" else Answer(answer.channel, answer.msg_type, {"status": "aborted"})


def reports(cells: Iterable[PendingMessage]) -> list[CellMessages]:
    """Return the cells in the form of `CellsReport.cells`.

    There may be much to read, so it is not for the loop.
    """
    return [_report(each) for each in cells]


def _report(cell: PendingMessage) -> CellMessages:
    assert cell.request is not None  # is_cell implies it
    told: CellState = {
        "msg_id": cell.request.msg_id,
        "cell_id": named_cell(cell.frames) or None,
        "began": iso_moment(cell.kept_at),
        "ended": None,
        "is_open": True,
        "input": None,
        "omitted_messages": 0,
    }
    if len(cell.frames[CONTENT]) > LONGEST_READ:
        return told, []
    # Pages find a cell without a lasting id by its code.
    header = json.dumps({"msg_id": f"{cell.request.msg_id}-input", "msg_type": "execute_input"})
    code = read_object(cell.frames[CONTENT]).get("code")
    content = json.dumps({"code": code, "execution_count": None})
    return told, [(header.encode(), b"{}", content.encode(), "", None)]
