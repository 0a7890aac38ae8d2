"""Kernels of a server in gateway mode: the gateway's, and this server's own without a GPU.

An own one is Jupyter's ordinary kernel, and ends with this server. A kernel's id tells where it
runs: this server's ids are of uuid version 8, which no gateway gives. So the place of a session's
kernel is known without the gateway, too.
"""

# mypy: disable-error-code="no-untyped-call, override"
# Jupyter Server's managers carry no types, and define their coroutines twice.
from __future__ import annotations

import asyncio
import uuid
from typing import Any

from jupyter_client.manager import KernelManager
from jupyter_core.utils import ensure_async
from jupyter_server.gateway.managers import GatewayKernelManager
from jupyter_server.services.kernels.connection.base import BaseKernelWebsocketConnection
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager, MappingKernelManager
from tornado.web import HTTPError

from jupyter_aliquot.gateway.base.jupyter_private import forget_failed_start
from jupyter_aliquot.gateway.channels.connection import KernelWebsocketConnection
from jupyter_aliquot.gpu_hook.waiting import within

from .channels import RemoteWebsocketConnection
from .kernels import AliquotRemoteKernelManager
from .mixed_kernelspecs import GATEWAY_SECONDS, MixedKernelSpecManager

_OWN_VERSION = 8


def new_own_id() -> str:
    """Return a new id for a kernel of this server."""
    return str(uuid.UUID(int=uuid.uuid4().int & ~(0xF << 76) | (_OWN_VERSION << 76)))


def is_own_id(kernel_id: str) -> bool:
    """Return whether `new_own_id` made this id, in this run of the server or an earlier one."""
    try:
        return uuid.UUID(kernel_id).version == _OWN_VERSION
    except ValueError:
        return False


class MixedKernelManager(AliquotRemoteKernelManager):
    """A kernel manager that forwards each of Jupyter's calls to the manager of the kernel.

    ``own`` manages the kernels of this server.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        specs = self.kernel_spec_manager
        assert isinstance(specs, MixedKernelSpecManager)  # serverapp/class_defaults.py puts both in place, or none
        self._specs = specs
        self.own: Any = AsyncMappingKernelManager(
            parent=self.parent, log=self.log, connection_dir=self.connection_dir, kernel_spec_manager=specs.own
        )
        self.own.observe(self._take_activity, "last_kernel_activity")

    # ---- lists of kernels

    def __contains__(self, kernel_id: object) -> bool:
        return kernel_id in self.own or kernel_id in self._kernels

    def list_kernel_ids(self) -> list[str]:
        """Called when the server logs how many kernels a stop would end."""
        return [*self._kernels, *self.own.list_kernel_ids()]

    def get_kernel(self, kernel_id: str) -> KernelManager:
        """Called for each WebSocket and each session. Raises KeyError."""
        found: KernelManager = (
            self.own.get_kernel(kernel_id) if kernel_id in self.own else super().get_kernel(kernel_id)
        )
        return found

    async def kernel_model(self, kernel_id: str) -> Any:
        """Called by GET /api/kernels/{id} and for each session."""
        if kernel_id in self.own:
            return self.own.kernel_model(kernel_id)
        return await super().kernel_model(kernel_id)

    async def list_kernels(self, **kwargs: Any) -> list[dict[str, Any]]:
        """Called by GET /api/kernels. While the gateway is away, its last list is used."""
        own: list[dict[str, Any]] = self.own.list_kernels()
        try:
            listed = await within(self.list_gateway_kernels(), GATEWAY_SECONDS)
        except (HTTPError, OSError, ValueError, KeyError, asyncio.TimeoutError) as error:
            if not self.is_known and any(not is_own_id(kernel_id) for kernel_id in self.kernels_of_sessions()):
                raise  # sessions use kernels that no list has shown yet
            self.log.warning("gateway=unavailable kernels=as_heard_last reason=%s", error)
            listed = [{**k.kernel, "execution_state": "unknown"} for k in self._kernels.values() if k.kernel]
        return [*listed, *own]

    # ---- actions on one kernel

    async def start_kernel(self, *, kernel_id: str | None = None, path: Any = None, **kwargs: Any) -> str:
        """Called by POST /api/kernels and by sessions. Raises HTTPError."""
        if not self._specs.is_own(kwargs.get("kernel_name")) or (kernel_id is not None and kernel_id in self._kernels):
            return await super().start_kernel(kernel_id=kernel_id, path=path, **kwargs)
        self._specs.refuse_size(kwargs["kernel_name"])
        own_id = kernel_id or new_own_id()
        try:
            started: str = await self.own.start_kernel(kernel_id=own_id, path=path, **kwargs)
        except BaseException:
            forget_failed_start(self.own, own_id)
            raise
        return started

    async def shutdown_kernel(self, kernel_id: str, now: bool = False, restart: bool = False) -> None:
        """Called by DELETE /api/kernels/{id}, and by sessions."""
        if kernel_id in self.own:
            await ensure_async(self.own.shutdown_kernel(kernel_id, now=now, restart=restart))
        else:
            await super().shutdown_kernel(kernel_id, now=now, restart=restart)

    async def restart_kernel(self, kernel_id: str, now: bool = False, **kwargs: Any) -> None:
        """Called by POST /api/kernels/{id}/restart."""
        if kernel_id in self.own:
            await self.own.restart_kernel(kernel_id, now=now)
        else:
            await super().restart_kernel(kernel_id, now=now, **kwargs)

    async def interrupt_kernel(self, kernel_id: str, **kwargs: Any) -> None:
        """Called by POST /api/kernels/{id}/interrupt."""
        if kernel_id in self.own:
            await ensure_async(self.own.interrupt_kernel(kernel_id))
        else:
            await super().interrupt_kernel(kernel_id, **kwargs)

    def update_env(self, *, kernel_id: str, env: dict[str, str]) -> None:
        """Called by PATCH /api/sessions/{id}."""
        if kernel_id in self.own:
            self.own.update_env(kernel_id=kernel_id, env=env)
        else:
            super().update_env(kernel_id=kernel_id, env=env)

    # ---- actions on all kernels

    async def cull_kernels(self) -> None:
        """Called by Jupyter's timer for the gateway's kernels.

        This server's own kernels have another timer, with the same settings.
        """
        await self.list_gateway_kernels()
        await MappingKernelManager.cull_kernels(self)

    async def shutdown_all(self, now: bool = False) -> None:
        """Called when the server stops. Its own kernels end with it."""
        await self.own.shutdown_all(now=now)
        await super().shutdown_all(now=now)

    def _take_activity(self, change: Any) -> None:
        """Adopt the activity of this server's own kernels.

        Jupyter's check for an idle server reads this manager alone.
        """
        self.last_kernel_activity = change.new


class MixedWebsocketConnection(BaseKernelWebsocketConnection):
    """A class whose call makes the connection that fits the kernel. It has no instances itself."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Called by Jupyter's handler of a WebSocket with ``parent``, the kernel's own manager."""
        is_remote = isinstance(kwargs.get("parent"), GatewayKernelManager)
        return (RemoteWebsocketConnection if is_remote else KernelWebsocketConnection)(*args, **kwargs)
