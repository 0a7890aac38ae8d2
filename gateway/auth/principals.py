"""Users and teams by name: the user of a request, and the users that something is for. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_aliquot.gateway.base.fields import Entry

ROLES = ("user", "admin")
ALL_USERS = "*"


@dataclass(frozen=True)
class User:
    """A user: a name, unique on this server, a role ("user" or "admin"), and teams by name."""

    name: str
    role: str
    teams: frozenset[str] = frozenset()

    @property
    def is_admin(self) -> bool:
        """Return whether the user may see and end everything on this server."""
        return self.role == "admin"


# The user of a request before, or without, authentication. It owns and reaches nothing.
ANONYMOUS = User("", "user")


@dataclass(frozen=True)
class Audience:
    """Users and teams by name. The user ``*`` stands for all."""

    users: frozenset[str] = frozenset()
    teams: frozenset[str] = frozenset()

    def includes(self, user: User) -> bool:
        """Return whether it includes the user. Roles do not matter."""
        if not user.name:
            return False
        return ALL_USERS in self.users or user.name in self.users or bool(self.teams & user.teams)

    @property
    def is_empty(self) -> bool:
        return not self.users and not self.teams


def read_audience(entry: Entry) -> Audience:
    """Read the fields `users` and `teams` of an entry. Raises RequestError."""
    return Audience(frozenset(entry.texts("users")), frozenset(entry.texts("teams")))
