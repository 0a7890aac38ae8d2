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
_PAGE = 200  # the Hub lists at most so many at once
_READINGS = 5


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

    def __init__(self, hub: Any, page: int = _PAGE) -> None:
        """Read *page* users at once, at least two."""
        self._hub = hub
        self._page = page

    async def is_whole(self) -> bool:
        """Return whether the Hub lists all of its users for this gateway."""
        own = await self._ask("user")
        return _SEES_ALL in own.get("scopes", ())

    async def names(self) -> frozenset[str]:
        """Return the names of the users that the Hub lists.

        Raises RuntimeError if the list changes each time while it is read.
        """
        for _ in range(_READINGS):
            if (found := await self._read()) is not None:
                return found
        raise RuntimeError(f"The Hub's list of users changed in each of {_READINGS} readings. Read it later")

    async def _read(self) -> frozenset[str] | None:
        """Read the list page by page; None if it changed meanwhile.

        The Hub numbers its users anew when one is removed, and a page would leave out another. So each page begins
        with the last user of the page before.
        """
        found: list[str] = []
        offset = 0
        while True:
            answer = await self._ask(f"users?offset={offset}&limit={self._page}", **_LISTED)
            page = [user["name"] for user in answer["items"]]
            if found and page[:1] != found[-1:]:
                return None
            found += page
            if answer["_pagination"].get("next") is None:
                return frozenset(found)
            if len(page) < 2:
                raise RuntimeError("The Hub lists one user a page (c.JupyterHub.api_page_max_limit). Allow two or more")
            offset += len(page) - 1

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
