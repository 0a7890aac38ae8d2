"""The sessions of a server in gateway mode: which notebook uses which kernel.

They survive restarts of this server. Jupyter deletes a session with an unknown kernel when it reads
it, so sessions are not read before the kernels are known.
"""

# mypy: disable-error-code="no-untyped-call, override"
# Jupyter Server's managers carry no types, and define their coroutines twice.
from __future__ import annotations

from typing import Any

from jupyter_server.gateway.managers import GatewaySessionManager

from jupyter_aliquot.gateway.base.startup_gate import after_recovery

from .kernels import AliquotRemoteKernelManager
from .mixed_kernels import MixedKernelManager, is_own_id


class RemoteSessionManager(GatewaySessionManager):
    """Jupyter's session manager, which first learns the kernels on the gateway.

    Before the gateway has answered, only sessions of this server's own kernels are listed.
    """

    async def list_sessions(self) -> list[dict[str, Any]]:
        """Called by GET /api/sessions. Raises HTTPError while the gateway's kernels are unknown."""
        await self._know_kernels()
        sessions: list[dict[str, Any]] = await super().list_sessions()
        return sessions

    async def get_session(self, **kwargs: Any) -> dict[str, Any]:
        """Called by every handler of one session."""
        await self._know_kernels(**kwargs)
        session: dict[str, Any] = await super().get_session(**kwargs)
        return session

    async def session_exists(self, path: str) -> bool:
        """Called by POST /api/sessions."""
        await self._know_kernels(path=path)
        return bool(await super().session_exists(path))

    async def update_session(self, session_id: str, **kwargs: Any) -> None:
        """Called by PATCH, which ends the session's former kernel.

        Another user's kernel stays. So does one that the gateway ends once the new kernel has its
        grant.
        """
        if kwargs.get("kernel_id") is not None:
            self._spare_kernel_of(session_id, kwargs["kernel_id"])
        await super().update_session(session_id, **kwargs)

    async def delete_session(self, session_id: str) -> None:
        """Called by DELETE, which ends the kernel unless it is another user's."""
        await self._know_kernels(session_id=session_id)
        self._spare_kernel_of(session_id)
        await super().delete_session(session_id)

    def _spare_kernel_of(self, session_id: str, new: str = "") -> None:
        manager = self.kernel_manager
        for kernel_id in self._kernels_of({"session_id": session_id}):
            if not isinstance(manager, AliquotRemoteKernelManager):
                continue
            if manager.is_of_another(kernel_id) or manager.leaves_to_gateway(new, kernel_id):
                manager.spare(kernel_id)

    @after_recovery
    async def _know_kernels(self, **wanted: Any) -> None:
        manager = self.kernel_manager
        if not isinstance(manager, AliquotRemoteKernelManager) or manager.is_known:
            return
        has_own = isinstance(manager, MixedKernelManager)
        if not has_own or not all(is_own_id(kernel_id) for kernel_id in self._kernels_of(wanted)):
            await manager.list_gateway_kernels()

    def _kernels_of(self, wanted: dict[str, Any]) -> list[str]:
        """Return the kernel ids of the sessions that match *wanted*."""
        columns = [column for column in wanted if column in self._columns]
        where = " AND ".join(f"{column}=?" for column in columns)
        self.cursor.execute(
            f"SELECT kernel_id FROM session{' WHERE ' + where if where else ''}", [wanted[column] for column in columns]
        )
        return [row["kernel_id"] for row in self.cursor.fetchall()]
