"""The last answers of the Hub about its users, for owners of kernels without a request.

It decides nothing.

A file in the gateway's folder keeps them, so that a restarted gateway knows the teams of the
kernels' owners.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from pathlib import Path

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gpu_hook.base.files import replace_file

_MOST_PEOPLE = 20_000
# No user of a Hub can have a name that begins so.
_SERVICES = "service/"


def service_name(name: str) -> str:
    """Return the name of a service of the Hub as an owner of kernels."""
    return _SERVICES + name


def is_service(owner: str) -> bool:
    """Return whether this owner is a service, not a user of the Hub."""
    return owner.startswith(_SERVICES)


class HubPeople:
    """Users by name. The user with the oldest answer is forgotten first."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._users: OrderedDict[str, User] = OrderedDict()
        self._file: Path | None = None
        self._is_unsaved = False

    def keep_in(self, file: Path) -> None:
        """Read what an earlier life of this gateway knew, and remember there from now on."""
        self._file = file
        try:
            told = json.loads(file.read_text(encoding="utf-8"))
            earlier = {name: User(name, "user", frozenset(teams)) for name, teams in told.items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, AttributeError, TypeError) as error:
            self._log.warning("hub_people=unreadable file=%s reason=%s", file, error)
            return
        self._users = OrderedDict({**earlier, **self._users})

    def meet(self, user: User) -> None:
        """Remember the Hub's answer about the user of a request."""
        known = self._users.get(user.name)
        self._users[user.name] = user
        self._users.move_to_end(user.name)
        while len(self._users) > _MOST_PEOPLE:
            self._users.popitem(last=False)
        self._is_unsaved |= known is None or known.teams != user.teams

    def named(self, name: str) -> User:
        """Return a user; one without an answer has no teams."""
        return self._users.get(name, User(name, "user"))

    def knows(self, name: str) -> bool:
        """Return whether the Hub has answered about this user."""
        return name in self._users

    def forget(self, name: str) -> None:
        """Forget a user that the Hub has removed. A new one of that name is met anew."""
        self._is_unsaved |= self._users.pop(name, None) is not None

    async def save(self) -> None:
        """Write the changes since the last call: names and teams. The role is asked anew."""
        if self._file is None or not self._is_unsaved:
            return
        # Changes during the write are written next time.
        self._is_unsaved = False
        told = {name: sorted(user.teams) for name, user in self._users.items()}
        if not await asyncio.to_thread(self._write, self._file, told):
            self._is_unsaved = True

    def _write(self, file: Path, told: dict[str, list[str]]) -> bool:
        """Write the file, and return whether that succeeded."""
        try:
            replace_file(file, json.dumps(told))
        except OSError as error:
            self._log.warning("hub_people=unsaved file=%s reason=%s; tried again later", file, error)
            return False
        return True
