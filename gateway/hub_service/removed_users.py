"""The users that the Hub has removed: it tells none, so its list of users is read.

While the Hub does not answer, or shows this gateway only a part of its users, no user counts as removed. A user
that it lists no more counts as removed some time later, for a Hub that lost its database lists few until the
administrator has restored it, and nothing brings back what the gateway then took from its users.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any, Protocol

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.base.jupyter_private import hub_answer
from jupyter_aliquot.gpu_hook.base.files import replace_file

_LISTED = {"Accept": "application/jupyterhub-pagination+json"}
# With a filter, such as list:users!group=vision, the Hub lists a part of its users alone.
_SEES_ALL = "list:users"
_PAGE = 200  # the Hub lists at most so many at once
_READINGS = 5
# Without a user in the Hub's list for so long, the user counts as removed. Short, for a new user may get the name.
_REMOVED_SECONDS = 1200.0
# The same while the Hub lists fewer than half of the users: the time to restore its database.
_RESTORED_SECONDS = 86_400.0


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


class RemovedUsers:
    """The users that the Hub's list has lacked, since when, until they count as removed."""

    def __init__(self, clock: Clock, log: logging.Logger) -> None:
        self._clock = clock
        self._log = log
        self._missing: dict[str, float] = {}
        self._file: Path | None = None

    def keep_in(self, file: Path) -> None:
        """Go on from what an earlier life of this gateway saw, and remember there from now on."""
        self._file = file
        try:
            told = json.loads(file.read_text(encoding="utf-8"))
            self._missing = {name: float(since) for name, since in told.items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, AttributeError, TypeError) as error:
            self._log.warning("removed_users=unreadable file=%s reason=%s; they wait anew", file, error)

    async def among(self, names: Collection[str], users: UserList) -> frozenset[str]:
        """Return those of *names*, which all were users of the Hub, that it has removed."""
        missing = await missing_among(names, users, self._log)
        if missing is None:
            return frozenset()
        now, wait = self._clock.wall(), _REMOVED_SECONDS
        if 2 * len(missing) > len(names):
            wait = _RESTORED_SECONDS
            self._log.warning(
                "removed_users=%d of=%d the Hub lists fewer than half of the users; if its database was lost, restore "
                "it within a day, or the gateway takes back what they shared",
                len(missing),
                len(names),
            )
        since = {name: min(self._missing.get(name, now), now) for name in missing}
        removed = frozenset(name for name, first in since.items() if now - first >= wait)
        await self._keep({name: first for name, first in since.items() if name not in removed})
        return removed

    async def _keep(self, missing: dict[str, float]) -> None:
        before, self._missing = self._missing, missing
        if self._file is None or missing == before:
            return
        try:
            await asyncio.to_thread(replace_file, self._file, json.dumps(missing))
        except OSError as error:
            self._log.warning("removed_users=unsaved file=%s reason=%s", self._file, error)


async def missing_among(names: Collection[str], users: UserList, log: logging.Logger) -> frozenset[str] | None:
    """Return those of *names* that the Hub does not list; None if it does not tell."""
    if not names:
        return frozenset()
    try:
        if not await users.is_whole():
            log.info("removed_users=unknown reason=the service has no scope %s", _SEES_ALL)
            return None
        return frozenset(names) - await users.names()
    except Exception as error:
        # The client raises many errors while the Hub is away; each of them may pass.
        log.warning("removed_users=unknown reason=%s", error)
        return None
