"""A port that speaks another scheme than its address: one error at once, and no attempt more."""

from __future__ import annotations

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from jupyter_aliquot.client.errors import ClientError, NoAnswerError
from jupyter_aliquot.client.exchange import Call, Exchange
from jupyter_aliquot.client.retries import Retries
from jupyter_aliquot.client.server import Server
from jupyter_aliquot.client.transport import HttpTransport


def test_https_to_a_port_of_plain_http_is_one_error_and_is_not_tried_again() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"https://127.0.0.1:{server.server_port}/"
        try:
            with pytest.raises(ClientError, match="its port speaks plain HTTP") as caught:
                asyncio.run(
                    Exchange(HttpTransport(Server(url, "t")), Retries(), sleep).send(Call("GET", "status", None))
                )
        finally:
            server.shutdown()
    assert (isinstance(caught.value, NoAnswerError), waits) == (False, [])


def test_a_handshake_that_fails_at_a_port_which_refuses_plain_requests_is_tried_again() -> None:
    """A server of TLS answers a plain request with 400."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    class OfTls(BaseHTTPRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 16)
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with HTTPServer(("127.0.0.1", 0), OfTls) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"https://127.0.0.1:{server.server_port}/"
        try:
            with pytest.raises(NoAnswerError):
                asyncio.run(
                    Exchange(HttpTransport(Server(url, "t")), Retries(), sleep).send(Call("GET", "status", None))
                )
        finally:
            server.shutdown()
    assert waits
