"""The parts of a server in gateway mode.

It finds its kernels on the gateway at its start, and leaves them at its stop.
"""

from __future__ import annotations

import asyncio

from jupyter_aliquot.gateway.remote.kernels import AliquotRemoteKernelManager
from jupyter_aliquot.gateway.state.stop_policy import StopPolicy
from jupyter_aliquot.gpu_hook.waiting import end_task

from .services import Services

_FIND_SECONDS = 5.0


class GatewayKernels:
    """The kernels on the gateway.

    ``policy`` decides whether a stop of this server leaves them there.
    """

    def __init__(self, manager: AliquotRemoteKernelManager, services: Services) -> None:
        self._manager = manager
        self._finding: asyncio.Task[None] | None = None
        self.policy = StopPolicy(services.settings.keep_kernels, can_keep=True)
        manager.leaves_kernels = self.policy.keeps_kernels
        manager.kernels_of_sessions = lambda: set(services.labels())

    async def find(self) -> None:
        """Ask the gateway for them.

        Return when it answered, or seems to be away; then the search goes on.
        """
        self._finding = asyncio.create_task(self._manager.find_kernels(), name="aliquot-find-kernels")
        await asyncio.wait({self._finding}, timeout=_FIND_SECONDS)

    async def stop(self) -> None:
        """Stop the search."""
        if self._finding is not None:
            await end_task(self._finding)
