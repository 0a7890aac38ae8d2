"""Sessions with owners: a session belongs to its kernel's owner, or to the collaborator who made it.

A collaborator makes one for a shared kernel. Their table is a file where the gateway has a state folder.
Without one, or when its disk is full, it is in memory. A file that another program has locked stays
the table: requests wait for it, and fail when the wait is too long.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from jupyter_client.multikernelmanager import DuplicateKernelError
from jupyter_server.services.sessions.sessionmanager import SessionManager
from tornado.web import HTTPError

from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.gateway.auth.identity import current_user
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.busy_table import BLOCKING_MILLISECONDS, TableBusyError, patiently
from jupyter_aliquot.gateway.base.http_errors import told
from jupyter_aliquot.gateway.base.startup_gate import after_recovery
from jupyter_aliquot.gateway.kernelspecs.manager import NoSuchBase
from jupyter_aliquot.gateway.sharing.collaborator_sessions import CollaboratorSessions
from jupyter_aliquot.gateway.sharing.rights import access_of
from jupyter_aliquot.gateway.state.session_table import IN_MEMORY, is_busy
from jupyter_aliquot.provisioner.errors import AliquotError

from .request_context import spare

# Bounds that no page of Jupyter's comes near: sessions of one user on one kernel, letters of a
# path, name or type.
_MOST_SESSIONS, _LONGEST_TEXT = 100, 4096


class PatientCursor:
    """The part of a cursor that sessions use; see OwnedSessionManager.leave_disk."""

    def __init__(self, manager: OwnedSessionManager) -> None:
        self._manager = manager

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        try:
            return self._manager.file_cursor().execute(statement, values)
        except sqlite3.OperationalError as error:
            if is_busy(error):
                raise TableBusyError(error) from error
            self._manager.leave_disk(error)
        return self._manager.file_cursor().execute(statement, values)

    def fetchone(self) -> Any:
        return self._manager.file_cursor().fetchone()

    def fetchall(self) -> list[Any]:
        return self._manager.file_cursor().fetchall()


def _refuse_long(named: dict[str, Any]) -> None:
    """Refuse long texts: they are kept on disk, and sent with each list of sessions or kernels.

    Raises HTTPError 400.
    """
    for what in ("path", "name", "type"):
        if len(named.get(what) or "") > _LONGEST_TEXT:
            raise HTTPError(
                400,
                f"The session's {what} has {len(named[what])} letters, and may have {_LONGEST_TEXT}. Use fewer.",
            )


class OwnedSessionManager(SessionManager):
    """Jupyter's session manager, with owners.

    It shows users their own sessions, and binds none to a kernel that they may not see.
    """

    _collaborators: CollaboratorSessions | None = None

    @property
    def connection(self) -> sqlite3.Connection:
        """Called by Jupyter's own methods, and for the file's state."""
        is_new = self._connection is None
        found: sqlite3.Connection = super().connection
        if is_new:
            found.execute(f"PRAGMA busy_timeout = {BLOCKING_MILLISECONDS}")
        return found

    @property
    def cursor(self) -> PatientCursor:
        """Called by Jupyter's own methods for each statement."""
        return PatientCursor(self)

    def file_cursor(self) -> sqlite3.Cursor:
        """Return the table's own cursor, wherever the table is."""
        try:
            found: sqlite3.Cursor = super().cursor
        except sqlite3.OperationalError:
            # Jupyter's keeps the cursor, and would not make the table another time.
            self.close()  # type: ignore[no-untyped-call]
            raise
        return found

    def leave_disk(self, error: sqlite3.OperationalError) -> None:
        """Go on with the table in memory.

        A disk that is full, or became read-only, must end no session.
        """
        if self.database_filepath == IN_MEMORY:
            raise error
        self.log.error("sessions=in_memory reason=%s; they end with this server", error)
        memory = sqlite3.connect(IN_MEMORY, isolation_level=None)
        memory.row_factory = sqlite3.Row
        self.connection.backup(memory)
        self.close()  # type: ignore[no-untyped-call]
        self.connection.close()
        self.database_filepath, self._connection = IN_MEMORY, memory

    @property
    def collaborators(self) -> CollaboratorSessions:
        """The sessions on shared kernels. Their table is made at the first use."""
        if self._collaborators is None:
            self.cursor.execute("SELECT 1 FROM session LIMIT 1")
            self._collaborators = CollaboratorSessions(self.cursor)
        return self._collaborators

    @after_recovery
    @patiently
    async def list_sessions(self) -> list[dict[str, Any]]:
        """Return the user's sessions; all of them for an administrator.

        Called by GET /api/sessions.
        """
        requester = current_user()
        sessions: list[dict[str, Any]] = await super().list_sessions()  # type: ignore[no-untyped-call]
        collaborators = self.collaborators.all()
        return [session for session in sessions if self._may_see(requester, session, collaborators)]

    @after_recovery
    @patiently
    async def session_exists(self, path: str) -> bool:
        """Return whether the user has a session for this path. Called by POST /api/sessions.

        A path names the user's own file. The same path of another user is another file.
        """
        return await self._own_session(path) is not None

    @after_recovery
    @patiently
    async def get_session(self, **kwargs: Any) -> dict[str, Any]:
        """Return one session.

        Another user's session is not found. Called by every handler of one session.
        """
        if set(kwargs) == {"path"}:
            found = await self._own_session(kwargs["path"])
            if found is None:
                raise HTTPError(404, f"Session not found: path={kwargs['path']!r}")
            return found
        session: dict[str, Any] = await super().get_session(**kwargs)  # type: ignore[no-untyped-call]
        if not self._may_see(current_user(), session, self.collaborators.all()):
            wanted = ", ".join(f"{column}={value!r}" for column, value in kwargs.items())
            raise HTTPError(404, f"Session not found: {wanted}")
        return session

    @after_recovery
    async def create_session(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Start or bind a kernel.

        Called by POST /api/sessions, whose body may name a kernel by its id.
        """
        kernel_id = kwargs.get("kernel_id")
        if kernel_id is not None and self._is_out_of_reach(kernel_id):
            raise DuplicateKernelError(f"Kernel already exists: {kernel_id}")
        _refuse_long(kwargs)
        # Checked before a kernel starts for a session that could not be written.
        await self._until_writable()
        is_there = kernel_id is not None and kernel_id in self.kernel_manager
        if kernel_id is not None:
            self._refuse_too_many(kernel_id)
        try:
            session: dict[str, Any] = await super().create_session(*args, **kwargs)
        except TableBusyError as error:
            if error.kernel_id is not None and not is_there:
                await self.kernel_manager.shutdown_kernel(error.kernel_id)
            raise
        except (AliquotError, NoSuchBase) as error:
            # Raised as HTTPError here: the handler answers every other exception with a 500.
            raise told(error) from error
        return session

    async def save_session(
        self, session_id: str, path: Any = None, name: Any = None, type: Any = None, kernel_id: Any = None
    ) -> dict[str, Any]:
        """Called by create_session when the kernel is known."""
        try:
            return await self._save_session(session_id, path, name, type, kernel_id)
        except TableBusyError as error:
            raise TableBusyError(error.args[0], kernel_id) from error

    @patiently
    async def _save_session(self, session_id: str, path: Any, name: Any, type: Any, kernel_id: Any) -> dict[str, Any]:
        self._note_collaborator(session_id, kernel_id)
        saved: dict[str, Any] = await super().save_session(session_id, path, name, type, kernel_id)  # type: ignore[no-untyped-call]
        return saved

    @patiently
    async def _until_writable(self) -> None:
        """Wait until the table can be written. Raises TableBusyError."""
        # An exclusive lock: a reader, such as a backup, keeps writers out.
        self.cursor.execute("BEGIN EXCLUSIVE")
        self.cursor.execute("ROLLBACK")

    @after_recovery
    @patiently
    async def update_session(self, session_id: str, **kwargs: Any) -> None:
        """Change a session.

        Called by PATCH, which ends the old kernel where the body names another one.
        """
        kernel_id = kwargs.get("kernel_id")
        _refuse_long(kwargs)
        if kernel_id is not None:
            if self._is_out_of_reach(kernel_id):
                raise HTTPError(400, f"No such kernel: {kernel_id}")
            self._refuse_too_many(kernel_id)
            await self._spare_kernel_of(session_id)
        await super().update_session(session_id, **kwargs)  # type: ignore[no-untyped-call]
        if kernel_id is not None:
            self._note_collaborator(session_id, kernel_id)

    @after_recovery
    async def delete_session(self, session_id: str) -> None:
        """Called by DELETE, which ends the kernel; that of a collaborator's session stays."""
        # Before the session's kernel ends.
        await self._until_writable()
        await self._spare_kernel_of(session_id)
        await super().delete_session(session_id)  # type: ignore[no-untyped-call]
        self.collaborators.note(session_id, None)

    async def _spare_kernel_of(self, session_id: str) -> None:
        if session_id in self.collaborators.all():
            session = await self.get_session(session_id=session_id)
            spare(session["kernel"]["id"])

    def _is_out_of_reach(self, kernel_id: str) -> bool:
        reach = access_of(current_user(), self.kernel_manager, kernel_id)
        return kernel_id in self.kernel_manager and reach is Access.NONE

    def _refuse_too_many(self, kernel_id: str) -> None:
        """Refuse one session too many of the user: each list of sessions reads them all.

        Raises HTTPError 403.
        """
        requester = current_user()
        if requester.is_admin:
            return
        collaborators, owner = self.collaborators.all(), self._owner_of(kernel_id)
        self.cursor.execute("SELECT session_id FROM session WHERE kernel_id=?", (kernel_id,))
        has = sum(collaborators.get(row["session_id"], owner) == requester.name for row in self.cursor.fetchall())
        if has >= _MOST_SESSIONS:
            raise HTTPError(
                403,
                f"{requester.name} has {has} sessions of kernel {kernel_id}, and at most {_MOST_SESSIONS} are allowed. "
                "End one that is not needed",
            )

    def _note_collaborator(self, session_id: str, kernel_id: str) -> None:
        owner, requester = self._owner_of(kernel_id), current_user()
        self.collaborators.note(session_id, None if owner in (None, requester.name) else requester.name)

    def _may_see(self, requester: User, session: dict[str, Any], collaborators: dict[str, str]) -> bool:
        kernel_id = session["kernel"]["id"]
        if access_of(requester, self.kernel_manager, kernel_id) is Access.NONE:
            return False
        return requester.is_admin or collaborators.get(session["id"], self._owner_of(kernel_id)) == requester.name

    async def _own_session(self, path: str) -> dict[str, Any] | None:
        requester, collaborators = current_user(), self.collaborators.all()
        self.cursor.execute("SELECT * FROM session WHERE path=?", (path,))
        for row in self.cursor.fetchall():
            if self._is_own(requester, row, collaborators):
                # The kernel may have been culled. The call then ends the session.
                model: dict[str, Any] | None = await self.row_to_model(row, tolerate_culled=True)  # type: ignore[no-untyped-call]
                if model is not None:
                    return model
        return None

    def _is_own(self, requester: User, row: sqlite3.Row, collaborators: dict[str, str]) -> bool:
        """Return whether the session is the user's own.

        An administrator sees all sessions, but gets none for a path.
        """
        if access_of(requester, self.kernel_manager, row["kernel_id"]) is Access.NONE:
            return False
        owner = collaborators.get(row["session_id"], self._owner_of(row["kernel_id"]))
        return owner == requester.name or (owner is None and requester.is_admin)

    def _owner_of(self, kernel_id: str) -> str | None:
        owner_of = getattr(self.kernel_manager, "owner_of", None)
        found: str | None = owner_of(kernel_id) if owner_of is not None else None
        return found


class SessionLabels:
    """The notebooks' names of kernels, from the table of sessions.

    It is read again only when the table changed.
    """

    def __init__(self, sessions: SessionManager) -> None:
        self._sessions = sessions
        # The connection itself: a later one may have the same id.
        self._read_at: tuple[object, int] = (None, -1)
        self._labels: Mapping[str, str] = MappingProxyType({})

    def labels(self) -> Mapping[str, str]:
        """Return kernel id to the owner's notebook. The names of collaborators' notebooks are left out."""
        connection = self._sessions.connection
        now = (connection, connection.total_changes)
        if self._read_at != now:
            # While another program has the file locked, the last names stand.
            with contextlib.suppress(TableBusyError):
                self._labels, self._read_at = MappingProxyType(_read_labels(self._sessions)), now
        return self._labels


def _read_labels(sessions: SessionManager) -> dict[str, str]:
    collaborators = sessions.collaborators.all() if isinstance(sessions, OwnedSessionManager) else {}
    sessions.cursor.execute("SELECT session_id, kernel_id, path FROM session")
    rows = [row for row in sessions.cursor.fetchall() if row["session_id"] not in collaborators]
    return {row["kernel_id"]: row["path"] or "" for row in rows}
