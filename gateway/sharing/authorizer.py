"""The authorizer behind each request: users reach kernels and sessions by their rights."""

from __future__ import annotations

from jupyter_server.auth import Authorizer, User as JupyterUser
from jupyter_server.base.handlers import JupyterHandler
from tornado.web import HTTPError

from jupyter_aliquot.gateway.auth.access import Access, may_do
from jupyter_aliquot.gateway.auth.identity import user_of
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.busy_table import TableBusyError

from .rights import access_of, require_access

# The access that a request's method needs; for all other methods, the owner's.
_NEEDED = {"GET": Access.READ, "HEAD": Access.READ, "POST": Access.WRITE}


class AliquotAuthorizer(Authorizer):
    """The authorizer: users reach their own kernels and sessions.

    Administrators, and a server's only user, reach everything. Another user's kernel answers
    exactly as one that does not exist.
    """

    async def is_authorized(self, handler: JupyterHandler, user: JupyterUser, action: str, resource: str) -> bool:
        """Called after authentication by Jupyter's `authorized` and its WebSocket handlers."""
        requester = user_of(handler)
        if requester.is_admin:
            return True
        if not requester.name or not may_do(action, resource):
            return False
        if resource == "aliquot":
            # Its answers are made for the user, and include kernels that this server did not start.
            return True
        kernel_id = handler.path_kwargs.get("kernel_id")
        if kernel_id is not None:
            # POST interrupts and restarts. The websocket, a GET, checks each message itself.
            needed = _NEEDED.get(handler.request.method or "", Access.OWN)
            require_access(requester, handler.kernel_manager, kernel_id, needed)
        session_id = handler.path_kwargs.get("session_id")
        if session_id is not None and not await _has_session(handler, session_id):
            raise HTTPError(404, f"Session not found: session_id={session_id!r}")
        if resource == "kernels" and handler.request.method == "POST" and kernel_id is None:
            self._refuse_taken_id(requester, handler)
        return True

    def _refuse_taken_id(self, requester: User, handler: JupyterHandler) -> None:
        """Refuse a start at an id that another user's kernel has.

        Otherwise Jupyter would hand that kernel out.
        """
        wanted = (handler.get_json_body() or {}).get("kernel_id")
        if wanted is None or wanted not in handler.kernel_manager:
            return
        if access_of(requester, handler.kernel_manager, wanted) is Access.NONE:
            raise HTTPError(409, f"Kernel already exists: {wanted}")


async def _has_session(handler: JupyterHandler, session_id: str) -> bool:
    """Return whether the user has this session, by the session manager."""
    try:
        await handler.session_manager.get_session(session_id=session_id)  # type: ignore[no-untyped-call]
    except TableBusyError:
        raise
    except HTTPError:
        return False
    return True
