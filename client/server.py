"""The server that a client talks to: its address, the token, and the check of its certificate."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

from jupyter_aliquot.provisioner.listener import ListenerError, account_in, check_listener

from .errors import ClientError, NoAnswerError

_WEBSOCKET_SCHEMES = {"http": "ws", "https": "wss"}


@dataclass(frozen=True)
class Server:
    """A gateway, a user's server in gateway mode, or a service of a JupyterHub.

    Attributes:
        url: The address with the base URL, such as ``https://hub.example/services/aliquot/``.
        token: The server's token, a user's, or one of JupyterHub; empty for none.
        ca_certs: A PEM file of the authorities to trust; empty for the system's.
        client_cert: A PEM file with the certificate that a server with client certificates wants.
        client_key: The PEM file of its key; empty if `client_cert` has it.
        timeout_seconds: The longest wait for one answer.
        account: The number of the account that must listen at a loopback address (or root) before the
            token is sent there; None for any account.
    """

    url: str
    token: str = field(default="", repr=False)
    ca_certs: str = ""
    client_cert: str = ""
    client_key: str = ""
    timeout_seconds: float = 30.0
    account: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Check the address and the token. Raises ClientError."""
        if not _is_address(self.url):
            raise ClientError(
                f"Requested the server {_without_secrets(self.url)!r}, but an address has the form "
                "http://HOST:PORT/BASE/ or https://…, without a query and without a password. Pass what a "
                "browser opens, up to the base URL"
            )
        if not (self.token.isascii() and self.token.isprintable()) or self.token != self.token.strip():
            raise ClientError(
                "The token has characters that no header can carry. Pass it exactly as the server printed it"
            )

    def address(self, path: str, query: tuple[tuple[str, str], ...] = ()) -> str:
        """Return the address of a path below the base URL."""
        return f"{self.url.rstrip('/')}/{path}" + (f"?{urlencode(query)}" if query else "")

    def websocket_address(self, path: str, query: tuple[tuple[str, str], ...] = ()) -> str:
        """Return the address of a websocket below the base URL."""
        scheme, _, rest = self.address(path, query).partition("://")
        return f"{_WEBSOCKET_SCHEMES[scheme]}://{rest}"

    def headers(self) -> Mapping[str, str]:
        """Return the headers of each request."""
        return {"Authorization": f"token {self.token}"} if self.token else {}

    def check_listener(self) -> None:
        """Check that a token may be sent now. Raises NoAnswerError.

        Any account of a machine can take a port that its server has left.
        """
        if self.account is None:
            return
        try:
            check_listener(self.url, self.account)
        except ListenerError as error:
            raise NoAnswerError(f"Nothing was sent: {error}") from error

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS context for https; None for http. Raises ClientError for unusable files."""
        if not self.url.startswith("https:"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_certs or None)
            if self.client_cert:
                context.load_cert_chain(self.client_cert, self.client_key or None)
        except OSError as error:
            raise ClientError(
                f"The certificates cannot be used: {error}, with ca_certs={self.ca_certs!r}, "
                f"client_cert={self.client_cert!r} and client_key={self.client_key!r}. Pass PEM files that you may read"
            ) from error
        return context


def find_server(environ: Mapping[str, str]) -> Server:
    """Return the server that Jupyter's variables name, as `aliquot status` chooses it.

    On a Hub the user's own server comes first: it knows its notebooks' names, and forwards to the
    gateway. An own address without a host, as of a server that listens at all of its addresses, gives
    way to the gateway's. The token goes only to a listener of this account, or of the gateway's that
    ALIQUOT_GATEWAY_ACCOUNT names, or of root. Raises ClientError where no variable names a server.
    """
    gateway, is_of_hub = environ.get("JUPYTER_GATEWAY_URL", ""), bool(environ.get("JUPYTERHUB_USER"))
    own, own_token = environ.get("JUPYTERHUB_SERVICE_URL", ""), environ.get("JUPYTERHUB_API_TOKEN", "")
    if is_of_hub and own and own_token and (_is_address(own) or not gateway):
        return Server(own, own_token, account=os.geteuid())
    if gateway:
        return Server(
            gateway,
            environ.get("JUPYTER_GATEWAY_AUTH_TOKEN", ""),
            ca_certs=environ.get("JUPYTER_GATEWAY_CA_CERTS", ""),
            client_cert=environ.get("JUPYTER_GATEWAY_CLIENT_CERT", ""),
            client_key=environ.get("JUPYTER_GATEWAY_CLIENT_KEY", ""),
            account=_gateway_account(environ),
        )
    raise ClientError(
        "No server is named. Set JUPYTER_GATEWAY_URL to the address of a gateway or of your Jupyter server, and "
        "JUPYTER_GATEWAY_AUTH_TOKEN to a token for it"
    )


def _gateway_account(environ: Mapping[str, str]) -> int | None:
    try:
        return account_in(environ)
    except ListenerError as error:
        raise ClientError(str(error)) from error


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError for one that is no number
    except ValueError:
        return False
    is_plain = url.isprintable() and " " not in url and not parts.query and not parts.fragment
    return is_plain and parts.scheme in _WEBSOCKET_SCHEMES and bool(parts.hostname) and parts.username is None


def _without_secrets(url: str) -> str:
    """Return what an error may repeat of an address: its scheme, host and path."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "…"
    # An "@" may follow a password, also in a path that was meant as a host.
    is_plain = parts.scheme in _WEBSOCKET_SCHEMES and bool(parts.hostname) and "@" not in parts.path
    return f"{parts.scheme}://{parts.hostname}{parts.path}" if is_plain else "…"
