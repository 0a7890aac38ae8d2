"""REST requests of the commands to a gateway, and the choice of that gateway.

Jupyter's own variables name it, as in the terminals of a server in gateway mode. Without them it is
the gateway of this machine: gateway.lock has its pid, and the file in which a Jupyter server tells
its user its address and token has the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar

from jupyter_core.paths import jupyter_runtime_dir

from jupyter_aliquot.gpu_hook.paths import RuntimeDir, find_runtime_dir
from jupyter_aliquot.provisioner.addresses import address_problem, is_of_tls, scheme_problem
from jupyter_aliquot.provisioner.errors import AliquotError
from jupyter_aliquot.provisioner.listener import ListenerError, account_in, check_listener

from .tables import printable

_ANSWER_SECONDS = 15.0
# A kernel gets time to end by itself.
_END_SECONDS = 60.0
_Answer = TypeVar("_Answer")
# The answers of Jupyter to an unknown token: 403, or 401.
_UNAUTHORIZED = (401, 403)
_NO_WORDS = ("", "Forbidden", "Unauthorized")
_TOKEN_VARIABLE = "JUPYTER_GATEWAY_AUTH_TOKEN"
_CROSS_SITE = "_xsrf"  # in the answer to a request that might be forged; Jupyter lets one with a token pass


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirect.

    The token must not reach another address, such as a login page.
    """

    def redirect_request(self, *args: Any) -> None:
        """Refuse the redirect. Called by urllib, which would send all headers there."""


class NoGatewayHere(AliquotError):
    """The error of a command that can reach no gateway."""


class GatewayRefusal(AliquotError):
    """The gateway refused the request; the message is the gateway's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Tls:
    """The certificate check of a gateway, and the client certificate.

    The fields have Jupyter's names.
    """

    ca_certs: str = ""
    client_cert: str = ""
    client_key: str = ""
    is_checked: bool = True

    @classmethod
    def named_in(cls, environ: Mapping[str, str]) -> Tls:
        """Read Jupyter's variables."""
        return cls(
            environ.get("JUPYTER_GATEWAY_CA_CERTS", ""),
            environ.get("JUPYTER_GATEWAY_CLIENT_CERT", ""),
            environ.get("JUPYTER_GATEWAY_CLIENT_KEY", ""),
            environ.get("JUPYTER_GATEWAY_VALIDATE_CERT", "") not in ("no", "false"),
        )

    def context(self) -> ssl.SSLContext:
        """Make the TLS context. Raises NoGatewayHere for files that cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca_certs or None)
            if self.client_cert:
                context.load_cert_chain(self.client_cert, self.client_key or None)
        except OSError as error:
            raise NoGatewayHere(
                f"The gateway cannot be reached: {error}, with JUPYTER_GATEWAY_CA_CERTS={self.ca_certs!r}, "
                f"JUPYTER_GATEWAY_CLIENT_CERT={self.client_cert!r} and JUPYTER_GATEWAY_CLIENT_KEY={self.client_key!r}. "
                "Set them to files in PEM format that you may read"
            ) from error
        if not self.is_checked:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


@dataclass(frozen=True)
class OwnGateway:
    """The address of a gateway or server, and the credentials for it."""

    url: str
    # Empty for none: the request goes without credentials.
    token: str = field(repr=False)
    # Where the token and the address came from, for error messages.
    origin: str = field(default="of its server's file", compare=False)
    address_origin: str = field(default="", compare=False)
    scheme: str = "token"
    tls: Tls = field(default_factory=Tls)
    # Who must listen at a loopback address before the token is sent there; None: any account.
    account: int | None = field(default=None, compare=False)

    @classmethod
    def find(cls, runtime: RuntimeDir, servers: Path | None = None) -> OwnGateway:
        """Find the gateway of this machine. Raises NoGatewayHere."""
        try:
            pid = int(runtime.gateway_lock.read_text().strip())
            folder = Path(jupyter_runtime_dir()) if servers is None else servers
            path = folder / f"jpserver-{pid}.json"
            server = json.loads(path.read_text(encoding="utf-8"))
            # A killed server leaves its file, and its port to any account.
            return cls(str(server["url"]), str(server["token"]), f"of {path}", str(path), account=os.geteuid())
        except (OSError, ValueError, KeyError, TypeError) as error:
            found = f"{runtime.path}: {error}"
            if isinstance(error, FileNotFoundError):
                found = f"there is no {error.filename}"
            raise NoGatewayHere(
                f"no gateway of yours is found: {found}. Start aliquot lab, or set JUPYTER_GATEWAY_URL to the address "
                "of one and JUPYTER_GATEWAY_AUTH_TOKEN to a token of yours"
            ) from error

    @classmethod
    def elsewhere(cls, environ: Mapping[str, str]) -> tuple[OwnGateway, ...]:
        """Return the servers that Jupyter's variables name, in the order to try.

        It is empty without the variables. In a Hub the user's server comes first: it knows its
        notebooks' names, and forwards to the gateway.
        """
        if not environ.get("JUPYTER_GATEWAY_URL"):
            return ()
        scheme = environ.get("JUPYTER_GATEWAY_AUTH_SCHEME") or "token"
        found = []
        own = cls._named(environ, "JUPYTERHUB_SERVICE_URL", "JUPYTERHUB_API_TOKEN")
        if environ.get("JUPYTERHUB_USER") and own.url and own.token:
            found.append(replace(own, account=os.geteuid()))
        gateway = cls._named(environ, "JUPYTER_GATEWAY_URL", _TOKEN_VARIABLE)
        account, tls = account_in(environ), Tls.named_in(environ)
        return (*found, replace(gateway, scheme=scheme, tls=tls, account=account))

    @classmethod
    def _named(cls, environ: Mapping[str, str], address: str, secret: str) -> OwnGateway:
        url = environ.get(address, "").rstrip("/")
        return cls(url and f"{url}/", environ.get(secret, ""), f"in {secret}", address)

    def end_kernel(self, kernel_id: str) -> None:
        """End a kernel by Jupyter's own API. Raises GatewayRefusal and NoGatewayHere."""
        self._send(f"api/kernels/{kernel_id}", "DELETE", None, _END_SECONDS)

    def ask(self, path: str, method: str = "GET", body: Any = None, seconds: float = _ANSWER_SECONDS) -> Any:
        """Send a request.

        Returns the answer's JSON, None for an empty one. Raises GatewayRefusal and NoGatewayHere.
        """
        text = self.text(path, method, body, seconds)
        try:
            return json.loads(text) if text else None
        except ValueError as error:
            raise NoGatewayHere(f"the gateway at {self.url} cannot be understood: {error}") from error

    def text(self, path: str, method: str = "GET", body: Any = None, seconds: float = _ANSWER_SECONDS) -> str:
        """Send a request. Returns the answer as text. Raises GatewayRefusal and NoGatewayHere."""
        return self._send(f"aliquot/api/v1/{path}", method, body, seconds)

    def _check_address(self) -> None:
        """Check the address before anything is sent there. Raises NoGatewayHere."""
        if problem := address_problem(self.url):
            raise NoGatewayHere(f"{self.address_origin or 'The address'}: {problem}")
        if not (self.token.isascii() and self.token.isprintable()) or self.token != self.token.strip():
            raise NoGatewayHere(
                f"The token {self.origin} has characters that no header can carry. Set it exactly as the "
                "server printed it"
            )
        try:
            if self.account is not None:
                check_listener(self.url, self.account)
        except ListenerError as error:
            raise NoGatewayHere(f"the gateway: {error}") from error

    def _send(self, path: str, method: str, body: Any, seconds: float) -> str:
        self._check_address()
        request = urllib.request.Request(
            f"{self.url}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **self._credentials()},
            method=method,
        )
        https = [urllib.request.HTTPSHandler(context=self.tls.context())] if self.url.startswith("https:") else []
        # As in Jupyter's own client, the token goes through no proxy that the environment names.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects, *https)
        try:
            with opener.open(request, timeout=seconds) as answer:
                return str(answer.read(), "utf-8")
        except urllib.error.HTTPError as error:
            raise GatewayRefusal(error.code, self._words(error)) from error
        except (OSError, ValueError, HTTPException) as error:  # the last: it ended while it answered
            raise NoGatewayHere(self._problem_of(error)) from error

    def _problem_of(self, error: Exception) -> str:
        """Return why no answer came: the scheme of the address, where that is known to be wrong, or the error."""
        inner = error.reason if isinstance(error, urllib.error.URLError) else error
        may_be_scheme = self.url.startswith("http:") or (isinstance(inner, Exception) and is_of_tls(inner))
        if may_be_scheme and (problem := scheme_problem(self.url)):
            return f"the gateway: {problem}"
        return f"the gateway at {self.url} does not answer: {_reason_of(error)}"

    def _credentials(self) -> dict[str, str]:
        return {"Authorization": f"{self.scheme} {self.token}"} if self.token else {}

    def _words(self, error: urllib.error.HTTPError) -> str:
        try:
            message = str(json.loads(error.read())["message"])
        except (OSError, ValueError, KeyError, TypeError, HTTPException):
            message = ""
        if error.code in _UNAUTHORIZED and not self.token and self.origin == f"in {_TOKEN_VARIABLE}":
            is_change = _CROSS_SITE in message
            more = ". A gateway that has no token takes changes from its own pages alone" if is_change else ""
            return (
                f"The gateway at {self.url} refuses a request without a token ({error.code}), and "
                f"{_TOKEN_VARIABLE} is not set. Set it to a token of yours, as `jupyter server list` or the page "
                f"/hub/token of a JupyterHub shows it{more}"
            )
        if error.code in _UNAUTHORIZED and message in _NO_WORDS:
            return (
                f"The gateway at {self.url} does not know the token {self.origin} ({error.code}). Set "
                f"JUPYTER_GATEWAY_URL to its address and {_TOKEN_VARIABLE} to a token of yours: `jupyter server list` "
                "shows that of a server of your account, and the page /hub/token of a JupyterHub makes one"
            )
        # A quota file may have several errors, a line each.
        return (
            "\n".join(map(printable, message.splitlines()))
            or f"the gateway at {self.url} answered {error.code} {error.reason}"
        )


def _reason_of(error: Exception) -> str:
    """Return the system's words for an error, without those of urllib around them."""
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    words = inner.strerror if isinstance(inner, OSError) and inner.strerror else str(inner)
    return printable(str(words).strip())


@dataclass(frozen=True)
class Gateways:
    """The gateways that a command may use.

    ``elsewhere``: those that Jupyter's variables name, in order.
    """

    runtime: RuntimeDir
    elsewhere: tuple[OwnGateway, ...] = ()

    @classmethod
    def of(cls, runtime_dir: str, environ: Mapping[str, str] = os.environ) -> Gateways:
        """Choose by a command's option.

        A *runtime_dir* names the gateway of that folder; empty leaves it open.
        """
        if runtime_dir:
            return cls(RuntimeDir(Path(runtime_dir).absolute()))
        return cls(find_runtime_dir(), OwnGateway.elsewhere(environ))

    def ask(self, path: str, seconds: float = _ANSWER_SECONDS) -> tuple[OwnGateway, Any]:
        """Return the first gateway that answers, and its JSON.

        Raises the last one's NoGatewayHere or GatewayRefusal.
        """
        return self._first(lambda one: (one, one.ask(path, seconds=seconds)))

    def text(self, path: str, method: str = "GET", body: Mapping[str, Any] | None = None) -> str:
        """Return the text of the first answer.

        Raises the last one's NoGatewayHere or GatewayRefusal.
        """
        return self._first(lambda one: one.text(path, method, None if method == "GET" else body or {}))

    def _first(self, ask: Callable[[OwnGateway], _Answer]) -> _Answer:
        last = self.elsewhere[-1] if self.elsewhere else OwnGateway.find(self.runtime)
        for other in self.elsewhere[:-1]:
            # A user's server may lack Aliquot or not answer: the gateway behind it knows the kernels, too.
            with contextlib.suppress(NoGatewayHere, GatewayRefusal):
                return ask(other)
        return ask(last)
