"""Messages that the gateway sends to a page in the kernel's place, in the page's protocol.

Their size is bounded.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Sequence
from typing import Any, Protocol

from jupyter_client.jsonutil import json_default
from jupyter_server.services.kernels.connection.base import serialize_msg_to_ws_v1
from tornado.websocket import WebSocketClosedError

from jupyter_aliquot.gateway.base.jupyter_private import V1
from jupyter_aliquot.gateway.limits.guard import UNREAD, LimitGuard
from jupyter_aliquot.provisioner.relay.wire.error_replies import Answer, CommWords, answers, content_of, parent_of
from jupyter_aliquot.provisioner.relay.wire.files import UNREAD_BYTES
from jupyter_aliquot.provisioner.relay.wire.messages import HEADER, read_object

from .browser_socket import WriteBuffer

ENAME = "KernelNotResponding"
# The most bytes of refusals that a browser has not read; beyond it nothing more is read from it.
_MOST_UNREAD_BYTES = 1 << 20


class Page(Protocol):
    """A websocket, as `OwnMessages` uses it."""

    session: Any

    @property
    def kernel_id(self) -> str: ...

    @property
    def subprotocol(self) -> str | None: ...

    def write_message(self, message: Any, binary: bool = False) -> asyncio.Future[None]:
        """Send a message. Raises WebSocketClosedError."""
        ...


class OwnMessages:
    """The gateway's own messages to one websocket.

    It holds no reference to its page, which is an argument.
    """

    def __init__(self, guard: LimitGuard | None) -> None:
        """Make it for a websocket. *guard* counts refusals; None on a server that has no limits."""
        self._guard = guard
        self._comm_words = CommWords()
        self._unread = WriteBuffer(_MOST_UNREAD_BYTES)

    @property
    def most_kept_bytes(self) -> int:
        """Bytes that may wait for a kernel to start; 0: no bound."""
        return UNREAD_BYTES if self._guard is None else self._guard.limits.unread_bytes

    @property
    def unread_bytes(self) -> int:
        """Bytes that the browser has not read."""
        return self._unread.bytes

    def until_room(self) -> Awaitable[None] | None:
        """Return what to await before more is read from the browser; None: nothing."""
        return self._unread.until_room()

    def encode(self, page: Page, answer: Answer, parent: dict[str, Any]) -> str | bytes:
        """Return the message in the page's protocol, as one of the kernel's."""
        message = page.session.msg(answer.msg_type, content=answer.content, parent={"header": parent})
        if page.subprotocol == V1:
            return bytes(serialize_msg_to_ws_v1(message, answer.channel, page.session.pack))  # type: ignore[no-untyped-call]
        return json.dumps({**message, "channel": answer.channel}, default=json_default)

    def write(self, page: Page, message: str | bytes) -> asyncio.Future[None] | None:
        """Send an encoded message; None if the socket is closed."""
        try:
            return page.write_message(message, binary=isinstance(message, bytes))
        except WebSocketClosedError:
            return None

    def write_bounded(self, page: Page, message: str | bytes) -> None:
        """Send an encoded message that counts until the browser has read it."""
        if (written := self.write(page, message)) is not None:
            self._unread.add(len(message), written)

    def refuse(self, page: Page, channel: str, frames: Sequence[Any], words: str) -> None:
        """Answer a request for which there is no room, with the reason in *words*."""
        if self._guard is not None:
            self._guard.note(UNREAD, str(page.kernel_id))
        header = read_object(frames[HEADER])
        if not (parent := parent_of(header)):
            return
        tells_comm = self._comm_words.are_due(header.get("msg_type"), time.monotonic())
        for answer in answers(channel, header, content_of(frames), ENAME, words, tells_comm=tells_comm):
            self.write_bounded(page, self.encode(page, answer, json.loads(parent)))
