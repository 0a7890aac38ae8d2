"""A browser: one websocket to a kernel, in either subprotocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from jupyter_client.session import Session
from jupyter_server.services.kernels.connection.base import (
    deserialize_binary_message,
    deserialize_msg_from_ws_v1,
    serialize_binary_message,
    serialize_msg_to_ws_v1,
)
from tornado.websocket import WebSocketClientConnection

V1 = "v1.kernel.websocket.jupyter.org"
PROTOCOLS = {"v1": (V1,), "legacy": ()}
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Message:
    """A message that arrived."""

    channel: str
    type: str
    header: dict[str, Any]
    parent: str
    content: dict[str, Any]
    buffers: tuple[bytes, ...]


class Browser:
    """A browser, made by the fixture `browser`.

    A test opens and closes it as often as it likes.
    """

    def __init__(self, connect: Callable[..., Any], kernel_id: str, protocol: str, session: str) -> None:
        self._connect = connect
        self._kernel_id = kernel_id
        self._subprotocols = PROTOCOLS[protocol]
        self._session = Session(session=session)
        self.socket: WebSocketClientConnection | None = None
        self.seen: list[Message] = []

    @property
    def session(self) -> str:
        return str(self._session.session)

    async def open(self) -> Browser:
        self.socket = await asyncio.wait_for(
            self._connect(
                "api",
                "kernels",
                self._kernel_id,
                "channels",
                params={"session_id": self.session},
                subprotocols=list(self._subprotocols) or None,
                max_message_size=1 << 30,
            ),
            _PATIENCE_SECONDS,
        )
        return self

    async def close(self) -> list[Message]:
        """Close the websocket, and return the messages that the server had sent before it knew."""
        socket, self.socket = self.socket, None
        assert socket is not None
        socket.close()
        rest = []
        while (raw := await asyncio.wait_for(socket.read_message(), _PATIENCE_SECONDS)) is not None:
            rest.append(self._parse(raw))
        self.seen += rest
        return rest

    async def send(
        self,
        channel: str,
        kind: str,
        content: dict[str, Any],
        *,
        buffers: Sequence[bytes] = (),
        parent: dict[str, Any] | None = None,
        subshell: str = "",
        message: dict[str, Any] | None = None,
    ) -> str:
        """Send a request, and return its msg_id.

        With ``message``, send this earlier message again.
        """
        asked = message or self.make(kind, content, parent=parent, subshell=subshell)
        assert self.socket is not None
        if self._subprotocols:
            parts = [self._session.pack(asked[name]) for name in ("header", "parent_header", "metadata", "content")]
            await self.socket.write_message(serialize_msg_to_ws_v1([*parts, *buffers], channel), binary=True)
        elif buffers:
            whole = {**asked, "channel": channel, "buffers": list(buffers)}
            await self.socket.write_message(serialize_binary_message(whole), binary=True)
        else:
            await self.socket.write_message(json.dumps({**asked, "channel": channel}, default=str))
        return str(asked["header"]["msg_id"])

    def make(
        self, kind: str, content: dict[str, Any], *, parent: dict[str, Any] | None = None, subshell: str = ""
    ) -> dict[str, Any]:
        asked: dict[str, Any] = self._session.msg(kind, content=content, parent=parent)
        asked["header"]["msg_id"] = uuid4().hex
        if subshell:
            asked["header"]["subshell_id"] = subshell
        return asked

    async def read(self) -> Message:
        assert self.socket is not None
        raw = await asyncio.wait_for(self.socket.read_message(), _PATIENCE_SECONDS)
        assert raw is not None, "the server closed the websocket"
        message = self._parse(raw)
        self.seen.append(message)
        return message

    async def until(self, found: Callable[[Message], bool]) -> Message:
        """Read until ``found`` accepts a message; `seen` has the messages before it."""
        while not found(message := await self.read()):
            pass
        return message

    async def ask(self, channel: str, kind: str, content: dict[str, Any], **more: Any) -> Message:
        """Send a request and wait for its reply."""
        asked = await self.send(channel, kind, content, **more)
        return await self.until(lambda m: m.parent == asked and m.type == kind.replace("_request", "_reply"))

    async def execute(self, code: str, **more: Any) -> list[Message]:
        """Run a cell; return its messages up to its idle or its reply, the later of the two."""
        asked = await self.run(code, **more)
        return await self.finish(asked)

    async def run(self, code: str, **more: Any) -> str:
        content = {"code": code, "silent": False, "store_history": False, "allow_stdin": True, "stop_on_error": True}
        return await self.send("shell", "execute_request", {**content, "user_expressions": {}}, **more)

    async def finish(self, asked: str) -> list[Message]:
        while not (self._has(asked, "execute_reply") and self._is_idle(asked)):
            await self.read()
        return self.of(asked)

    def of(self, asked: str) -> list[Message]:
        return [message for message in self.seen if message.parent == asked]

    def _has(self, asked: str, kind: str) -> bool:
        return any(message.type == kind for message in self.of(asked))

    def _is_idle(self, asked: str) -> bool:
        return any(is_state(message, "idle") for message in self.of(asked))

    def _parse(self, raw: str | bytes) -> Message:
        if self._subprotocols:
            assert isinstance(raw, bytes)
            channel, parts = deserialize_msg_from_ws_v1(raw)
            header, parent, _, content = (json.loads(part) for part in parts[:4])
            buffers = parts[4:]
        else:
            whole = deserialize_binary_message(raw) if isinstance(raw, bytes) else json.loads(raw)
            channel, header, parent = whole["channel"], whole["header"], whole["parent_header"]
            content, buffers = whole["content"], whole.get("buffers", [])
        return Message(channel, header["msg_type"], header, (parent or {}).get("msg_id", ""), content, tuple(buffers))


def is_state(message: Message, state: str) -> bool:
    return message.type == "status" and message.content["execution_state"] == state


def text_of(messages: Sequence[Message]) -> str:
    """Return the text that the messages printed."""
    return "".join(message.content["text"] for message in messages if message.type == "stream")


async def widgets_are_told_of_once(browser: Browser) -> None:
    """Flood a stopped kernel with a widget's messages: the page gets one error.

    The gateway also refuses and answers the request at the flood's end.
    """
    asked = [await browser.send("shell", "comm_msg", {"comm_id": "c", "data": "#" * (256 << 10)}) for _ in range(64)]
    await browser.ask("shell", "comm_info_request", {"target_name": "#" * (256 << 10)})
    told = [message for message in browser.seen if message.type == "error"]
    assert [message.content["ename"] for message in told] == ["KernelNotResponding"]
    assert told[0].parent in asked
    assert "change it again when the kernel has gone on" in told[0].content["evalue"]
