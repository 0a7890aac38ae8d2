"""The parts of a server in gateway mode.

It finds its kernels on the gateway at its start, and leaves them at its stop.
"""

from __future__ import annotations

import asyncio
import os

from tornado.web import HTTPError

from jupyter_aliquot.gateway.base.tasks import Recurring
from jupyter_aliquot.gateway.remote.kernels import AliquotRemoteKernelManager
from jupyter_aliquot.gateway.state.stop_policy import StopPolicy
from jupyter_aliquot.gpu_hook.waiting import end_task

from .services import Services

_FIND_SECONDS = 5.0
# Below the 300 s after which a server of the Hub reports its activity.
_LOOK_SECONDS = 120.0
# Set for a server that reports its activity to a Hub.
_OF_THE_HUB = "JUPYTERHUB_ACTIVITY_URL"


class GatewayKernels:
    """The kernels on the gateway.

    ``policy`` decides whether a stop of this server leaves them there.
    """

    def __init__(self, manager: AliquotRemoteKernelManager, services: Services) -> None:
        self._manager = manager
        self._finding: asyncio.Task[None] | None = None
        # While no page is open, no request would tell this server that its kernels work.
        self._looks = Recurring("kernels_activity", self._look, _LOOK_SECONDS, services.clock, services.log)
        self._log = services.log
        self.policy = StopPolicy(services.settings.keep_kernels, can_keep=True)
        manager.leaves_kernels = self.policy.keeps_kernels
        manager.kernels_of_sessions = lambda: set(services.labels())

    async def find(self) -> None:
        """Ask the gateway for them.

        Return when it answered, or seems to be away; then the search goes on.
        """
        self._finding = asyncio.create_task(self._manager.find_kernels(), name="aliquot-find-kernels")
        await asyncio.wait({self._finding}, timeout=_FIND_SECONDS)
        if os.environ.get(_OF_THE_HUB):
            self._looks.start()

    async def _look(self) -> None:
        """Take the kernels' last activity over, which this server then reports to the Hub."""
        try:
            await self._manager.list_gateway_kernels()
        except (HTTPError, OSError, ValueError, asyncio.TimeoutError) as error:
            self._log.info("gateway=unavailable activity=as_heard_last reason=%s", error)

    async def stop(self) -> None:
        """Stop the search and the looks."""
        await self._looks.stop()
        if self._finding is not None:
            await end_task(self._finding)
