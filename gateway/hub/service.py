"""The gateway as a service of the Hub: its entry, its scopes, and users' servers' environment.

Values only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

from jupyter_aliquot.provisioner.listener import ACCOUNT_VARIABLE

from .accounts import is_reserved, with_right_to_listen
from .gateways import Gateways
from .scopes import ADMIN_SCOPE, SERVER_SCOPES, server_scopes
from .settings import HubConfigError, HubSettings
from .tokens import gateway_token

_START_SECONDS = 120
_AWAY_SECONDS = 2
_LOOPBACK = ("localhost", "127.", "::1")
_FOLDERS_OF_RELAYS = ("ALIQUOT_RUNTIME_DIR", "ALIQUOT_SPILL_DIR")


def service_entry(settings: HubSettings, *, is_one_of_several: bool = False) -> dict[str, Any]:
    """An entry of `c.JupyterHub.services`.

    A Hub with several gateways does not wait at its start for those on other machines: the spawn page
    tells which are down.
    """
    entry: dict[str, Any] = {"name": settings.name, "url": settings.url, "display": False}
    # A browser's login with it makes an administrator; the Hub drops it for all other users.
    entry["oauth_client_allowed_scopes"] = [ADMIN_SCOPE]
    if settings.is_managed:
        # A Hub that is killed leaves its services, whose ports the next one needs.
        command = [*settings.command(), f"--end-with-parent={os.getpid()}"]
        entry |= {"command": command, "environment": dict(settings.gateway_environment), "cwd": settings.home()}
        entry |= _patience(_START_SECONDS)
        if settings.gateway_user and is_reserved(settings.url):
            entry["command"] = [*with_right_to_listen(settings.account()), *command]
        elif settings.gateway_user:
            entry["user"] = settings.gateway_user
    else:
        entry["api_token"] = settings.api_token
        entry |= _patience(_AWAY_SECONDS) if is_one_of_several else {}
    return entry


def relay_host_entry(settings: HubSettings) -> dict[str, Any]:
    """An entry of `c.JupyterHub.services` for the relay host, the one process of Aliquot that root runs.

    A Hub that is killed leaves its services: this one ends with it, and its relays live on.
    """
    command = [*settings.relay_host_command(), f"--end-with-parent={os.getpid()}"]
    folders = {name: text for name, text in settings.gateway_environment.items() if name in _FOLDERS_OF_RELAYS}
    return {"name": f"{settings.name}-relay", "command": command, "environment": folders, "cwd": "/", "display": False}


def _patience(seconds: int) -> dict[str, int]:
    """Return for how long a Hub that starts waits for a service: known since Hub 6.

    A Hub that cannot reach a service it started ends, and one on a busy machine takes a while.
    """
    from jupyterhub.services.service import Service  # type: ignore[import-untyped]  # it carries no types

    return {"timeout": seconds} if Service.class_traits().get("timeout") else {}


def server_environment(gateways: Gateways) -> dict[str, Any]:
    """Return the environment for Jupyter Server's gateway mode.

    The Hub calls the functions in it at each start. The token expires with the server, and the
    gateway asks the Hub for its user.
    """

    def gateway_url(spawner: Any) -> str:
        settings = gateways.settings_for(spawner)
        return address_of(settings, settings.connect_url or settings.url, spawner)

    def account(spawner: Any) -> str:
        settings = gateways.settings_for(spawner)
        return str(settings.account_id()) if settings.is_managed else ""

    told: dict[str, Any] = {
        "JUPYTER_GATEWAY_URL": gateway_url,
        "JUPYTER_GATEWAY_AUTH_TOKEN": gateway_token(gateways.service_of),
        "JUPYTER_GATEWAY_AUTH_SCHEME": "token",
    }
    managed = [gateway.settings for gateway in gateways.each if gateway.settings.is_managed]
    if managed:  # a server checks the addresses of its own machine alone
        told[ACCOUNT_VARIABLE] = account if gateways.are_named else str(managed[0].account_id())
    return told


def address_of(settings: HubSettings, origin: str, spawner: Any) -> str:
    """Return the gateway's address below *origin*.

    The Hub's base URL may be set later in the file, or on the command line: only its process knows it.
    """
    base = spawner.hub.base_url.rstrip("/").removesuffix("hub")
    return f"{origin.rstrip('/')}{base}services/{settings.name}"


def server_token_scopes(services: Iterable[str]) -> Callable[[Any], Any]:
    """Return the function that adds our scopes to those that are set.

    They are a list, a function of the spawner, or None.
    """
    ours = server_scopes(*services)

    def make(found: Any) -> Any:
        if not callable(found):
            return list(dict.fromkeys([*(found or SERVER_SCOPES), *ours]))

        async def scopes(spawner: Any) -> list[str]:
            theirs = found(spawner)
            if hasattr(theirs, "__await__"):
                theirs = await theirs
            return list(dict.fromkeys([*(theirs or SERVER_SCOPES), *ours]))

        return scopes

    return make


def check_command(settings: HubSettings, spawner: str, has_command: bool) -> None:
    """Refuse a KubeSpawner that would drop the argument that ends kernels with their server.

    Raises HubConfigError. Without the argument a deleted pod leaves its kernels, as is the default.
    """
    if "kube" in spawner.lower() and settings.keep_kernels == "never" and not has_command:
        raise HubConfigError(
            "configure(keep_kernels='never'): KubeSpawner passes arguments to a server only with a command. Set "
            "c.KubeSpawner.cmd = ['jupyterhub-singleuser']"
        )


def check_internal_tls(settings: HubSettings, is_on: bool) -> None:
    """Refuse TLS by the Hub's own authorities where they do not trust each other.

    Raises HubConfigError.
    """
    if is_on and settings.url.startswith("https:"):
        raise HubConfigError(
            f"c.JupyterHub.internal_ssl, and configure(url={settings.url!r}): the Hub's proxy then trusts its own "
            "authorities alone, and those of servers and services not each other. Let the gateway listen at an http:// "
            "address that does not leave the machine, or use certificates of your own instead of internal_ssl"
        )


def check_reach(settings: HubSettings, spawner: str) -> None:
    """Refuse a loopback address for servers that run in containers. Raises HubConfigError."""
    host = urlsplit(settings.connect_url or settings.url).hostname or ""
    if any(word in spawner.lower() for word in ("docker", "kube", "swarm")) and host.startswith(_LOOPBACK):
        raise HubConfigError(
            f"Users' servers run in containers ({spawner}), where {settings.connect_url or settings.url} is the "
            "container itself. Let the gateway listen where they reach it (configure(url='http://0.0.0.0:8890')) and "
            "give its address (connect_url='http://the-hubs-name:8890')"
        )
    if host in ("0.0.0.0", "::"):
        raise HubConfigError(
            f"{settings.connect_url or settings.url} is an address to listen at, not to connect to. "
            "Give the address at which users' servers reach the gateway (configure(connect_url='http://the-hubs-name:8890'))"
        )
