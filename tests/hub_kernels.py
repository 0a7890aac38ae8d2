"""Run cells in kernels of a user's server or of the gateway, by the websocket that pages use.

Also run lines in a terminal.
"""

from __future__ import annotations

import json
import uuid

import websocket

_SECONDS = 120.0


def run_cell(url: str, token: str, kernel_id: str, code: str) -> str:
    """Run a cell; return its output. ``url``: of the server, or of the gateway through the proxy."""
    address = f"{url.replace('http', 'ws', 1).rstrip('/')}/api/kernels/{kernel_id}/channels"
    channel = websocket.create_connection(address, timeout=_SECONDS, header=[f"Authorization: token {token}"])
    try:
        message_id = uuid.uuid4().hex
        header = {
            "msg_id": message_id,
            "msg_type": "execute_request",
            "username": "",
            "session": uuid.uuid4().hex,
            "date": "2026-01-01T00:00:00Z",
            "version": "5.3",
        }
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        rest = {"parent_header": {}, "metadata": {}, "buffers": []}
        channel.send(json.dumps({"header": header, "content": content, "channel": "shell", **rest}))
        return _printed(channel, message_id)
    finally:
        channel.close()


def run_line(url: str, token: str, terminal: str, line: str) -> str:
    """Run a shell line in this terminal of a user's server.

    Returns the output, with echo and prompt.
    """
    address = f"{url.replace('http', 'ws', 1).rstrip('/')}/terminals/websocket/{terminal}"
    channel = websocket.create_connection(address, timeout=_SECONDS, header=[f"Authorization: token {token}"])
    end, written = uuid.uuid4().hex, ""
    try:
        # The terminal's echo has it in two parts.
        channel.send(json.dumps(["stdin", f"{line}; echo {end[:16]}''{end[16:]}\r"]))
        while end not in written:
            kind, *text = json.loads(channel.recv())
            written += text[0] if kind == "stdout" else ""
    finally:
        channel.close()
    return written


def _printed(channel: websocket.WebSocket, message_id: str) -> str:
    """Return the output up to the cell's end. Raises AssertionError when it raised an error.

    The kernel drops requests that come between the error and that end.
    """
    printed = problem = ""
    while True:
        message = json.loads(channel.recv())
        if message.get("parent_header", {}).get("msg_id") != message_id:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            printed += content["text"]
        elif kind == "error":
            problem = "\n".join(content["traceback"])
        elif kind == "status" and content["execution_state"] == "idle":
            assert not problem, problem
            return printed
