"""The kernels of a server in gateway mode: they live on the gateway, and outlive this server.

After a restart the server finds them in the gateway's list, and its notebooks find them by their
sessions. It decides nothing about kernels: the gateway culls idle ones.
"""

# mypy: disable-error-code="no-untyped-call, override"
# Jupyter Server's managers carry no types, and define their coroutines twice.
from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from jupyter_server import CallContext
from jupyter_server.gateway.gateway_client import gateway_request
from jupyter_server.gateway.managers import GatewayKernelManager, GatewayMappingKernelManager
from jupyter_server.utils import url_path_join
from tornado.escape import json_decode, url_escape
from tornado.httputil import url_concat
from tornado.web import HTTPError
from traitlets import default

from jupyter_aliquot.gateway.api.jupyter import OWN_KERNELS, OWNER_HEADER
from jupyter_aliquot.gateway.kernels.request_context import SPARED_KERNEL, is_left_to_gateway, variables
from jupyter_aliquot.gpu_hook.base.pacing import Backoff
from jupyter_aliquot.gpu_hook.waiting import within

_NOT_FOUND = 404
_UNAVAILABLE = 503
_REFUSALS = (401, 403)
# Below the timeout of a browser that asks this server; Jupyter's client alone would retry for half
# a minute.
_ANSWER_SECONDS = 5.0
_FIRST_RETRY_SECONDS = 0.5
_LAST_RETRY_SECONDS = 30.0


class AliquotRemoteKernelManager(GatewayMappingKernelManager):
    """The manager of the kernels on the gateway.

    Attributes:
        leaves_kernels: Returns whether a stop of this server leaves them running.
        kernels_of_sessions: Returns the ids of the kernels that this server's sessions use.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # Jupyter has one dict for all instances of a process.
        self._kernels: dict[str, GatewayKernelManager] = {}
        self.leaves_kernels: Callable[[], bool] = lambda: False
        self.kernels_of_sessions: Callable[[], set[str]] = set
        self._started: set[str] = set()
        # True once the gateway has answered: before that, it is unknown which kernels have ended.
        self.is_known = False

    @default("kernel_manager_class")
    def _default_kernel_manager_class(self) -> str:
        return "jupyter_server.gateway.managers.GatewayKernelManager"

    async def start_kernel(self, *, kernel_id: str | None = None, path: Any = None, **kwargs: Any) -> str:
        """Called by POST /api/kernels and by sessions; with an id, to use a running kernel.

        Raises HTTPError.
        """
        known = kernel_id is not None and kernel_id in self
        if told := variables():
            kwargs["env"] = {**kwargs.get("env", {}), **told}
        found: str = await super().start_kernel(kernel_id=kernel_id, path=path, **kwargs)
        if not self._kernels[found].has_kernel:
            if not known:
                self.remove_kernel(found)
            raise HTTPError(_NOT_FOUND, f"Kernel does not exist: {found}")
        if not self.is_of_another(found):
            self._started.add(found)
        return found

    def is_of_another(self, kernel_id: str) -> bool:
        """Return whether another user shares this kernel with this server's user.

        This server never ends such a kernel by itself.
        """
        kernel = self._kernels.get(kernel_id)
        model = None if kernel is None else kernel.kernel
        return isinstance(model, dict) and "owner" in model

    def leaves_to_gateway(self, kernel_id: str, replaced: str) -> bool:
        """Return whether the gateway ends the kernel *replaced* once *kernel_id* is certain to run."""
        kernel = self._kernels.get(kernel_id)
        return kernel is not None and is_left_to_gateway(kernel.kernel, replaced)

    def spare(self, kernel_id: str) -> None:
        """Keep this kernel running even if the present request would shut it down."""
        CallContext.set(SPARED_KERNEL, kernel_id)

    async def shutdown_kernel(self, kernel_id: str, now: bool = False, restart: bool = False) -> None:
        """Called by DELETE /api/kernels/{id}, by sessions and by culling.

        The gateway refuses a DELETE by a user who does not own the kernel.
        """
        if CallContext.get(SPARED_KERNEL) != kernel_id:
            await super().shutdown_kernel(kernel_id, now=now, restart=restart)

    async def cull_kernel_if_idle(self, kernel_id: str) -> None:
        """Called by Jupyter's culler."""
        if not self.is_of_another(kernel_id):
            await super().cull_kernel_if_idle(kernel_id)

    async def list_kernels(self, **kwargs: Any) -> list[dict[str, Any]]:
        """Called by GET /api/kernels, and before culling."""
        return await self.list_gateway_kernels(**kwargs)

    async def list_gateway_kernels(self, **kwargs: Any) -> list[dict[str, Any]]:
        """Return the user's own kernels on the gateway, and those shared with the user."""
        response = await gateway_request(url_concat(self.kernels_url, OWN_KERNELS), method="GET")
        if OWNER_HEADER not in response.headers:
            # Another kind of gateway: kernels that this server does not know may belong to any
            # user.
            self.is_known = True
            listed: list[dict[str, Any]] = await GatewayMappingKernelManager.list_kernels(self, **kwargs)
            return listed
        models: dict[str, dict[str, Any]] = {model["id"]: model for model in json_decode(response.body)}
        for kernel_id, model in models.items():
            await self._take_over(kernel_id, model)
        self.is_known = True
        for kernel_id in [kernel_id for kernel_id in self._kernels if kernel_id not in models]:
            started = await self._ask_for(kernel_id)
            if started is not None:
                # It was started while the gateway answered.
                models[kernel_id] = started
        return list(models.values())

    def is_remote(self, kernel_id: str) -> bool:
        """Return whether this is a kernel of the gateway that this server knows."""
        return kernel_id in self._kernels

    async def ask_for_kernel(self, kernel_id: str) -> None:
        """Ask the gateway whether this kernel exists.

        Raises:
            HTTPError: 404 if the gateway does not know the kernel, which a page takes for dead; 503
                while the gateway cannot answer, after which a page retries for as long as it takes.
        """
        try:
            model = await within(self._kernels[kernel_id].refresh_model(), _ANSWER_SECONDS)
        except HTTPError as error:
            if error.status_code in _REFUSALS:
                return  # the gateway refuses the question: keep the last model
            raise HTTPError(_UNAVAILABLE, f"the gateway cannot say how kernel {kernel_id} is: {error}") from error
        except (OSError, ValueError, asyncio.TimeoutError) as error:
            raise HTTPError(_UNAVAILABLE, f"the gateway does not answer: {error!r}") from error
        if model is None:
            self.remove_kernel(kernel_id)
            self._started.discard(kernel_id)
            raise HTTPError(_NOT_FOUND, f"Kernel does not exist: {kernel_id}")

    async def find_kernels(self) -> None:
        """Ask the gateway until it has answered once. Called when the server starts."""
        waits = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS)
        while not self.is_known:
            try:
                await self.list_gateway_kernels()
            except Exception as error:
                # The client wraps only some of the errors of a gateway that is away; each of them
                # may pass.
                self.log.warning("gateway=unavailable url=%s reason=%s", self.kernels_url, error)
                await asyncio.sleep(waits.next_seconds())

    async def shutdown_all(self, now: bool = False) -> None:
        """Called when the server stops. Kernels of the user's other servers are never ended here."""
        if self.leaves_kernels():
            self.log.info("kernels=%d left=running gateway=%s", len(self._kernels), self.kernels_url)
            self._kernels.clear()
            return
        used = (self._started | self.kernels_of_sessions()) & set(self._kernels)
        ours = sorted(kernel_id for kernel_id in used if not self.is_of_another(kernel_id))
        stops = [self.shutdown_kernel(kernel_id, now=now) for kernel_id in ours]
        ends = await asyncio.gather(*stops, return_exceptions=True)
        for kernel_id, error in zip(ours, ends, strict=True):
            if isinstance(error, BaseException):
                self.log.error("kernel=%s shutdown=failed reason=%s", kernel_id, error)

    async def _take_over(self, kernel_id: str, model: dict[str, Any]) -> None:
        kernel = self._kernels.get(kernel_id)
        if kernel is None:
            kernel = self.kernel_manager_factory(parent=self, log=self.log)
            kernel.kernel_id = kernel_id
            kernel.kernel_url = url_path_join(self.kernels_url, url_escape(kernel_id))
            self._kernels[kernel_id] = kernel
        await kernel.refresh_model(model)
        if not self.is_of_another(kernel_id):
            # Jupyter leaves this time to the websockets; the Hub's culler reads it.
            self.last_kernel_activity = max(self.last_kernel_activity, kernel.last_activity)

    async def _ask_for(self, kernel_id: str) -> dict[str, Any] | None:
        try:
            model: dict[str, Any] | None = await self._kernels[kernel_id].refresh_model()
        except HTTPError as error:
            # A gateway that refuses the question, perhaps for too many requests, has not reported
            # an end.
            self.log.warning("kernel=%s as_heard_last reason=%s", kernel_id, error)
            kernel = self._kernels.get(kernel_id)
            return None if kernel is None else kernel.kernel
        if model is None:
            self.log.info("kernel=%s ended=on_gateway", kernel_id)
            self.remove_kernel(kernel_id)
            self._started.discard(kernel_id)
        return model
