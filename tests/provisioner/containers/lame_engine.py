"""A container engine that answers as a test says, late or never. Speaks the Docker API.

Tests use it for answers that real engines give too seldom.
"""

from __future__ import annotations

import json
import re
import socketserver
import tempfile
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

SECONDS = 10.0
_VERSION = re.compile(r"/v[0-9.]+")

Answer = Callable[["Asked"], None]


class Asked(BaseHTTPRequestHandler):
    """One request. A route answers with one of these, or not at all."""

    protocol_version = "HTTP/1.1"
    body = b""

    def say(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream_until(self, over: threading.Event) -> None:
        """Report progress without end. Raises OSError when the client has gone."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        line = json.dumps({"status": "Downloading"}).encode() + b"\n"
        while not over.wait(0.02):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    def hang_up(self) -> None:
        self.close_connection = True

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        path = _VERSION.sub("", self.path.partition("?")[0])
        engine: LameEngine = self.server.engine  # type: ignore[attr-defined]
        engine.asked.append(f"{self.command} {path}")
        for pattern, answer in engine.routes.items():
            if re.fullmatch(pattern, f"{self.command} {path}"):
                return answer(self)
        self.say(404, {"message": f"no such thing: {path}"})

    do_GET = do_POST = do_DELETE = _serve

    def address_string(self) -> str:
        return "a test"

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: Any) -> None:
        """Ignore clients that went: tests make them go."""


class LameEngine:
    """The engine. ``routes``: patterns of method and path, and their answers."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="aliquot-e-")
        socket = Path(self._folder.name) / "engine.sock"
        self.url = f"unix://{socket}"
        self.asked: list[str] = []
        self.over = threading.Event()
        self.routes: dict[str, Answer] = {
            "GET /version": lambda asked: asked.say(200, {"ApiVersion": "1.41", "Version": "0"}),
            "GET /info": lambda asked: asked.say(200, {"ServerVersion": "0"}),
            "GET /containers/json": lambda asked: asked.say(200, []),
        }
        self._server = _Server(str(socket), Asked)
        self._server.engine = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(SECONDS)
        self._folder.cleanup()
