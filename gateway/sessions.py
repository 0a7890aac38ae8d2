"""Sessions with owners: a session belongs to whoever owns its kernel. Keeps no owners of its own."""

from __future__ import annotations

from typing import Any

from aliquot.gateway.auth import User, current_user, owns
from aliquot.gateway.sizes import NoSuchBase
from aliquot.gateway.stock_handlers import told
from aliquot.provisioner.errors import AliquotError
from jupyter_client.multikernelmanager import DuplicateKernelError
from jupyter_server.services.sessions.sessionmanager import SessionManager
from tornado.web import HTTPError


class OwnedSessionManager(SessionManager):
    """Shows users their own sessions, and never binds a session to somebody else's kernel."""

    async def list_sessions(self) -> list[dict[str, Any]]:
        """The asker's sessions; all of them for an administrator. Called by GET /api/sessions."""
        asker = current_user()
        sessions: list[dict[str, Any]] = await super().list_sessions()  # type: ignore[no-untyped-call]
        return [session for session in sessions if owns(asker, self.kernel_manager, session["kernel"]["id"])]

    async def session_exists(self, path: str) -> bool:
        """Whether the asker has a session for this path. Called by POST /api/sessions.

        A path is a name of the asker's own: the same one of somebody else is another file, or none.
        """
        return await self._own_session(path) is not None

    async def get_session(self, **kwargs: Any) -> dict[str, Any]:
        """One session. Somebody else's is not found. Called by every handler of one session."""
        if set(kwargs) == {"path"}:
            found = await self._own_session(kwargs["path"])
            if found is None:
                raise HTTPError(404, f"Session not found: path={kwargs['path']!r}")
            return found
        session: dict[str, Any] = await super().get_session(**kwargs)  # type: ignore[no-untyped-call]
        if not owns(current_user(), self.kernel_manager, session["kernel"]["id"]):
            wanted = ", ".join(f"{column}={value!r}" for column, value in kwargs.items())
            raise HTTPError(404, f"Session not found: {wanted}")
        return session

    async def create_session(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Start or bind a kernel. Called by POST /api/sessions, whose body may name a kernel by its id."""
        kernel_id = kwargs.get("kernel_id")
        if kernel_id is not None and self._is_of_somebody_else(kernel_id):
            raise DuplicateKernelError(f"Kernel already exists: {kernel_id}")
        try:
            session: dict[str, Any] = await super().create_session(*args, **kwargs)
        except (AliquotError, NoSuchBase) as error:
            # Said as HTTP already here: the handler answers every other exception with a 500.
            raise told(error) from error
        return session

    async def update_session(self, session_id: str, **kwargs: Any) -> None:
        """Change a session. Called by PATCH, whose body may name a kernel by its id."""
        kernel_id = kwargs.get("kernel_id")
        if kernel_id is not None and self._is_of_somebody_else(kernel_id):
            raise HTTPError(400, f"No such kernel: {kernel_id}")
        await super().update_session(session_id, **kwargs)  # type: ignore[no-untyped-call]

    def _is_of_somebody_else(self, kernel_id: str) -> bool:
        return kernel_id in self.kernel_manager and not owns(current_user(), self.kernel_manager, kernel_id)

    async def _own_session(self, path: str) -> dict[str, Any] | None:
        asker = current_user()
        self.cursor.execute("SELECT * FROM session WHERE path=?", (path,))
        for row in self.cursor.fetchall():
            if self._is_own(asker, row["kernel_id"]):
                # Tolerated: its kernel may have been culled, which ends the session here and now.
                model: dict[str, Any] | None = await self.row_to_model(row, tolerate_culled=True)  # type: ignore[no-untyped-call]
                if model is not None:
                    return model
        return None

    def _is_own(self, asker: User, kernel_id: str) -> bool:
        """Stricter than `owns`: an administrator may see everybody's sessions, but is not handed them for a path."""
        owner_of = getattr(self.kernel_manager, "owner_of", None)
        owner = owner_of(kernel_id) if owner_of is not None else None
        return owner == asker.name or (owner is None and asker.is_admin)
