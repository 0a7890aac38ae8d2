"""For whom something is: users and teams by name. Reads and answers; knows nobody by itself."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_aliquot.gateway.base.fields import Entry

from .identity import User

EVERYBODY = "*"


@dataclass(frozen=True)
class Audience:
    """Named users and teams; the user ``*`` stands for everybody."""

    users: frozenset[str] = frozenset()
    teams: frozenset[str] = frozenset()

    def includes(self, user: User) -> bool:
        """Whether this is for `user`. A role gives nobody a place here."""
        if not user.name:
            return False
        return EVERYBODY in self.users or user.name in self.users or bool(self.teams & user.teams)

    @property
    def is_empty(self) -> bool:
        return not self.users and not self.teams


def read_audience(entry: Entry) -> Audience:
    """The fields `users` and `teams` of an entry. Raises RequestError."""
    return Audience(frozenset(entry.texts("users")), frozenset(entry.texts("teams")))
