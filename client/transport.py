"""One HTTP request, and one websocket, by tornado.

tornado is a dependency of Jupyter Server already, and has both: the client adds no package. Its own
client is named, for a program may have configured another one for `AsyncHTTPClient`. Nothing here
repeats a request, and no redirect is followed: the token must reach no other address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tornado.httpclient import HTTPClientError, HTTPRequest, HTTPResponse
from tornado.simple_httpclient import SimpleAsyncHTTPClient
from tornado.websocket import WebSocketClientConnection, WebSocketError, websocket_connect

from jupyter_aliquot.provisioner.addresses import is_of_tls, scheme_problem

from .errors import ClientError, NoAnswerError
from .server import Server

_LARGEST_ANSWER_BYTES = 256 << 20
# A lost peer of a quiet websocket is noticed by its missing pong.
_PING_SECONDS = 20.0
_PONG_SECONDS = 15.0


@dataclass(frozen=True)
class RawAnswer:
    """An answer as it came. Names of headers are in small letters."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    phrase: str = ""


class Transport(Protocol):
    """The way to a server. Raises NoAnswerError."""

    async def send(self, method: str, path: str, query: tuple[tuple[str, str], ...], body: str | None) -> RawAnswer:
        """Return the answer, of any status."""


class HttpTransport:
    """Requests to one server over HTTP."""

    def __init__(self, server: Server) -> None:
        self._server = server
        # Whether the port answered a request: then it speaks the scheme of its address.
        self._has_answered = False

    async def send(self, method: str, path: str, query: tuple[tuple[str, str], ...], body: str | None) -> RawAnswer:
        """Return the answer, of any status.

        Raises NoAnswerError, and ClientError where the port speaks another scheme: trying again does not help.
        """
        server = self._server
        server.check_listener()
        headers = {**server.headers(), "Accept": "application/json, text/plain;q=0.9, */*;q=0.1"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = HTTPRequest(
            server.address(path, query),
            method=method,
            headers=headers,
            body=body,
            allow_nonstandard_methods=True,  # tornado would refuse a POST without a body
            connect_timeout=server.timeout_seconds,
            request_timeout=server.timeout_seconds,
            follow_redirects=False,
            ssl_options=server.tls_context(),
        )
        client = SimpleAsyncHTTPClient(force_instance=True, max_body_size=_LARGEST_ANSWER_BYTES)
        try:
            answer = _raw(await client.fetch(request, raise_error=False))
            self._has_answered = True
            return answer
        except (HTTPClientError, OSError, ValueError) as error:
            await self._check_scheme(error)
            raise NoAnswerError(_no_answer(server, method, path, error)) from error
        finally:
            client.close()

    async def open(self, path: str, query: tuple[tuple[str, str], ...] = ()) -> WebSocketClientConnection | RawAnswer:
        """Open a websocket. Returns the server's answer where it refused. Raises as `send`."""
        server = self._server
        server.check_listener()
        request = HTTPRequest(
            server.websocket_address(path, query),
            headers=dict(server.headers()),
            connect_timeout=server.timeout_seconds,
            request_timeout=server.timeout_seconds,
            follow_redirects=False,
            ssl_options=server.tls_context(),
        )
        try:
            return await websocket_connect(
                request,
                ping_interval=_PING_SECONDS,
                ping_timeout=_PONG_SECONDS,
                max_message_size=_LARGEST_ANSWER_BYTES,
            )
        except HTTPClientError as error:
            if error.response is not None:
                return _raw(error.response)
            await self._check_scheme(error)
            raise NoAnswerError(_no_answer(server, "GET", path, error)) from error
        except (WebSocketError, OSError, ValueError) as error:
            await self._check_scheme(error)
            raise NoAnswerError(_no_answer(server, "GET", path, error)) from error

    async def _check_scheme(self, error: Exception) -> None:
        """Raise ClientError where the port speaks another scheme, of which a request failed with *error*."""
        url = self._server.url
        # tornado tells a connection that ended, or took too long, by an error of its own.
        may_be = url.startswith("http:") or isinstance(error, HTTPClientError) or is_of_tls(error)
        if not self._has_answered and may_be and (problem := await asyncio.to_thread(scheme_problem, url)):
            raise ClientError(problem) from error


def _raw(response: HTTPResponse) -> RawAnswer:
    headers = {name.lower(): value for name, value in response.headers.get_all()}
    return RawAnswer(response.code, response.body or b"", headers, response.reason or "")


def _no_answer(server: Server, method: str, path: str, error: Exception) -> str:
    words = str(error).strip() or type(error).__name__
    return (
        f"Requested {method} {server.address(path)}, but no whole answer came within {server.timeout_seconds:g} s "
        f"({words}). Check that the server runs at this address"
    )
