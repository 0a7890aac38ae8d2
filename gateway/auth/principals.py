"""Users and teams by name: who asks, and for whom something is. Pure; no user is looked up here."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_aliquot.gateway.base.fields import Entry

ROLES = ("user", "admin")
EVERYBODY = "*"


@dataclass(frozen=True)
class User:
    """Who asks: a name, unique on this server, a role ("user" or "admin"), and teams by name."""

    name: str
    role: str
    teams: frozenset[str] = frozenset()

    @property
    def is_admin(self) -> bool:
        """Whether everything on this server is theirs to see and end."""
        return self.role == "admin"


# Owns nothing and reaches nothing: what a request is before, or without, authentication.
NOBODY = User("", "user")


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
