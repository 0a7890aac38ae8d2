"""The check before each connection of a server in gateway mode, which carries its user's token."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from jupyter_server.gateway.gateway_client import GatewayClient
from tornado.netutil import Resolver
from tornado.web import HTTPError

from jupyter_aliquot.provisioner.listener import ACCOUNT_VARIABLE, ListenerError, account_in, check_listener

_AWAY = 503


class UntrustedGatewayError(HTTPError):
    """The gateway's address is not the gateway's just now. Its message is for the user."""

    def __init__(self, message: str) -> None:
        super().__init__(_AWAY, "%s", message)
        self.words = message


def guard_token(client: GatewayClient, environ: Mapping[str, str]) -> None:
    """Have *client* check the listener at the gateway's address before each of its requests.

    Every request of Jupyter's gateway mode, and of Aliquot's, takes its headers from
    ``load_connection_args``; it raises UntrustedGatewayError then. A request that is sent again, or
    that waits for others, connects later: each connection is checked as well.
    """
    load = client.load_connection_args

    def check() -> None:
        try:
            account = account_in(environ)
            if account is not None:
                check_listener(client.url or "", account)
        except ListenerError as error:
            raise UntrustedGatewayError(f"the gateway: {error}") from error

    def checked(**arguments: Any) -> Any:
        check()
        return load(**arguments)  # type: ignore[no-untyped-call]  # Jupyter Server gives it no types

    client.load_connection_args = checked  # type: ignore[method-assign]
    if not environ.get(ACCOUNT_VARIABLE):
        return
    found: Any = Resolver.configured_class()

    class CheckedResolver(found):  # type: ignore[misc]  # a class that is chosen when it runs
        """Names' addresses, which Tornado's clients ask for as the last before they connect."""

        async def resolve(
            self, host: str, port: int, family: socket.AddressFamily = socket.AF_UNSPEC
        ) -> list[tuple[int, Any]]:
            addresses: list[tuple[int, Any]] = await super().resolve(host, port, family)
            if (host, port) == _place(client.url or ""):
                check()
            return addresses

    Resolver.configure(CheckedResolver)


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
