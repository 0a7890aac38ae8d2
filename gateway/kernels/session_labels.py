"""What notebooks call the kernels they use, from the table of sessions: read again only when the table changed."""

# mypy: disable-error-code="no-untyped-call"
# Jupyter Server's session managers carry no types.
from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import MappingProxyType

from jupyter_server.services.sessions.sessionmanager import SessionManager

from jupyter_aliquot.gateway.base.busy_table import TableBusyError

from .sessions import OwnedSessionManager


class SessionLabels:
    """Of one table of sessions, wherever it is now."""

    def __init__(self, sessions: SessionManager) -> None:
        self._sessions = sessions
        # The connection itself, and not its id, which another one may have later.
        self._read_at: tuple[object, int] = (None, -1)
        self._labels: Mapping[str, str] = MappingProxyType({})

    def labels(self) -> Mapping[str, str]:
        """Kernel id to its owner's notebook; what a guest's is called is nothing to others."""
        connection = self._sessions.connection
        now = (connection, connection.total_changes)
        if self._read_at != now:
            # While another program has the file locked, the last names are told.
            with contextlib.suppress(TableBusyError):
                self._labels, self._read_at = MappingProxyType(_read(self._sessions)), now
        return self._labels


def _read(sessions: SessionManager) -> dict[str, str]:
    guests = sessions.guests.all() if isinstance(sessions, OwnedSessionManager) else {}
    sessions.cursor.execute("SELECT session_id, kernel_id, path FROM session")
    rows = [row for row in sessions.cursor.fetchall() if row["session_id"] not in guests]
    return {row["kernel_id"]: row["path"] or "" for row in rows}
