"""What pages sent to kernels of a gateway, until something shows that it arrived: sent again if the gateway goes away.

Of requests those alone that mean the same when they come late: cells, comm messages, and the answer to a question that
is still asked. Whether one is new, the kernel's relay decides, which outlives the gateway. One comes again once, and
soon, or as a question after it alone: as one that must not run. Pure: time is an argument.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jupyter_aliquot.gateway.channels.resend_mark import marked, part_of, read_message
from jupyter_aliquot.provisioner.relay.wire.resend import MARK

_AGAIN = frozenset({"execute_request", "comm_open", "comm_msg", "comm_close"})
# Of all kernels together. Beyond it the oldest are kept no more: those have arrived, most likely.
_MOST_BYTES, _MOST_REQUESTS = 16 << 20, 256
# A larger one is not kept: with its mark it might be more than the gateway takes.
_LONGEST = 1 << 20
# What was sent before is not run any more, and so are those beyond so many of one socket's.
_LATE_SECONDS, _MOST_AT_ONCE = 30.0, 64
# How often one comes again in all: beyond the first time only to be answered.
_MOST_TRIES = 3
_MOST_SESSIONS = 200
# As much of a kernel's message as has its headers, which come before all that its user wrote.
_HEADERS = 4096
_PARENT = re.compile(r'"parent_header": ?\{[^{}]*?"msg_id": ?"([^"\\]{1,200})"')
_ASKS = '"input_request"'

_Session = tuple[str, str]  # the kernel's id, and the name of the page's session
_Name = tuple[str, str, str]  # those, and the msg_id


@dataclass
class _Sent:
    """``at``, ``date``: when it was sent first, by both clocks; ``shown_by``: the request whose messages show that it
    arrived.
    """

    session: _Session
    message: str
    at: float
    date: float
    shown_by: str
    is_wanted: bool = True
    tries: int = 0

    @property
    def size(self) -> int:
        return len(self.message.encode(errors="replace"))

    def age(self, now: float, date: float) -> float:
        """By the clock that says more: one stands still while the machine sleeps, the other is set."""
        return max(0.0, now - self.at, date - self.date)


class SentRequests:
    """Made for all pages of a server. ``now``: seconds that only go forward; ``date``: those since the epoch."""

    def __init__(self, now: Callable[[], float], date: Callable[[], float] = time.time) -> None:
        self._now, self._date = now, date
        self._sent: dict[_Name, _Sent] = {}  # the oldest first
        self._bytes = 0
        # Of each session the id of the last question that came, and of the cell that asked it; and the last answer.
        self._questions: dict[_Session, tuple[str, str]] = {}
        self._answers: dict[_Session, _Name] = {}

    def __len__(self) -> int:
        return len(self._sent)

    def sent(self, kernel_id: str, session: str, message: str | bytes) -> None:
        """A page sent this just now. One with buffers, and what is no message, is not kept."""
        if not isinstance(message, str) or not session or len(message) > _LONGEST:
            return
        told = read_message(message)
        channel, header = told.get("channel"), part_of(told, "header")
        kind, msg_id = header.get("msg_type"), header.get("msg_id")
        if not isinstance(msg_id, str) or not msg_id or not isinstance(kind, str) or MARK in part_of(told, "metadata"):
            return
        if channel == "control" and kind in ("interrupt_request", "shutdown_request"):
            self.interrupted(kernel_id)
        elif channel == "shell" and kind in _AGAIN:
            self._keep((kernel_id, session, msg_id), message, msg_id)
        elif channel == "stdin" and kind == "input_reply":
            self._keep_answer((kernel_id, session, msg_id), message, part_of(told, "parent_header").get("msg_id"))

    def heard(self, kernel_id: str, session: str, message: str) -> None:
        """A message of the kernel's came. Called for each: little of it is looked at, and nothing where none waits."""
        is_question = message.find(_ASKS, 0, _HEADERS) >= 0
        if not self._sent and not is_question:
            return
        found = _PARENT.search(message, 0, _HEADERS)
        if found is None:
            return
        parent, whose = found[1], (kernel_id, session)
        self._drop((*whose, parent))
        answer = self._answers.get(whose)
        if answer is not None and (kept := self._sent.get(answer)) is not None and kept.shown_by == parent:
            self._drop(answer)
        if is_question:
            asked = part_of(read_message(message), "header").get("msg_id")
            self._questions.pop(whose, None)
            self._questions[whose] = (str(asked), parent)
            if len(self._questions) > _MOST_SESSIONS:
                del self._questions[next(iter(self._questions))]

    def again(self, kernel_id: str, session: str) -> list[str]:
        """What is to be sent over the session's new websocket, before all else, in its order. Called once for each."""
        now, date, found = self._now(), self._date(), list[str]()
        for name in [name for name in self._sent if name[:2] == (kernel_id, session)]:
            sent = self._sent[name]
            age, sent.tries = sent.age(now, date), sent.tries + 1
            if sent.tries > _MOST_TRIES:
                self._drop(name)  # its cell stays as it is
                continue
            is_fresh = sent.tries == 1 and age <= _LATE_SECONDS and len(found) < _MOST_AT_ONCE
            # The question that an answer names is asked once, however late it comes.
            runs = sent.is_wanted and (is_fresh or name == self._answers.get(sent.session))
            try:
                found.append(marked(sent.message, age, runs=runs))
            except RecursionError:
                self._drop(name)
        return found

    def interrupted(self, kernel_id: str) -> None:
        """Or restarted: what has not arrived is not wanted any more. The relay answers it in the kernel's place."""
        for each in self._sent.values():
            if each.session[0] == kernel_id:
                each.is_wanted = False

    def forget(self, kernel_id: str, session: str | None = None) -> None:
        """It is no more; or this session of it is, or was closed for what it sent."""
        for name in [name for name in self._sent if name[0] == kernel_id and session in (None, name[1])]:
            self._drop(name)

    def _keep_answer(self, name: _Name, message: str, question: Any) -> None:
        """The last one alone: a cell that asks anew has had the one before."""
        whose = name[:2]
        if (before := self._answers.get(whose)) is not None:
            self._drop(before)
        asked, cell = self._questions.get(whose, ("", ""))
        if asked and asked == question:
            self._answers[whose] = name
            self._keep(name, message, cell)

    def _keep(self, name: _Name, message: str, shown_by: str) -> None:
        sent = _Sent(name[:2], message, self._now(), self._date(), shown_by)
        if name in self._sent or sent.size > _LONGEST:
            return
        self._sent[name] = sent
        self._bytes += sent.size
        while self._bytes > _MOST_BYTES or len(self._sent) > _MOST_REQUESTS:
            self._drop(next(iter(self._sent)))

    def _drop(self, name: _Name) -> None:
        sent = self._sent.pop(name, None)
        if sent is None:
            return
        self._bytes -= sent.size
        if self._answers.get(sent.session) == name:
            del self._answers[sent.session]
