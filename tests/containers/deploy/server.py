"""A client of a Jupyter server: REST, and one kernel's channels over a WebSocket."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
import uuid
from dataclasses import dataclass
from typing import Any

from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

REPLY_SECONDS = 90.0


@dataclass(frozen=True)
class Server:
    url: str
    token: str

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Return the answer's JSON.

        None if no server listens yet, and for an empty answer.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, method=method, data=data)
        request.add_header("Authorization", f"token {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read().decode()}") from error
        except OSError:
            return None
        return json.loads(text) if text else None

    def execute(self, kernel_id: str, code: str) -> str:
        """Return the output of a cell, or its error."""
        return asyncio.run(asyncio.wait_for(self._execute(kernel_id, code), REPLY_SECONDS))

    async def _execute(self, kernel_id: str, code: str) -> str:
        url = f"{self.url.replace('http', 'ws', 1)}/api/kernels/{kernel_id}/channels"
        headers = {"Authorization": f"token {self.token}"}
        socket = await websocket_connect(HTTPRequest(url, headers=headers, request_timeout=REPLY_SECONDS))
        asked = str(uuid.uuid4())
        header = {"msg_id": asked, "msg_type": "execute_request", "username": "", "session": asked, "version": "5.3"}
        content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        await socket.write_message(json.dumps(message))
        printed, is_answered, is_idle = "", False, False
        while not (is_answered and is_idle):
            received = await socket.read_message()
            assert received is not None, "the server closed the channels"
            told = json.loads(received)
            if told["parent_header"].get("msg_id") != asked:
                continue
            if told["msg_type"] == "stream":
                printed += told["content"]["text"]
            elif told["msg_type"] == "error":
                printed += f"{told['content']['ename']}: {told['content']['evalue']}"
            is_answered = is_answered or told["msg_type"] == "execute_reply"
            is_idle = is_idle or (told["msg_type"] == "status" and told["content"]["execution_state"] == "idle")
        socket.close()
        return printed.strip()
