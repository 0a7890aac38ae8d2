"""A small Jupyter kernel for measurements with hundreds of them.

It answers kernel_info and execute, and computes nothing.

usage: light_kernel.py CONNECTION_FILE
"""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
import uuid
from typing import Any

import zmq

DELIMITER = b"<IDS|MSG>"
INFO = {
    "status": "ok",
    "protocol_version": "5.3",
    "implementation": "light",
    "implementation_version": "1",
    "language_info": {"name": "text", "version": "1", "mimetype": "text/plain", "file_extension": ".txt"},
    "banner": "",
    "help_links": [],
}


class LightKernel:
    def __init__(self, connection: dict[str, Any]) -> None:
        self.key = connection["key"].encode()
        self.session = uuid.uuid4().hex
        context = zmq.Context()
        self.sockets = {
            name: _bound(context, kind, connection, name)
            for name, kind in (
                ("shell", zmq.ROUTER),
                ("control", zmq.ROUTER),
                ("stdin", zmq.ROUTER),
                ("hb", zmq.REP),
                ("iopub", zmq.PUB),
            )
        }

    def run(self) -> None:
        poller = zmq.Poller()
        for name in ("shell", "control", "hb"):
            poller.register(self.sockets[name], zmq.POLLIN)
        while True:
            for socket, _ in poller.poll():
                frames = socket.recv_multipart()
                if socket is self.sockets["hb"]:
                    socket.send_multipart(frames)
                else:
                    self.answer(socket, frames)

    def answer(self, socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
        at = frames.index(DELIMITER)
        identities, header = frames[:at], json.loads(frames[at + 2])
        self.send(self.sockets["iopub"], [b"status"], "status", {"execution_state": "busy"}, header)
        kind = header["msg_type"]
        content = INFO if kind == "kernel_info_request" else {"status": "ok", "execution_count": 1}
        self.send(socket, identities, kind.replace("_request", "_reply"), content, header)
        self.send(self.sockets["iopub"], [b"status"], "status", {"execution_state": "idle"}, header)
        if kind == "shutdown_request":
            raise SystemExit(0)

    def send(
        self, socket: zmq.Socket[bytes], prefix: list[bytes], kind: str, content: dict[str, Any], parent: dict[str, Any]
    ) -> None:
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": kind,
            "session": self.session,
            "username": "light",
            "date": "2026-01-01T00:00:00.000000Z",
            "version": "5.3",
        }
        parts = [json.dumps(part).encode() for part in (header, parent, {}, content)]
        signature = hmac.new(self.key, b"".join(parts), hashlib.sha256).hexdigest().encode()
        socket.send_multipart([*prefix, DELIMITER, signature, *parts])


def _bound(context: zmq.Context[Any], kind: int, connection: dict[str, Any], name: str) -> zmq.Socket[bytes]:
    socket: zmq.Socket[bytes] = context.socket(kind)
    separator = "-" if connection["transport"] == "ipc" else ":"
    socket.bind(f"{connection['transport']}://{connection['ip']}{separator}{connection[name + '_port']}")
    return socket


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        LightKernel(json.load(file)).run()
