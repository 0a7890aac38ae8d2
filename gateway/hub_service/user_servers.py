"""The servers of the Hub's users, polled, for kernels that are to end after their user's server.

It ends nothing. While the Hub does not answer no server counts as gone. An owner that never had a
server, such as a service of the Hub or a user with only a token, has lost none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Protocol
from urllib.parse import quote

from traitlets import TraitError

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.base.jupyter_private import hub_answer
from jupyter_aliquot.gateway.base.tasks import Recurring
from jupyter_aliquot.gateway.culling.policy import Policy
from jupyter_aliquot.gateway.hub.gateways import SERVER_FIELD

from .user_cache import is_service

REFRESH_SECONDS = 30.0
# The Hub is asked again about users without a known server: one may have come and gone between two
# polls.
ASK_AGAIN_SECONDS = 600.0
_MOST_QUESTIONS = 20  # in one poll
_LISTED = {"Accept": "application/jupyterhub-pagination+json"}


class Questions(Protocol):
    """The questions to the Hub. They raise the errors of its client."""

    async def present(self) -> frozenset[str]:
        """Return the names of users with a server that runs, starts or stops, and uses this gateway."""

    async def had_server(self, user: str) -> bool:
        """Return whether this user ever started a server."""


class HubQuestions:
    """The questions to the Hub, asked with the service's own token, not a user's.

    Needs the scopes of hub/scopes.py. *service* is the name of this gateway: where a Hub has several,
    a server's options name the one that its kernels run on.
    """

    def __init__(self, hub: Any, service: str) -> None:
        self._hub = hub
        self._service = service

    async def present(self) -> frozenset[str]:
        chosen: dict[str, list[str]] = {}
        offset: int | None = 0
        while offset is not None:
            answer = await self._ask(f"users?state=active&offset={offset}", **_LISTED)
            chosen.update((user["name"], _chosen(user)) for user in answer["items"])
            following = answer["_pagination"].get("next")
            offset = following["offset"] if following and following["offset"] > offset else None
        others = await self._others(chosen.values())
        return frozenset(user for user, names in chosen.items() if not names or not others.issuperset(names))

    async def had_server(self, user: str) -> bool:
        answer = await self._ask(f"users/{quote(user, safe='')}?include_stopped_servers=1")
        # A visit of the spawn page creates a server that was never active.
        return any(server.get("last_activity") for server in answer["servers"].values())

    async def _others(self, chosen: Iterable[list[str]]) -> frozenset[str]:
        """Return the other gateways of the Hub among the names that servers' options have.

        The Hub keeps the options of the last start, so a server of a Hub with one gateway may still
        name one that is gone. A name that is none of the Hub's services counts as none.
        """
        names = {name for one in chosen for name in one} - {"", self._service}
        return frozenset(names & (await self._ask("services")).keys()) if names else frozenset()

    async def _ask(self, path: str, **headers: str) -> Any:
        return await hub_answer(self._hub, f"{self._hub.api_url}/{path}", headers)


def _chosen(user: Mapping[str, Any]) -> list[str]:
    """Return what the options of each of a user's servers name as the gateway; empty for nothing."""
    told = [(server.get("user_options") or {}).get(SERVER_FIELD) for server in (user.get("servers") or {}).values()]
    return [name if isinstance(name, str) else "" for name in told]


class HubServers:
    """The poll of users' servers. Made by the extension.

    A server's end counts from the poll that first missed it, so a restart of the gateway begins
    that time anew.
    """

    def __init__(
        self, hub: Questions, clock: Clock, log: logging.Logger, refresh_seconds: float = REFRESH_SECONDS
    ) -> None:
        self._hub = hub
        self._clock = clock
        self._log = log
        self._refreshes = Recurring("hub-servers", self.refresh, refresh_seconds, clock, log)
        self._present: frozenset[str] | None = None
        # Owners of kernels alone: the culler asks about them.
        self._had: set[str] = set()
        self._unknown: set[str] = set()
        self._without: dict[str, float] = {}
        self._gone: dict[str, float] = {}

    def gone_since(self, user: str) -> float | None:
        """Return since when the user has no server; None if one runs, or that is unknown.

        Called by the culler for owners of kernels, so only they are remembered.
        """
        if self._present is None or is_service(user):
            return None
        if user in self._present:
            self._had.add(user)
            self._gone.pop(user, None)
            return None
        if user not in self._had:
            self._unknown.add(user)
            return None
        return self._gone.setdefault(user, self._clock.wall())

    async def refresh(self) -> None:
        """Poll the Hub once."""
        try:
            self._present = await self._hub.present()
            await self._ask_about_unknown()
        except Exception as error:
            # The client raises many errors while the Hub is away; each of them may pass.
            self._log.warning("hub_servers=unknown reason=%s", error)
            self._present = None

    async def _ask_about_unknown(self) -> None:
        now = self._clock.now()
        self._without = {user: until for user, until in self._without.items() if now < until}
        asked, self._unknown = self._unknown - self._without.keys() - self._had, set()
        for user in sorted(asked)[:_MOST_QUESTIONS]:
            try:
                has_had = await self._hub.had_server(user)
            except Exception as error:
                # This happens for a deleted user, too. The answers about the others still count.
                self._log.warning("hub_servers=unknown user=%s reason=%s", user, error)
                has_had = False
            if has_had:
                self._had.add(user)
            else:
                self._without[user] = now + ASK_AGAIN_SECONDS

    def start(self) -> None:
        """Poll the Hub periodically, in the background."""
        self._refreshes.start()

    async def stop(self) -> None:
        """Stop the polling. Idempotent."""
        await self._refreshes.stop()


def hub_servers(provider: Any, policy: Policy, clock: Clock, log: logging.Logger) -> HubServers | None:
    """Return the poll that the culling policy needs; None if the policy needs no Hub.

    Raises TraitError without a Hub.
    """
    if not policy.server_gone:
        return None
    hub = getattr(provider, "hub_auth", None)
    if hub is None:
        raise TraitError(
            f"c.Culling.server_gone_seconds is {policy.server_gone:g}, but this gateway is not a "
            "service of a JupyterHub and knows no user's servers. Start it with --hub, or set "
            "c.Culling.idle_seconds"
        )
    return HubServers(
        HubQuestions(hub, provider.hub.name), clock, log, min(REFRESH_SECONDS, max(1.0, policy.server_gone / 4))
    )
