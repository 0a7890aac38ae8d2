"""Decide for each message of a websocket whether it may reach the kernel, and answer the others.

Access is checked anew with each message, for shares change. Two requests of a user with read access
go to the kernel, made anew so that nothing else in them takes effect. All other messages are
answered at once, as by a kernel that refuses, so that a cell ends.
"""

# mypy: disable-error-code="no-untyped-call"
# Jupyter Server's readers of messages carry no types.
from __future__ import annotations

import asyncio
import json
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from uuid import uuid4

from jupyter_client.jsonutil import json_default
from jupyter_server.services.kernels.connection.base import deserialize_binary_message, deserialize_msg_from_ws_v1

from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.gateway.auth.identity import user_of
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.jupyter_private import V1
from jupyter_aliquot.gpu_hook.base.pacing import TokenBucket
from jupyter_aliquot.provisioner.relay.wire.error_replies import Answer, answers
from jupyter_aliquot.provisioner.relay.wire.messages import HEADER, Request, read_object, read_request

from .collaborator_sessions import session_of
from .rights import access_of, owner_for

ASKABLE = frozenset({"kernel_info_request", "comm_info_request"})
ENAME = "ReadOnlyKernel"
NO_MORE = "this kernel is not shared with you any more"
TOO_MUCH = "too many requests to a kernel that is shared read-only"
_ASKED_TOO_OFTEN = "Too many requests: try again in a few seconds."
_HEADER = ("msg_id", "session", "username", "date", "version", "msg_type")
_LONGEST = 256
_ASKS = "_request"
# No page of JupyterLab comes near to these.
_MOST_QUESTIONS, _QUESTIONS_EACH_SECOND = 30, 5
_MOST_REFUSED, _REFUSED_EACH_SECOND = 400, 50
_MOST_UNREAD = 400
_LONGEST_READ = 1 << 20
# Positions in a message's frames.
_PARENT, _CONTENT = 3, 5
# Errors of data that is no message.
UNREADABLE = (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, OverflowError, struct.error)


class FilteredPage(Protocol):
    """A websocket, as the filter sees it."""

    log: Any
    session: Any

    @property
    def subprotocol(self) -> str | None: ...

    @property
    def has_relay(self) -> bool:
        """True if questions go over a relay, which takes each id once."""
        ...

    @property
    def is_pending(self) -> bool:
        """True while the kernel has not started."""
        ...

    def ask_kernel(self, channel: str, message: dict[str, Any]) -> None:
        """Sign a message and send it to the kernel."""
        ...

    def tell(self, answer: Answer, parent: dict[str, Any]) -> asyncio.Future[None] | None:
        """Send a message in the kernel's place; None if the socket is closed."""
        ...

    def refuse_socket(self, reason: str) -> None:
        """Close the socket at once."""
        ...


class AccessFilter:
    """The filter of one websocket's messages.

    It holds no reference to its page, which is an argument.
    """

    def __init__(self, handler: Any, manager: Any, kernel_id: str) -> None:
        self._handler, self._manager, self._kernel_id = handler, manager, kernel_id
        self.user: User = user_of(handler)
        self._has_owners = hasattr(manager, "owner_of")
        self._owner = owner_for(self.user, manager, kernel_id)
        self._is_counted = False
        self._questions = TokenBucket(_QUESTIONS_EACH_SECOND, _MOST_QUESTIONS, time.monotonic())
        self._refused = TokenBucket(_REFUSED_EACH_SECOND, _MOST_REFUSED, time.monotonic())
        self._unread = 0
        # Headers of the requests on their way, by the ids under which the kernel knows them.
        self._asked: dict[str, dict[str, Any]] = {}
        # Requests for a kernel that has not started, with their channels.
        self._later: list[tuple[str, dict[str, Any]]] = []

    @property
    def is_collaborator(self) -> bool:
        """True if the user is not the kernel's owner; possibly an administrator."""
        return self.user.name != self._owner

    @property
    def access(self) -> Access:
        """The user's access to the kernel now."""
        if not self._has_owners:
            return Access.OWN
        return access_of(user_of(self._handler), self._manager, self._kernel_id)

    def session_name(self, session_id: str) -> str:
        """Return the name of the page's session for the relay."""
        return session_of(self.user, self._owner, session_id)

    def connected(self) -> None:
        """Count a collaborator's open page: it does not keep the kernel from being culled."""
        if self.is_collaborator and not self._is_counted:
            self._is_counted = True
            self._manager.sharing.collaborator_came(self._kernel_id)

    def disconnected(self) -> None:
        """Count a collaborator's closed page off. Idempotent."""
        if self._is_counted:
            self._is_counted = False
            self._manager.sharing.collaborator_went(self._kernel_id)

    def passes(self, page: FilteredPage, message: Any) -> bool:
        """Return whether a browser's message may go to the kernel as it is; answer it otherwise."""
        access = self.access
        if access is Access.OWN or (access is Access.WRITE and not self._ends_kernel(page, message)):
            return True
        if access is not Access.NONE:
            self._answer(page, message, access)
        return False

    def began(self, page: FilteredPage) -> None:
        """Send the requests that waited for the kernel, which has started."""
        later, self._later = self._later, []
        if self.access is Access.NONE:
            return
        for channel, asked in later:
            self._ask(page, channel, asked)

    def may_still_send(self, frames: Sequence[Any]) -> bool:
        """Return whether the user may send a request that the kernel's relay has yet to get."""
        return may_send(self.access, read_request(read_object(frames[HEADER])))

    def takes_reply(self, page: FilteredPage, channel: str, frames: list[Any]) -> bool:
        """Return whether a kernel's message answers a request of this filter.

        The page then gets it as its own.
        """
        header = self._asked.pop(parent_id(frames), None) if self._asked and channel != "iopub" else None
        if header is None:
            return False
        try:
            content = json.loads(bytes(frames[_CONTENT]))
        except UNREADABLE:
            return False
        for answer in replies(channel, header, content):
            self._tell(page, answer, header)
        return True

    def _ends_kernel(self, page: FilteredPage, message: Any) -> bool:
        """Recognize a request to end the kernel, which only its owner may send.

        A message that cannot be read might be one.
        """
        try:
            return _read_header(page.subprotocol, message).get("msg_type") == "shutdown_request"
        except UNREADABLE:
            return True

    def _answer(self, page: FilteredPage, message: Any, access: Access) -> None:
        try:
            if len(message) > _LONGEST_READ:
                raise ValueError(f"it has {len(message)} bytes; a reader needs at most {_LONGEST_READ}")
            channel, header, content = _read(page.subprotocol, message)
        except UNREADABLE as error:
            page.log.warning("kernel=%s request=dropped it is no Jupyter message: %r", self._kernel_id, error)
            self._tire(page)
            return
        asked = question(channel, header, content)
        if asked is not None and self._may_ask():
            self._ask(page, channel, asked)
        elif self._tire(page):
            words = refusal(self._owner, access) if asked is None else _ASKED_TOO_OFTEN
            for answer in answers(channel, header, content, ENAME, words):
                self._tell(page, answer, header)

    def _ask(self, page: FilteredPage, channel: str, asked: dict[str, Any]) -> None:
        """Send the request under an id of our own.

        A relay takes each id once, so the owner could not use one of the page's.
        """
        if page.is_pending:
            self._later = [*self._later, (channel, asked)][-_MOST_QUESTIONS:]
            return
        if page.has_relay:
            own_id, header = uuid4().hex, asked["header"]
            self._asked[own_id] = header
            if len(self._asked) > _MOST_QUESTIONS:
                del self._asked[next(iter(self._asked))]
            asked = {**asked, "header": {**header, "msg_id": own_id, "session": page.session.session}}
        page.ask_kernel(channel, asked)

    def _may_ask(self) -> bool:
        return self._unread < _MOST_UNREAD and not self._questions.take(time.monotonic())

    def _tire(self, page: FilteredPage) -> bool:
        """Return whether the page may go on.

        Closes the socket of a page that sends requests without end, or does not read its answers.
        """
        if self._unread < _MOST_UNREAD and not self._refused.take(time.monotonic()):
            return True
        page.log.warning("kernel=%s websocket=closed user=%s %s", self._kernel_id, self.user.name, TOO_MUCH)
        page.refuse_socket(TOO_MUCH)
        return False

    def _tell(self, page: FilteredPage, answer: Answer, parent: dict[str, Any]) -> None:
        written = page.tell(answer, parent)
        if written is not None:
            self._unread += 1
            written.add_done_callback(self._was_read)

    def _was_read(self, written: asyncio.Future[None]) -> None:
        self._unread -= 1
        if not written.cancelled():
            written.exception()


def may_send(access: Access, request: Request | None) -> bool:
    """Return whether a user with this access may send a request that waited for its kernel.

    A reader may send the requests that every page sends, and run nothing.
    """
    is_question = request is not None and request.msg_type in ASKABLE
    return access >= (Access.READ if is_question else Access.WRITE)


def question(channel: str, header: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the message to forward for a reader; None for one that a reader may not send."""
    if channel not in ("shell", "control") or header.get("msg_type") not in ASKABLE:
        return None
    told = {name: header[name] for name in _HEADER if isinstance(header.get(name), str)}
    if not {"msg_id", "session"} <= set(told) or any(len(text) > _LONGEST for text in told.values()):
        return None
    target = content.get("target_name")
    asked = {"target_name": target} if isinstance(target, str) and len(target) <= _LONGEST else {}
    return {"header": told, "parent_header": {}, "metadata": {}, "content": asked}


def replies(channel: str, header: Mapping[str, Any], content: dict[str, Any]) -> list[Answer]:
    """Return the kernel's answer to a question in the form in which the kernel gives it."""
    busy, idle = (Answer("iopub", "status", {"execution_state": state}) for state in ("busy", "idle"))
    return [busy, Answer(channel, header["msg_type"].removesuffix(_ASKS) + "_reply", content), idle]


def refusal(owner: str, access: Access = Access.READ) -> str:
    """Return the message that a cell shows if its user may not run it."""
    if access is Access.WRITE:
        return f"shared with you to use by {owner}, who alone ends it"
    return f"shared with you read-only by {owner}: you see what it shows, and run nothing in it"


def parent_id(frames: list[Any]) -> str:
    """Return the id of the message that this one answers, or an empty text.

    ``frames`` begin at the delimiter.
    """
    try:
        return str(json.loads(bytes(frames[_PARENT])).get("msg_id", ""))
    except UNREADABLE:
        return ""


def _read(subprotocol: str | None, message: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return channel, header and content. Raises one of UNREADABLE."""
    if subprotocol == V1:
        channel, parts = deserialize_msg_from_ws_v1(message)
        header, content = json.loads(parts[0]), json.loads(parts[3])
    else:
        read = json.loads(message) if isinstance(message, str) else deserialize_binary_message(message)
        channel, content = read.get("channel") or "shell", read.get("content") or {}
        header = json.loads(json.dumps(read["header"], default=json_default))
    if not isinstance(header, dict) or not isinstance(content, dict):
        raise TypeError("its header or its content is no object")
    return str(channel), header, content


def _read_header(subprotocol: str | None, message: Any) -> dict[str, Any]:
    """Return the header.

    In the newer protocol the content, which may be nested arbitrarily, is not read.
    """
    if subprotocol != V1:
        return _read(subprotocol, message)[1]
    header = json.loads(deserialize_msg_from_ws_v1(message)[1][0])
    if not isinstance(header, dict):
        raise TypeError("its header is no object")
    return header
