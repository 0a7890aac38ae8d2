"""A page that goes on sending while its gateway comes and goes.

Like JupyterLab, it uses one session and sends each message once. It never sends a message again; a
message that it cannot send, because the socket is closed, waits for the next socket.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
import uuid
from collections import defaultdict
from typing import Any

import websocket

from .conftest import Server

SECONDS = 120.0
_ASK = {"silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": True}


class RestlessPage:
    """A page that reads and reconnects in a thread of its own.

    ``answers`` maps each request to the messages that answer it, each once.
    """

    def __init__(self, server: Server, kernel_id: str) -> None:
        self.server, self.kernel_id, self.session = server, kernel_id, uuid.uuid4().hex
        self.answers: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.connections = 0
        self._known: set[str] = set()
        self._pending: list[str] = []
        self._lock = threading.Lock()
        self._came = threading.Condition()
        self._socket: websocket.WebSocket | None = None
        self._is_closed = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    # ---- sending

    def send(self, kind: str, content: dict[str, Any], channel: str = "shell", parent: Any = None) -> str:
        header = {"msg_id": uuid.uuid4().hex, "username": "", "session": self.session, "msg_type": kind}
        message = {"channel": channel, "header": {**header, "version": "5.3"}, "parent_header": parent or {}}
        self._say(json.dumps({**message, "metadata": {}, "content": content}))
        return header["msg_id"]

    def execute(self, code: str) -> str:
        return self.send("execute_request", {"code": code, **_ASK})

    def _say(self, text: str) -> None:
        with self._lock:
            if self._socket is not None and not self._pending:
                try:
                    self._socket.send(text)
                    return
                except (OSError, websocket.WebSocketException):
                    self._socket = None
            self._pending.append(text)

    # ---- receiving

    def find(self, request: str, kind: str) -> dict[str, Any]:
        """Wait for the answer of this kind, and return it."""
        deadline = time.monotonic() + SECONDS
        with self._came:
            while True:
                for message in self.answers[request]:
                    if message["msg_type"] == kind:
                        return message
                assert self._came.wait(max(0.0, deadline - time.monotonic())), (request, kind, self.answers[request])

    def run(self, code: str) -> str:
        """Run a cell, and return its output."""
        cell = self.execute(code)
        reply = self.find(cell, "execute_reply")["content"]
        assert reply["status"] == "ok", reply
        until = time.monotonic() + SECONDS
        while not self.is_idle(cell):
            with self._came:
                assert self._came.wait(until - time.monotonic())
        return "".join(m["content"]["text"] for m in self.answers[cell] if m["msg_type"] == "stream")

    def is_idle(self, request: str) -> bool:
        return any(m["content"].get("execution_state") == "idle" for m in self.answers[request])

    def close(self) -> None:
        self._is_closed = True
        with self._lock, contextlib.suppress(OSError, websocket.WebSocketException):
            if self._socket is not None:
                self._socket.sock.shutdown(socket.SHUT_RDWR)  # a close would not wake the reader
        self._reader.join(SECONDS)

    # ---- the connection

    def _read(self) -> None:
        url = f"ws://127.0.0.1:{self.server.port}/api/kernels/{self.kernel_id}/channels?session_id={self.session}"
        headers = [f"Authorization: token {self.server.token}"]
        while not self._is_closed:
            try:
                opened = websocket.create_connection(url, timeout=SECONDS, header=headers)
            except (OSError, websocket.WebSocketException):
                time.sleep(0.1)
                continue
            self.connections += 1
            with self._lock:
                self._socket = opened
                while self._pending:
                    opened.send(self._pending.pop(0))
            with contextlib.suppress(OSError, websocket.WebSocketException):
                self._read_one_by_one(opened)
            with self._lock:
                self._socket = None
            opened.close()

    def _read_one_by_one(self, opened: websocket.WebSocket) -> None:
        while True:
            frame = opened.recv_frame()
            if frame.opcode == websocket.ABNF.OPCODE_CLOSE:
                with self._lock:
                    # Before the answer to the close: the page sends nothing after that.
                    self._socket = None
                return
            if frame.opcode == websocket.ABNF.OPCODE_PING:
                opened.pong(frame.data)
            if frame.opcode != websocket.ABNF.OPCODE_TEXT:
                continue
            message = json.loads(frame.data)
            if message["header"]["msg_id"] in self._known:
                continue  # its gateway was killed before it could note that we have it
            self._known.add(message["header"]["msg_id"])
            with self._came:
                self.answers[message["parent_header"].get("msg_id", "")].append(message)
                self._came.notify_all()
