"""The environment of a service of JupyterHub, read in one function.

It holds the service's secret. Reading removes that from the environment, which kernels of this
account inherit, and from /proc/PID/environ, which they may read.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from jupyter_aliquot.gateway.base.errors import UsageError
from jupyter_aliquot.gateway.hub.scopes import access_scope

_NEEDED = (
    "JUPYTERHUB_API_TOKEN",
    "JUPYTERHUB_API_URL",
    "JUPYTERHUB_SERVICE_NAME",
    "JUPYTERHUB_SERVICE_PREFIX",
    "JUPYTERHUB_SERVICE_URL",
)
_SECRETS = ("JUPYTERHUB_API_TOKEN", "JPY_API_TOKEN")


@dataclass(frozen=True)
class HubService:
    """This gateway as its Hub knows it.

    ``scopes``: a client needs one of them to reach the gateway.

    ``is_secure``: whether the Hub's proxy and users' servers connect by TLS. The files serve
    requests to a Hub that has its internal TLS on, too, where the gateway listens without it.
    """

    name: str
    prefix: str
    ip: str
    port: int
    is_secure: bool
    api_url: str
    api_token: str = field(repr=False)
    scopes: frozenset[str]
    client_id: str
    callback_url: str
    hub_host: str = ""
    hub_prefix: str = "/hub/"
    keyfile: str = ""
    certfile: str = ""
    client_ca: str = ""


def read_hub_service(environment: MutableMapping[str, str]) -> HubService:
    """Return the service that the Hub's variables describe.

    Raises UsageError, which names missing or wrong variables.
    """
    missing = [name for name in _NEEDED if not environment.get(name)]
    if missing:
        raise UsageError(
            f"--hub needs the environment of a service of JupyterHub, but it has no {', '.join(missing)}. A Hub sets "
            "them for the services that it starts itself; for one that you start, set them as the Hub has the service "
            "(docs/reference/hub-identity.md)"
        )
    ip, port = _address(environment["JUPYTERHUB_SERVICE_URL"])
    prefix = f"/{environment['JUPYTERHUB_SERVICE_PREFIX'].strip('/')}/".replace("//", "/")
    name = environment["JUPYTERHUB_SERVICE_NAME"]
    hub_base = environment.get("JUPYTERHUB_BASE_URL") or "/"
    service = HubService(
        name=name,
        prefix=prefix,
        ip=ip,
        port=port,
        is_secure=urlsplit(environment["JUPYTERHUB_SERVICE_URL"]).scheme == "https",
        api_url=_api_url(environment["JUPYTERHUB_API_URL"]),
        api_token=environment["JUPYTERHUB_API_TOKEN"],
        scopes=_scopes(environment, name),
        client_id=environment.get("JUPYTERHUB_CLIENT_ID") or f"service-{name}",
        callback_url=environment.get("JUPYTERHUB_OAUTH_CALLBACK_URL") or f"{prefix}oauth_callback",
        hub_host=environment.get("JUPYTERHUB_HOST", ""),
        hub_prefix=f"{hub_base.rstrip('/')}/hub/",
        keyfile=environment.get("JUPYTERHUB_SSL_KEYFILE", ""),
        certfile=environment.get("JUPYTERHUB_SSL_CERTFILE", ""),
        client_ca=environment.get("JUPYTERHUB_SSL_CLIENT_CA", ""),
    )
    for secret in _SECRETS:
        if environment is os.environ:
            _wipe(secret)
        environment.pop(secret, None)
    return service


def _wipe(name: str) -> None:
    """Overwrite a variable where it was when this process began.

    /proc/PID/environ shows that place, whatever becomes of the variable later.
    """
    find = ctypes.CDLL(None).getenv
    find.restype = ctypes.c_void_p
    if place := find(name.encode()):
        ctypes.memset(place, ord("-"), len(ctypes.string_at(place)))


def _address(url: str) -> tuple[str, int]:
    """Return the address to listen at.

    In a URL without a port the Hub means the scheme's own port.
    """
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https") or port == 0:
        raise UsageError(
            f"--hub: JUPYTERHUB_SERVICE_URL={url!r} is not valid. Use the address to listen at, such as http://127.0.0.1:8890"
        )
    return parts.hostname or "", port or (443 if parts.scheme == "https" else 80)


def _api_url(url: str) -> str:
    if urlsplit(url).scheme not in ("http", "https", "http+unix"):
        raise UsageError(
            f"--hub: JUPYTERHUB_API_URL={url!r} is not valid. Use the Hub's API, such as http://127.0.0.1:8081/hub/api"
        )
    return url.rstrip("/")


def _scopes(environment: Mapping[str, str], name: str) -> frozenset[str]:
    """Read the required scopes; at least one is always required.

    Without one every token of the Hub would be accepted.
    """
    told = environment.get("JUPYTERHUB_OAUTH_ACCESS_SCOPES")
    if not told:
        return frozenset({access_scope(name)})
    try:
        scopes = json.loads(told)
    except ValueError:
        scopes = None
    if not isinstance(scopes, list) or not scopes or not all(isinstance(scope, str) and scope for scope in scopes):
        raise UsageError(f"--hub: JUPYTERHUB_OAUTH_ACCESS_SCOPES={told!r} is not valid. Use a list of scopes, as JSON")
    return frozenset(scopes)
