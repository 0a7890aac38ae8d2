"""The check before each request of a server in gateway mode, which carries its user's token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_server.gateway.gateway_client import GatewayClient
from tornado.web import HTTPError

from jupyter_aliquot.gateway.base.listener import ListenerError, account_in, check_listener

_AWAY = 503


class UntrustedGatewayError(HTTPError):
    """The gateway's address is not the gateway's just now. Its message is for the user."""

    def __init__(self, message: str) -> None:
        super().__init__(_AWAY, "%s", message)
        self.words = message


def guard_token(client: GatewayClient, environ: Mapping[str, str]) -> None:
    """Have *client* check the listener at the gateway's address before each of its requests.

    Every request of Jupyter's gateway mode, and of Aliquot's, takes its headers from
    ``load_connection_args``; it raises UntrustedGatewayError then.
    """
    load = client.load_connection_args

    def checked(**arguments: Any) -> Any:
        try:
            account = account_in(environ)
            if account is not None:
                check_listener(client.url or "", account)
        except ListenerError as error:
            raise UntrustedGatewayError(f"the gateway: {error}") from error
        return load(**arguments)  # type: ignore[no-untyped-call]  # Jupyter Server gives it no types

    client.load_connection_args = checked  # type: ignore[method-assign]
