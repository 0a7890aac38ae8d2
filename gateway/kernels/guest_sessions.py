"""Whose a session is that uses somebody else's kernel: the one fact that the table of sessions cannot hold.

All others are their kernel's owner's, and are not noted. It lies beside that table, and lasts as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Cursor(Protocol):
    """The part of sessions.PatientCursor that is needed here."""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class GuestSessions:
    """``cursor``: that of the table of sessions, wherever it is now."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        cursor.execute("CREATE TABLE IF NOT EXISTS guest_session (session_id PRIMARY KEY, name)")
        # Of sessions that went, with their kernels for example.
        cursor.execute("DELETE FROM guest_session WHERE session_id NOT IN (SELECT session_id FROM session)")

    def all(self) -> dict[str, str]:
        """Session id to whose it is."""
        self._cursor.execute("SELECT session_id, name FROM guest_session")
        return {row["session_id"]: row["name"] for row in self._cursor.fetchall()}

    def note(self, session_id: str, name: str | None) -> None:
        """It is this guest's; None: its kernel's owner's."""
        if name is None:
            self._cursor.execute("DELETE FROM guest_session WHERE session_id=?", (session_id,))
        else:
            self._cursor.execute("INSERT OR REPLACE INTO guest_session VALUES (?, ?)", (session_id, name))
