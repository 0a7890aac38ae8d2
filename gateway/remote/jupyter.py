"""Jupyter's own handlers on a server in gateway mode: they ask the gateway about its kernels."""

from __future__ import annotations

from typing import Any

from jupyter_server.auth.decorator import authorized, ws_authenticated
from tornado.web import RequestHandler, authenticated

from jupyter_aliquot.gateway.api.jupyter import ChannelsHandler, KernelHandler, replacements, with_cause

from .channels import SETTING, RemoteWebsocketConnection
from .kernels import AliquotRemoteKernelManager


class GatewayKernelHandler(KernelHandler):
    """GET and DELETE /api/kernels/{id}."""

    @authenticated
    @authorized
    async def get(self, kernel_id: str) -> None:
        """Return the kernel's model, after asking the gateway whether the kernel exists.

        A page whose socket was refused reconnects or not, depending on this answer.
        """
        manager: Any = self.kernel_manager
        if isinstance(manager, AliquotRemoteKernelManager) and manager.is_remote(kernel_id):
            await manager.ask_for_kernel(kernel_id)
        await with_cause(super().get, kernel_id)


class GatewayChannelsHandler(ChannelsHandler):
    """The WebSocket /api/kernels/{id}/channels, of the gateway's kernels and of this server's own."""

    _ours = (*ChannelsHandler._ours, RemoteWebsocketConnection)

    @ws_authenticated
    async def get(self, kernel_id: str) -> None:
        refusals = self.settings.get(SETTING)
        if refusals is not None:
            refusals.check(kernel_id)
        await super().get(kernel_id)


def remote_replacements() -> list[tuple[str, type[RequestHandler]]]:
    """Return the routes of `replacements`, with the handlers that ask the gateway."""
    stands_for: dict[type, type[RequestHandler]] = {
        KernelHandler: GatewayKernelHandler,
        ChannelsHandler: GatewayChannelsHandler,
    }
    return [(route, stands_for.get(handler, handler)) for route, handler in replacements()]
