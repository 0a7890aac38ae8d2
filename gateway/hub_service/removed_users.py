"""The users that the Hub has removed: it tells none, so its list of users is read.

While the Hub does not answer, or shows this gateway only a part of its users, no user counts as removed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any, Protocol

from jupyter_aliquot.gateway.base.jupyter_private import hub_answer

_LISTED = {"Accept": "application/jupyterhub-pagination+json"}
# With a filter, such as list:users!group=vision, the Hub lists a part of its users alone.
_SEES_ALL = "list:users"


class UserList(Protocol):
    """The list of the Hub's users. Its methods raise the errors of the Hub's client."""

    async def is_whole(self) -> bool:
        """Return whether the Hub lists all of its users for this gateway."""
        ...

    async def names(self) -> frozenset[str]:
        """Return the names of the users that the Hub lists."""
        ...


class HubUserList:
    """The Hub's list, asked with the service's own token. Needs the scope of hub/scopes.py."""

    def __init__(self, hub: Any) -> None:
        self._hub = hub

    async def is_whole(self) -> bool:
        """Return whether the Hub lists all of its users for this gateway."""
        own = await self._ask("user")
        return _SEES_ALL in own.get("scopes", ())

    async def names(self) -> frozenset[str]:
        """Return the names of the users that the Hub lists. A page may be of some hundred."""
        found: set[str] = set()
        offset: int | None = 0
        while offset is not None:
            answer = await self._ask(f"users?offset={offset}", **_LISTED)
            found.update(user["name"] for user in answer["items"])
            following = answer["_pagination"].get("next")
            offset = following["offset"] if following and following["offset"] > offset else None
        return frozenset(found)

    async def _ask(self, path: str, **headers: str) -> Any:
        return await hub_answer(self._hub, f"{self._hub.api_url}/{path}", headers)


async def removed_among(names: Collection[str], users: UserList, log: logging.Logger) -> frozenset[str]:
    """Return those of *names*, which all were users of the Hub, that the Hub has no more."""
    if not names:
        return frozenset()
    try:
        if not await users.is_whole():
            log.info("removed_users=unknown reason=the service has no scope %s", _SEES_ALL)
            return frozenset()
        return frozenset(names) - await users.names()
    except Exception as error:
        # The client raises many errors while the Hub is away; each of them may pass.
        log.warning("removed_users=unknown reason=%s", error)
        return frozenset()
