"""What a browser hears of a kernel that the gateway does not let its user have any more."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from aliquot.gateway.remote_sockets import SETTING, Refusals, RemoteWebsocketConnection, fitting
from tornado.httpclient import HTTPClientError
from tornado.web import HTTPError

WORDS = "JupyterHub does not know this token"


class Refused(RemoteWebsocketConnection):
    """Without a kernel and a browser behind it."""

    def __init__(self, retry: int) -> None:
        self.retry = retry
        self.closed: list[tuple[int, str]] = []
        close = lambda code, reason: self.closed.append((code, reason))  # noqa: E731
        self.__dict__["handler"] = SimpleNamespace(close=close, settings={})

    websocket_handler = property(lambda self: self.__dict__["handler"])
    log = logging.getLogger(__name__)  # type: ignore[assignment]
    kernel_id = "k"
    disconnected = False  # type: ignore[assignment]


def refusal(code: int, body: bytes) -> HTTPClientError:
    return HTTPClientError(code, "no", SimpleNamespace(body=body))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "tries", "want"),
    [
        (refusal(403, b'{"message": "%s"}' % WORDS.encode()), 0, [(1008, WORDS)]),
        (refusal(403, b"<html>"), 0, [(1008, "the gateway refuses this kernel")]),
        (refusal(503, b"{}"), 0, []),
        (ConnectionRefusedError(), 4, []),
        (ConnectionRefusedError(), 5, [(1013, "the gateway does not answer: open it again when it is back")]),
        (refusal(429, b'{"message": "too often"}'), 5, [(1013, "too often")]),
    ],
)
def test_a_refusal_and_the_last_loss_end_the_browsers_socket_and_a_loss_before_is_tried_again(
    error: Exception, tries: int, want: list[tuple[int, str]]
) -> None:
    async def scenario() -> Refused:
        handshake: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        handshake.set_exception(error)
        connection = Refused(tries)
        connection._connection_done(handshake)
        return connection

    connection = asyncio.run(scenario())
    assert (connection.closed, connection.disconnected) == (want, bool(want))


@pytest.mark.parametrize("reason", ["short", "é" * 100, "x" * 123, "x" * 124])
def test_a_reason_fits_the_last_frame(reason: str) -> None:
    told = fitting(reason)
    assert len(told.encode()) <= 123
    assert told == reason or (told.endswith("…") and reason.startswith(told[:-1]))


def test_a_page_that_comes_again_at_once_is_refused_before_its_socket_opens_and_asks_anew_later() -> None:
    """It would come without end: a socket that opened and was closed is a success to it."""
    seconds = [0.0]
    refusals = Refusals(lambda: seconds[0])
    refusals.check("k")
    refusals.note("k", 403, "100% no")
    refusals.check("other")
    with pytest.raises(HTTPError) as refused:
        refusals.check("k")
    assert (refused.value.status_code, refused.value.log_message) == (403, "100%% no")
    seconds[0] = 10.0
    refusals.check("k")

    async def scenario() -> Refused:
        handshake: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        handshake.set_exception(refusal(404, b'{"message": "gone"}'))
        connection = Refused(0)
        connection._connection_done(handshake)
        return connection

    with pytest.raises(HTTPError, match="gone"):
        asyncio.run(scenario()).websocket_handler.settings[SETTING].check("k")
