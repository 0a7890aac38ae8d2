"""Sessions of collaborators: their names for the relay, and the table that tells whose they are."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

from jupyter_aliquot.gateway.auth.principals import User

_LONGEST_SESSION = 64
# This name, the table and the field of `attach` stay as older relays and gateways know them.
_COLLABORATOR = "guest-"


def relay_session(session_id: str) -> str:
    """Return the name of a session for the relay, which bounds its length."""
    if 0 < len(session_id) <= _LONGEST_SESSION:
        return session_id
    return hashlib.sha256(session_id.encode()).hexdigest()


def session_of(user: User, owner: str, session_id: str) -> str:
    """Return the name for the relay of a user's session on this owner's kernel.

    A client chooses its session, and each output names the owner's. So a collaborator gets a
    session that no client can choose.
    """
    if user.name == owner:
        return relay_session(session_id)
    named = f"{user.name}\0{session_id}".encode(errors="surrogatepass")
    return f"{_COLLABORATOR}{hashlib.sha256(named).hexdigest()[:40]}"


def is_collaborator_session(name: str) -> bool:
    """Return whether a session of this name for the relay may be a collaborator's."""
    return name.startswith(_COLLABORATOR)


class Cursor(Protocol):
    """The part of a database cursor that collaborators' sessions use."""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class CollaboratorSessions:
    """The sessions of users who do not own the session's kernel.

    All other sessions are the kernel owner's.

    A table beside the sessions' own holds them, reached by the same *cursor*, and lasts as long.
    """

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        cursor.execute("CREATE TABLE IF NOT EXISTS guest_session (session_id PRIMARY KEY, name)")
        # Rows of sessions that are gone, for example with their kernels.
        cursor.execute("DELETE FROM guest_session WHERE session_id NOT IN (SELECT session_id FROM session)")

    def all(self) -> dict[str, str]:
        """Return session id to the collaborator's name."""
        self._cursor.execute("SELECT session_id, name FROM guest_session")
        return {row["session_id"]: row["name"] for row in self._cursor.fetchall()}

    def note(self, session_id: str, name: str | None) -> None:
        """Make the session this collaborator's; None makes it the kernel owner's."""
        if name is None:
            self._cursor.execute("DELETE FROM guest_session WHERE session_id=?", (session_id,))
        else:
            self._cursor.execute("INSERT OR REPLACE INTO guest_session VALUES (?, ?)", (session_id, name))
