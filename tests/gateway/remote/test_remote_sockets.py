"""Messages to a browser about a kernel that the gateway no longer gives to its user."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_server.gateway.gateway_client import GatewayClient
from tornado.httpclient import HTTPClientError
from tornado.web import HTTPError
from tornado.websocket import WebSocketClosedError

from jupyter_aliquot.gateway.limits.websocket import fitting
from jupyter_aliquot.gateway.remote.channels import SETTING, Refusals, RemoteWebsocketConnection

WORDS = "JupyterHub does not know this token"


class Scripted(RemoteWebsocketConnection):
    """A connection without a kernel and a browser behind it.

    Each try meets the next of ``answers``, the last one for ever.
    """

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers
        self.closed: list[tuple[int, str]] = []
        close = lambda code, reason: self.closed.append((code, reason))  # noqa: E731
        self.__dict__["handler"] = SimpleNamespace(close=close, settings={})

    websocket_handler = property(lambda self: self.__dict__["handler"])
    log = logging.getLogger(__name__)  # type: ignore[assignment]
    kernel_id = "k"
    session_id = "s"
    disconnected = False  # type: ignore[assignment]
    ws: Any = None

    async def _dial(self) -> Any:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Opened:
    """A websocket of the gateway, closed with this code and this reason."""

    def __init__(self, code: int | None = None, reason: str | None = None) -> None:
        self.close_code, self.close_reason = code, reason
        self.sent: list[str] = []

    async def read_message(self) -> None:
        return None

    def write_message(self, message: str, binary: bool) -> Future[None]:
        if self.close_code is not None:
            raise WebSocketClosedError
        self.sent.append(message)
        written = Future[None]()
        written.set_result(None)
        return written

    def close(self) -> None:
        self.close_code = 1000


def refusal(code: int, body: bytes) -> HTTPClientError:
    return HTTPClientError(code, "no", SimpleNamespace(body=body))  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a gateway client that tries again at once, for a hundredth of a second."""
    client = SimpleNamespace(gateway_retry_interval=0.0005, gateway_retry_interval_max=0.01, gateway_retry_max=4)
    monkeypatch.setattr(GatewayClient, "instance", lambda: client)


def test_a_socket_opens_once_the_gateways_does_and_one_that_is_away_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GatewayClient.instance(), "gateway_retry_max", 1000)
    opened = Opened()
    connection = Scripted([ConnectionRefusedError(), refusal(503, b"{}"), opened])
    asyncio.run(connection.prepare())
    assert (connection.ws, connection.closed) == (opened, [])


@pytest.mark.parametrize(
    ("error", "want"),
    [
        (ConnectionRefusedError(), "the gateway does not answer: wait until it is back"),
        (refusal(429, b'{"message": "too often"}'), "too often"),
    ],
)
def test_a_gateway_that_stays_away_refuses_the_socket_so_that_the_page_keeps_what_it_has_to_say(
    error: Exception, want: str
) -> None:
    with pytest.raises(HTTPError) as refused:
        asyncio.run(Scripted([error]).prepare())
    assert (refused.value.status_code, refused.value.log_message) == (503, want)


@pytest.mark.parametrize(
    ("body", "want"), [(b'{"message": "%s"}' % WORDS.encode(), WORDS), (b"<html>", "the gateway refuses this kernel")]
)
def test_a_final_refusal_opens_the_socket_to_say_so(body: bytes, want: str) -> None:
    async def scenario() -> Scripted:
        connection = Scripted([refusal(403, body)])
        await connection.prepare()
        await connection.connect()
        return connection

    connection = asyncio.run(scenario())
    assert (connection.closed, connection.disconnected) == ([(1008, want)], True)


@pytest.mark.parametrize(
    ("code", "reason", "want"),
    [
        (1008, WORDS, (1008, WORDS)),
        (1013, "what you may do has changed", (1013, "what you may do has changed")),
        (1006, None, (1013, "the gateway does not answer: wait until it is back")),
        (1001, "going", (1013, "going")),
        (None, None, (1013, "the gateway does not answer: wait until it is back")),
    ],
)
def test_the_browsers_socket_ends_with_the_gateways_in_its_words_and_so_that_the_page_comes_again(
    code: int | None, reason: str | None, want: tuple[int, str]
) -> None:
    async def scenario() -> Scripted:
        connection = Scripted([Opened(code, reason)])
        await connection.prepare()
        await connection.connect()
        assert connection._reader is not None
        await connection._reader
        return connection

    assert asyncio.run(scenario()).closed == [want]


def test_what_cannot_be_sent_any_more_ends_the_socket_and_is_not_dropped_in_silence() -> None:
    connection = Scripted([Opened()])
    asyncio.run(connection.prepare())
    connection.handle_incoming_message("first")
    assert (connection.ws.sent, connection.closed) == (["first"], [])
    connection.ws.close_code = 1006
    connection.handle_incoming_message("second")
    assert [code for code, _ in connection.closed] == [1013]


def test_nobody_goes_on_trying_for_a_browser_that_has_left() -> None:
    connection = Scripted([ConnectionRefusedError()])
    connection.disconnect()
    with pytest.raises(HTTPError, match="has left"):
        asyncio.run(connection.prepare())


@pytest.mark.parametrize("reason", ["short", "é" * 100, "x" * 123, "x" * 124])
def test_a_reason_fits_the_last_frame(reason: str) -> None:
    told = fitting(reason)
    assert len(told.encode()) <= 123
    assert told == reason or (told.endswith("…") and reason.startswith(told[:-1]))


def test_a_page_that_comes_again_at_once_is_refused_before_its_socket_opens_and_asks_anew_later() -> None:
    """Refuse the page before its socket opens.

    It would come without end otherwise: a socket that opened and was closed is a success to it.
    """
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

    connection = Scripted([refusal(404, b'{"message": "gone"}')])
    asyncio.run(connection.prepare())
    with pytest.raises(HTTPError, match="gone"):
        connection.websocket_handler.settings[SETTING].check("k")
