"""One user of the load test: polls, listens, starts and ends kernels.

A user polls the status, and listens to events and a kernel's channels.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from load.http_client import HttpClient

POLL_SECONDS = 2.0
_SPREAD = 0.1  # as the panel's: two hundred that poll in step would wait for each other
_ANSWER_SECONDS = 60.0


@dataclass
class Seen:
    """The measurements of all users since the last reset. Milliseconds, and numbers."""

    user_status: list[float] = field(default_factory=list)
    admin_status: list[float] = field(default_factory=list)
    cells: list[float] = field(default_factory=list)
    events: int = 0
    foreign: int = 0
    failures: list[str] = field(default_factory=list)


class User:
    """A user. ``kernels``: the present ones. The user's measurements go into ``seen()``."""

    def __init__(self, name: str, token: str, port: int, is_admin: bool, seen: Callable[[], Seen]) -> None:
        self.name = name
        self.is_admin = is_admin
        self.kernels: list[str] = []
        self.client = HttpClient(port, token)
        self._requests = HttpClient(port, token)
        self._port = port
        self._token = token
        self._seen = seen
        self._events: asyncio.Task[None] | None = None
        self._channels: WebSocketClientConnection | None = None
        self._waiting: dict[str, asyncio.Future[None]] = {}
        # Opening and leaving wait for each other: of two streams opened at once one would never be
        # closed.
        self._opens = asyncio.Lock()

    # ---- status

    async def poll_for_ever(self, dice: random.Random) -> None:
        """Poll as a panel does: a question, its answer, and some seconds of rest."""
        await asyncio.sleep(dice.uniform(0, POLL_SECONDS))
        while True:
            try:
                await self.poll()
            except Exception as error:
                self._seen().failures.append(f"status: {error!r}")
            await asyncio.sleep(POLL_SECONDS * dice.uniform(1 - _SPREAD, 1 + _SPREAD))

    async def poll(self) -> bytes:
        """Request one status, measured from the question to its last byte."""
        began = time.perf_counter()
        answer = await self.client.ask("GET", "/aliquot/api/v1/status")
        took = 1e3 * (time.perf_counter() - began)
        seen = self._seen()
        (seen.admin_status if self.is_admin else seen.user_status).append(took)
        if not self.is_admin:
            kernels = json.loads(answer)["kernels"]
            seen.foreign += sum(kernel["owner"] != self.name for kernel in kernels)
        return answer

    # ---- kernels

    async def start_kernel(self, name: str) -> str:
        """Start a kernel; return when the gateway has answered."""
        model = await self._requests.json("POST", "/api/kernels", {"name": name})
        self.kernels.append(model["id"])
        return str(model["id"])

    async def end_kernel(self, kernel_id: str) -> None:
        """End a kernel; return when it is gone."""
        self.kernels.remove(kernel_id)
        await self._requests.ask("DELETE", f"/api/kernels/{kernel_id}")

    async def resize(self, kernel_id: str, gpus: float) -> None:
        """Resize a kernel; return when it has the size, or waits for it."""
        await self._requests.ask("PATCH", f"/aliquot/api/v1/kernels/{kernel_id}", {"gpus": gpus})

    async def leave(self) -> None:
        """Close all connections."""
        async with self._opens:
            if self._events is not None:
                self._events.cancel()
                await asyncio.gather(self._events, return_exceptions=True)
                self._events = None
            self._drop_channels()
            await self.client.leave()
            await self._requests.leave()

    # ---- websockets

    async def listen(self) -> None:
        """Listen to the user's kernels, and open one of them."""
        async with self._opens:
            if self._events is None:
                events = await self._open("/aliquot/api/v1/events")
                self._events = asyncio.create_task(self._hear(events))
            if self._channels is None and self.kernels:
                await self._open_channels(self.kernels[0])

    async def open_channels(self, kernel_id: str) -> None:
        """Open a notebook's socket, instead of the one that it had."""
        async with self._opens:
            await self._open_channels(kernel_id)

    async def _open_channels(self, kernel_id: str) -> None:
        self._drop_channels()
        path = f"/api/kernels/{kernel_id}/channels?session_id={uuid.uuid4().hex}"
        url = f"ws://127.0.0.1:{self._port}{path}"
        request = HTTPRequest(url, headers={"Authorization": f"token {self._token}"})
        self._channels = await websocket_connect(request, on_message_callback=self._take)

    def _drop_channels(self) -> None:
        """Drop the channels, as a laptop does when its lid closes."""
        if self._channels is not None:
            self._channels.close()
            self._channels = None
        for waiting in self._waiting.values():
            waiting.cancel()
        self._waiting.clear()

    async def run_cell(self, seconds: float) -> None:
        """Run one cell, measured beyond its own time."""
        if self._channels is None:
            return
        msg_id = uuid.uuid4().hex
        done = self._waiting[msg_id] = asyncio.get_running_loop().create_future()
        began = time.perf_counter()
        with contextlib.suppress(asyncio.CancelledError):
            await self._channels.write_message(json.dumps(_cell(msg_id, seconds)))
            await asyncio.wait_for(done, _ANSWER_SECONDS + seconds)
            self._seen().cells.append(1e3 * (time.perf_counter() - began - seconds))

    def _take(self, message: str | bytes | None) -> None:
        if message is None or message == b"" or '"execute_reply"' not in str(message):
            return
        answer = json.loads(message)
        waiting = self._waiting.pop(answer["parent_header"].get("msg_id", ""), None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def _open(self, path: str) -> WebSocketClientConnection:
        headers = {"Authorization": f"token {self._token}"}
        return await websocket_connect(HTTPRequest(f"ws://127.0.0.1:{self._port}{path}", headers=headers))

    async def _hear(self, events: WebSocketClientConnection) -> None:
        try:
            while (message := await events.read_message()) is not None:
                seen = self._seen()
                seen.events += 1
                if not self.is_admin and json.loads(message)["owner"] != self.name:
                    seen.foreign += 1
            why = f"{events.close_code} {events.close_reason or ''}".strip()
            self._seen().failures.append(f"events: the stream ended ({why})")
        finally:
            events.close()


def _cell(msg_id: str, seconds: float) -> dict[str, Any]:
    header = {"msg_id": msg_id, "msg_type": "execute_request", "session": "load", "username": "", "version": "5.4"}
    content = {"code": f"{seconds:g}", "silent": False, "store_history": True, "user_expressions": {}}
    metadata = {"cellId": msg_id}
    return {
        "header": header,
        "parent_header": {},
        "metadata": metadata,
        "content": content,
        "channel": "shell",
        "buffers": [],
    }
