"""Receive 100 MB of output over a WebSocket in JupyterLab's protocol, from any Jupyter server."""

from __future__ import annotations

import itertools
import json
import socket
import struct
import time
import uuid

import websocket

from gateway import DEADLINE_SECONDS, TOKEN, Server
from runtime.zmq_kernels import CHUNK, OUTPUT_BYTES, OUTPUT_CODE

PROTOCOL = "v1.kernel.websocket.jupyter.org"


class BrowserKernel:
    """One kernel of a server, and the WebSocket that a browser would open."""

    def __init__(self, server: Server) -> None:
        self.server = server
        model = server.call("POST", "/api/kernels", {"name": server.kernel_name})
        assert isinstance(model, dict)
        self.kernel_id = str(model["id"])
        self.socket = websocket.create_connection(
            f"ws{server.url[4:]}/api/kernels/{self.kernel_id}/channels?session_id={uuid.uuid4().hex}",
            header=[f"Authorization: token {TOKEN}"],
            subprotocols=[PROTOCOL],
            timeout=DEADLINE_SECONDS,
            sockopt=((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),),
        )

    def execute(self, code: str) -> int:
        """Run a cell to its end; return the bytes of its output messages' contents."""
        message_id = uuid.uuid4().hex
        self.socket.send_binary(_request(message_id, code))
        count, wanted = 0, {"execute_reply", "idle"}
        while wanted:
            parts = _parts(self.socket.recv())
            header, parent = json.loads(parts[1]), json.loads(parts[2])
            if parent.get("msg_id") != message_id:
                continue
            kind = header["msg_type"]
            if kind == "display_data":
                count += len(parts[4])
            elif kind == "status" and json.loads(parts[4])["execution_state"] == "idle":
                kind = "idle"
            wanted.discard(kind)
        return count

    def end(self) -> None:
        self.socket.close()
        self.server.call("DELETE", f"/api/kernels/{self.kernel_id}")


def seconds_of_output(kernel: BrowserKernel) -> float:
    """Return the seconds for 100 MB of output. Raises AssertionError when output is missing."""
    begin = time.perf_counter()
    count = kernel.execute(OUTPUT_CODE)
    elapsed = time.perf_counter() - begin
    most = OUTPUT_BYTES + 200 * (OUTPUT_BYTES // CHUNK)
    assert OUTPUT_BYTES <= count <= most, f"Requested {OUTPUT_BYTES} bytes of output, but {count} came"
    return elapsed


def _request(message_id: str, code: str) -> bytes:
    header = {"msg_id": message_id, "msg_type": "execute_request", "session": "bench", "username": "", "version": "5.3"}
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    parts = [b"shell", *(json.dumps(part).encode() for part in (header, {}, {}, content))]
    offsets = [8 * (len(parts) + 2)]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets) + b"".join(parts)


def _parts(message: bytes) -> list[bytes]:
    """Return channel, header, parent header, metadata, content and buffers."""
    (count,) = struct.unpack_from("<Q", message)
    offsets = struct.unpack_from(f"<{count}Q", message, 8)
    return [message[start:end] for start, end in itertools.pairwise(offsets)]
