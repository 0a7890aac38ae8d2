"""The address of a client behind a Hub's proxy, by the proxy's headers and not by the client's own."""

# mypy: disable-error-code="no-untyped-call"
# tornado's delegates are typed, their context is not.
from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPHeaders, HTTPMessageDelegate, RequestStartLine, ResponseStartLine

# tornado would trust this header before X-Forwarded-For, to which the Hub's proxy adds. The proxy
# passes this one on as it came.
_CLIENTS_OWN = "X-Real-Ip"


def believe_the_proxy(server: HTTPServer, trusted_proxies: Iterable[str]) -> None:
    """Trust the headers of the Hub's proxy, and of *trusted_proxies*, the proxies in front of it."""
    server.trusted_downstream = list(trusted_proxies)
    start = server.start_request

    def start_request(server_conn: object, request_conn: Any) -> HTTPMessageDelegate:
        return _WithoutClientsOwn(start(server_conn, request_conn))

    server.start_request = start_request  # type: ignore[method-assign]  # the server is made by Jupyter, of its own class


class _WithoutClientsOwn(HTTPMessageDelegate):
    """Filter the headers before tornado reads them."""

    def __init__(self, then: HTTPMessageDelegate) -> None:
        self._then = then

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> Awaitable[None] | None:
        """Called by tornado."""
        headers.pop(_CLIENTS_OWN, None)
        return self._then.headers_received(start_line, headers)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Called by tornado."""
        return self._then.data_received(chunk)

    def finish(self) -> None:
        """Called by tornado."""
        self._then.finish()

    def on_connection_close(self) -> None:
        """Called by tornado."""
        self._then.on_connection_close()
