"""Websockets to kernels that are shared: what each may say is asked anew with each message, for shares change.

A guest's socket has a session of its own name and a link of its own, so that it never takes what is its owner's.
"""

# mypy: disable-error-code="no-untyped-call, misc, override"
# Jupyter Server's websocket connection carries no types, and its methods are not as its base class says.
from __future__ import annotations

import asyncio
import json
import struct
import time
from typing import Any
from uuid import uuid4

from jupyter_client.jsonutil import json_default
from jupyter_server.services.kernels.connection.base import (
    deserialize_binary_message,
    deserialize_msg_from_ws_v1,
)
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection

from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.gateway.auth.identity import access_of, user_of
from jupyter_aliquot.gateway.relays.link import KernelLink
from jupyter_aliquot.gateway.relays.pool import RelayLinks
from jupyter_aliquot.gpu_hook.base.pacing import TokenBucket
from jupyter_aliquot.provisioner.relay.wire.error_replies import Answer

from .pending_kernels import relay_session
from .read_only import answers, question, refusal, replies
from .relay_connection import KernelWebsocketConnection
from .zmq_connection import V1

_REFUSED = 1008
NO_MORE = "this kernel is not shared with you any more"
TOO_MUCH = "asked too much of a kernel that is shared read-only"
# What no page of JupyterLab comes near to.
_MOST_QUESTIONS, _QUESTIONS_EACH_SECOND = 30, 5
_MOST_REFUSED, _REFUSED_EACH_SECOND = 400, 50
_MOST_UNREAD = 400
_LONGEST_READ = 1 << 20
# Of a message's frames.
_PARENT, _CONTENT = 3, 5
# What is raised where somebody sends what is no message.
UNREADABLE = (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, OverflowError, struct.error)


class SharedWebsocketConnection(KernelWebsocketConnection):
    """Made by KernelWebsocketHandler for each socket."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._user = user_of(self.websocket_handler)
        owner_of = getattr(self.multi_kernel_manager, "owner_of", None)
        self._owner = self._user.name if owner_of is None else owner_of(self.kernel_id) or ""
        self._is_counted = False
        self._questions = TokenBucket(_QUESTIONS_EACH_SECOND, _MOST_QUESTIONS, time.monotonic())
        self._refused = TokenBucket(_REFUSED_EACH_SECOND, _MOST_REFUSED, time.monotonic())
        self._unread = 0
        # Questions on their way, by the ids that the kernel knows them by, with their headers.
        self._asked: dict[str, dict[str, Any]] = {}
        # Questions for a kernel that is not there yet, with their channels.
        self._later: list[tuple[str, dict[str, Any]]] = []

    @property
    def is_guest(self) -> bool:
        """Whether its user is another than the kernel's owner, an administrator perhaps."""
        return self._user.name != self._owner

    @property
    def access(self) -> Access:
        """What its user may do with the kernel now."""
        return access_of(user_of(self.websocket_handler), self.multi_kernel_manager, self.kernel_id)

    # ---- opening and closing

    async def _register_session(self) -> None:
        """Called by prepare. A client chooses the name of its session, and the owner's is in each of his outputs."""
        if self.is_guest and not self.is_registered:
            self.session.session = relay_session(self.session.session, self._user.name)
        await super()._register_session()

    def _find_link(self) -> KernelLink | None:
        links: RelayLinks | None = getattr(self.multi_kernel_manager, "links", None)
        if links is None or not self.is_guest:
            return super()._find_link()
        return links.of_guests(self.kernel_id)

    def connect(self) -> asyncio.Future[None] | None:
        """Called by KernelWebsocketHandler.open. While the kernel started, its share may have been taken back."""
        if self.access is Access.NONE:
            self.websocket_handler.close(_REFUSED, NO_MORE)
            closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            closed.set_result(None)
            return closed
        if self.is_guest and not self.waits:
            self._is_counted = True
            self.multi_kernel_manager.sharing.guest_came(self.kernel_id)
        return super().connect()

    def go_on(self) -> None:
        """Called when the kernel is there, and has what was kept for it."""
        super().go_on()
        later, self._later = self._later, []
        if self.access is Access.NONE:
            return
        for channel, asked in later:
            self._ask(channel, asked)

    def disconnect(self) -> None:
        """Called when the socket closed."""
        if self._is_counted:
            self._is_counted = False
            self.multi_kernel_manager.sharing.guest_went(self.kernel_id)
        super().disconnect()

    def look_again(self) -> None:
        """Shares changed: who lost the kernel loses the socket."""
        if self.access is Access.NONE:
            self.give_back()
            self.websocket_handler.close(_REFUSED, NO_MORE)

    # ---- what it says

    def handle_incoming_message(self, incoming_msg: Any) -> None:
        """Called for each message of the browser's."""
        access = self.access
        if access is Access.OWN or (access is Access.WRITE and not self._ends_it(incoming_msg)):
            super().handle_incoming_message(incoming_msg)
        elif access is not Access.NONE and self.channels:
            self._answer(incoming_msg, access)

    def _ends_it(self, said: Any) -> bool:
        """Recognize a request to end the kernel, which is its owner's to do; one that cannot be read might be one."""
        try:
            return self._read_header(said).get("msg_type") == "shutdown_request"
        except UNREADABLE:
            return True

    def _answer(self, said: Any, access: Access) -> None:
        try:
            if len(said) > _LONGEST_READ:
                raise ValueError(f"it has {len(said)} bytes; who may only look needs no more than {_LONGEST_READ}")
            channel, header, content = self._read(said)
        except UNREADABLE as error:
            self.log.warning("kernel=%s request=dropped it is no Jupyter message: %r", self.kernel_id, error)
            self._tire()
            return
        asked = question(channel, header, content)
        if asked is not None and self._unread < _MOST_UNREAD and not self._questions.take(time.monotonic()):
            self._ask(channel, asked)
            return
        if self._tire():
            why = refusal(self._owner, access) if asked is None else "asked too often: try again in a few seconds"
            for answer in answers(channel, header, content, why):
                self._tell(answer, header)

    def _ask(self, channel: str, asked: dict[str, Any]) -> None:
        """By an id of our own: a relay takes each id once, so one that its owner will use would be lost to him."""
        if self._pending is not None:
            self._later = [*self._later, (channel, asked)][-_MOST_QUESTIONS:]
            return
        if self._link is not None:
            named, header = uuid4().hex, asked["header"]
            self._asked[named] = header
            if len(self._asked) > _MOST_QUESTIONS:
                del self._asked[next(iter(self._asked))]
            asked = {**asked, "header": {**header, "msg_id": named, "session": self.session.session}}
        self.session.send(self.channels[channel], asked)

    def give(self, channel: str, frames: list[Any]) -> asyncio.Future[None] | None:
        """Called by the link. The kernel's reply to a question of ours is told as one to its asker's."""
        header = self._asked.pop(parent_id(frames), None) if self._asked and channel != "iopub" else None
        if header is None:
            return super().give(channel, frames)
        for answer in replies(channel, header, json.loads(bytes(frames[_CONTENT]))):
            self._tell(answer, header)
        return None

    def _read(self, said: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """Channel, header and content. Raises what is raised for what is no message."""
        if self.subprotocol == V1:
            channel, parts = deserialize_msg_from_ws_v1(said)
            header, content = json.loads(parts[0]), json.loads(parts[3])
        else:
            message = json.loads(said) if isinstance(said, str) else deserialize_binary_message(said)
            channel, content = message.get("channel") or "shell", message.get("content") or {}
            header = json.loads(json.dumps(message["header"], default=json_default))
        if not isinstance(header, dict) or not isinstance(content, dict):
            raise TypeError("its header or its content is no object")
        return str(channel), header, content

    def _read_header(self, said: Any) -> dict[str, Any]:
        """The header alone: of the newer form the content, which may be nested as it likes, is not looked at."""
        if self.subprotocol != V1:
            return self._read(said)[1]
        header = json.loads(deserialize_msg_from_ws_v1(said)[1][0])
        if not isinstance(header, dict):
            raise TypeError("its header is no object")
        return header

    def _tire(self) -> bool:
        """Whether it may go on: one that asks without end, or does not read what it is answered, is closed."""
        if self._unread < _MOST_UNREAD and not self._refused.take(time.monotonic()):
            return True
        self.log.warning("kernel=%s websocket=closed user=%s %s", self.kernel_id, self._user.name, TOO_MUCH)
        self.give_back()
        self.websocket_handler.close(_REFUSED, TOO_MUCH)
        return False

    def _tell(self, answer: Answer, parent: dict[str, Any]) -> None:
        written = self.tell(answer, parent)
        if written is None:
            return
        self._unread += 1
        written.add_done_callback(self._was_read)

    def _was_read(self, written: asyncio.Future[None]) -> None:
        self._unread -= 1
        if not written.cancelled():
            written.exception()


def parent_id(frames: list[Any]) -> str:
    """The id of the message that this one, from its delimiter on, is an answer to; empty without one."""
    try:
        return str(json.loads(bytes(frames[_PARENT])).get("msg_id", ""))
    except UNREADABLE:
        return ""


def look_at_sockets(kernel_id: str) -> None:
    """After a change of a kernel's shares."""
    for connection in list(ZMQChannelsWebsocketConnection._open_sockets):
        if isinstance(connection, SharedWebsocketConnection) and connection.kernel_id == kernel_id:
            connection.look_again()
