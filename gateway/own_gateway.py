"""The gateway of this machine, asked over REST by the command line.

It is found by the pid in gateway.lock, and by the file in which a Jupyter server tells its user its address and token.
No gateway, or one that this user may not ask: there is none.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

from aliquot.gpu_hook.paths import RuntimeDir
from aliquot.provisioner.errors import AliquotError
from jupyter_core.paths import jupyter_runtime_dir

_ANSWER_SECONDS = 15.0


class NoGatewayHere(AliquotError):
    """No gateway can be asked."""


class GatewayRefusal(AliquotError):
    """The gateway answered no; the message is its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class OwnGateway:
    """Where it listens, and what it wants to hear."""

    url: str
    token: str

    @classmethod
    def find(cls, runtime: RuntimeDir, servers: Path | None = None) -> OwnGateway:
        """Raises NoGatewayHere."""
        try:
            pid = int(runtime.gateway_lock.read_text().strip())
            folder = Path(jupyter_runtime_dir()) if servers is None else servers
            server = json.loads((folder / f"jpserver-{pid}.json").read_text(encoding="utf-8"))
            return cls(str(server["url"]), str(server["token"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise NoGatewayHere(f"no gateway of yours is found at {runtime.path}: {error}") from error

    @classmethod
    def elsewhere(cls, environ: Mapping[str, str]) -> tuple[OwnGateway, ...]:
        """Whom to ask in a terminal of a server in gateway mode, by Jupyter's own variables; nobody without them.

        In a Hub the user's server comes first: it alone knows its notebooks' names, and asks the gateway for us.
        """
        named = [("JUPYTER_GATEWAY_URL", "JUPYTER_GATEWAY_AUTH_TOKEN")]
        if environ.get("JUPYTERHUB_USER"):
            named.insert(0, ("JUPYTERHUB_SERVICE_URL", "JUPYTERHUB_API_TOKEN"))
        if not environ.get("JUPYTER_GATEWAY_URL"):
            return ()
        found = [(environ.get(url, ""), environ.get(token, "")) for url, token in named]
        return tuple(cls(url.rstrip("/") + "/", token) for url, token in found if url and token)

    def ask(self, path: str, method: str = "GET", body: Any = None, seconds: float = _ANSWER_SECONDS) -> Any:
        """The answer's JSON, None for an empty one. Raises GatewayRefusal, and NoGatewayHere where none answers."""
        text = self.text(path, method, body, seconds)
        try:
            return json.loads(text) if text else None
        except ValueError as error:
            raise NoGatewayHere(f"the gateway at {self.url} cannot be understood: {error}") from error

    def text(self, path: str, method: str = "GET", body: Any = None, seconds: float = _ANSWER_SECONDS) -> str:
        """The answer as it is. Raises likewise."""
        request = urllib.request.Request(
            f"{self.url}aliquot/api/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {self.token}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answer:
                return str(answer.read(), "utf-8")
        except urllib.error.HTTPError as error:
            raise GatewayRefusal(error.code, _message(error)) from error
        except (OSError, ValueError, HTTPException) as error:  # the last: it ended while it answered
            raise NoGatewayHere(f"the gateway at {self.url} does not answer: {error}") from error


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["message"])
    except (OSError, ValueError, KeyError, TypeError, HTTPException):
        return f"the gateway answered {error.code} {error.reason}"
