"""Which of the Hub's users have a server, asked from time to time: for kernels that are to end after it has gone.

It ends nothing. While the Hub does not answer nobody's server counts as gone.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aliquot.gateway.clock import Clock
from aliquot.gateway.culling import Policy
from aliquot.gateway.recurring import Recurring
from traitlets import TraitError

# Names of the users who have a server that runs, starts or stops. Raises whatever the Hub's absence raises.
AskServers = Callable[[], Awaitable[frozenset[str]]]

LOOK_SECONDS = 30.0
_LISTED = {"Accept": "application/jupyterhub-pagination+json"}


def ask_hub(provider: Any) -> AskServers | None:
    """The question to the Hub whose service this gateway is; None where it is none. Needs the scopes of hub/scopes.py.

    Asked with the service's own token: no user has to be there.
    """
    hub = getattr(provider, "hub_auth", None)
    if hub is None:
        return None

    async def ask() -> frozenset[str]:
        names: set[str] = set()
        offset: int | None = 0
        while offset is not None:
            url = f"{hub.api_url}/users?state=active&offset={offset}"
            answer = await hub._api_request("GET", url, headers=dict(_LISTED))
            names.update(user["name"] for user in answer["items"])
            following = answer["_pagination"].get("next")
            offset = following["offset"] if following and following["offset"] > offset else None
        return frozenset(names)

    return ask


class HubServers:
    """Made by the extension. Times are of when it was first seen, so a restart of the gateway begins them anew."""

    def __init__(self, ask: AskServers, clock: Clock, log: logging.Logger, look_seconds: float = LOOK_SECONDS) -> None:
        self._ask = ask
        self._clock = clock
        self._log = log
        self._looks = Recurring("hub-servers", self.look, look_seconds, clock, log)
        self._present: frozenset[str] | None = None
        self._gone: dict[str, float] = {}

    def gone_since(self, user: str) -> float | None:
        """Called by the culler, of owners of kernels: so only they are remembered."""
        if self._present is None:
            return None
        if user in self._present:
            self._gone.pop(user, None)
            return None
        return self._gone.setdefault(user, self._clock.wall())

    async def look(self) -> None:
        """Once."""
        try:
            self._present = await self._ask()
        except Exception as error:
            # The client has many ways to say that the Hub is away; each of them may pass.
            self._log.warning("hub_servers=unknown reason=%s", error)
            self._present = None

    def start(self) -> None:
        """Look from time to time, in the background."""
        self._looks.start()

    async def stop(self) -> None:
        """Idempotent."""
        await self._looks.stop()


def hub_servers(provider: Any, policy: Policy, clock: Clock, log: logging.Logger) -> HubServers | None:
    """What the culler needs for the policy; None where it needs nothing of a Hub. Raises TraitError without a Hub."""
    if not policy.server_gone:
        return None
    ask = ask_hub(provider)
    if ask is None:
        raise TraitError(
            f"c.Culling.server_gone_seconds: asked {policy.server_gone:g}; this gateway is no service of a JupyterHub "
            "and knows nobody's servers. Start it with --hub, or set c.Culling.idle_seconds"
        )
    return HubServers(ask, clock, log, min(LOOK_SECONDS, max(1.0, policy.server_gone / 4)))
