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
