"""The kernels of this server, with owners, grants and the reasons of terminations.

Jupyter's calls on kernels come here. Admission decides which kernel gets a grant, and ``kernel.py``
starts a single kernel. The manager's collaborators keep what else there is to know of kernels; it
makes them from the services that the extension made.
"""

# mypy: disable-error-code="no-untyped-call, attr-defined, assignment"
# Jupyter Server's kernel managers carry no types, and define their coroutines twice, as functions
# and as attributes.
from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, cast

import zmq
import zmq.asyncio
from jupyter_core.utils import ensure_async
from jupyter_server._tz import utcnow
from jupyter_server.prometheus.metrics import KERNEL_CURRENTLY_RUNNING_TOTAL
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from tornado.web import HTTPError
from traitlets import Bool, Instance, default
from traitlets.utils.importstring import import_item

from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.gateway.auth.identity import current_user
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.http_errors import http_error
from jupyter_aliquot.gateway.base.jupyter_private import restarter_of
from jupyter_aliquot.gateway.channels.connection import look_at_sockets
from jupyter_aliquot.gateway.channels.pending_kernels import PendingKernels
from jupyter_aliquot.gateway.sharing.registry import KernelOwners, ShareRegistry
from jupyter_aliquot.gateway.sharing.rights import access_of
from jupyter_aliquot.gateway.sharing.shares import Shares
from jupyter_aliquot.gateway.state.records import KernelState
from jupyter_aliquot.provisioner.errors import AliquotError
from jupyter_aliquot.provisioner.terminations import Asked

from .handover import Handover
from .kernel import ManagedKernel, restarts_of
from .relay_activity import RelayActivity
from .replacement import ReplacementTracker
from .request_context import ANSWER, is_spared, requested_env
from .resize import ResizeTracker
from .services import KernelServices, services_of
from .start_checks import StartChecks

# With ZeroMQ's own 100 ms, a kernel that is up waits for its server: 70 ms on average, of a start
# of 300.
_TRY_AGAIN_MILLISECONDS = 10
# ZeroMQ allows 1023, and while kernels start or end each has one or two.
_MOST_SOCKETS = 16_384


class AliquotKernelManager(AsyncMappingKernelManager):
    """Jupyter's kernel manager, with owners and grants. Jupyter Server makes it."""

    use_pending_kernels = Bool(
        True, help="Whether a start is answered before the kernel has its grant; if not, the request itself waits."
    ).tag(config=True)
    services = Instance(KernelServices, help="What the extension made for the kernels of this server.")

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        services = self.services
        self.endings, self.links = services.endings, services.links
        self._stopping: dict[str, asyncio.Task[None]] = {}
        # The tasks that clear away what is left of kernels that died.
        self._clearing: set[asyncio.Task[None]] = set()
        self.owners = KernelOwners()
        self.pending = PendingKernels(self, self.log)
        self.sharing = ShareRegistry(self, self.owners, (self.pending.look_again, look_at_sockets), self.log)
        self.starts = StartChecks(
            services, self.kernel_spec_manager, self.owners, lambda: str(self.default_kernel_name)
        )
        self.handover = Handover(
            self, self.owners, self.sharing, self.pending, services.memory, services.endings, self.log
        )
        self.resizes = ResizeTracker(services.admission, self.find, self.handover.note_again, self.log)
        self.activity = RelayActivity(
            self._kernels, services.links, services.tell_interrupt, self._note_activity, self.resizes.try_again
        )
        has_queue = services.admission is not None
        self.replacements = ReplacementTracker(self, self.owners, self.log, has_queue=has_queue)
        self.end_replaced = self.replacements.end_replaced
        if issubclass(import_item(self.kernel_manager_class), ManagedKernel):
            self.kernel_manager_factory = partial(self.kernel_manager_factory, services=services, listener=self)

    @default("services")
    def _services_of_parent(self) -> KernelServices:
        return services_of(self.parent)

    @default("context")
    def _context_default(self) -> zmq.asyncio.Context:
        """Called by MultiKernelManager.

        Sockets connect before their kernel listens, and try again until it does.
        """
        self._created_context = True
        context = zmq.asyncio.Context()
        context.set(zmq.MAX_SOCKETS, min(_MOST_SOCKETS, context.get(zmq.SOCKET_LIMIT)))
        context.setsockopt(zmq.RECONNECT_IVL, _TRY_AGAIN_MILLISECONDS)
        return context

    @default("kernel_manager_class")
    def _managed_kernels(self) -> str:
        return "jupyter_aliquot.gateway.kernels.kernel.ManagedKernel"

    # ---- questions of other parts

    def find(self, kernel_id: str) -> ManagedKernel | None:
        """Return the kernel of this id, if there is one of our class."""
        kernel = self._kernels.get(kernel_id)
        return kernel if isinstance(kernel, ManagedKernel) else None

    def get_kernel(self, kernel_id: str) -> Any:
        """Called by Jupyter, whose own method checks the id in four calls. Raises HTTPError 404."""
        kernel = self._kernels.get(kernel_id)
        return super().get_kernel(kernel_id) if kernel is None else kernel

    def is_starting(self, kernel_id: str) -> bool:
        """Return whether its start is under way."""
        return kernel_id in self._pending_kernels

    def is_stopping(self, kernel_id: str) -> bool:
        """Return whether it is being ended."""
        return kernel_id in self._stopping

    def owner_of(self, kernel_id: str) -> str | None:
        """Return the owner's name; None for a kernel that does not exist.

        Asked by the authorizer.
        """
        return self.sharing.owner_of(kernel_id)

    def shares_of(self, kernel_id: str) -> Shares:
        """Return the users and teams that the kernel is shared with. Asked by the authorizer."""
        return self.sharing.shares_of(kernel_id)

    def visible_to(self, user: User) -> list[str]:
        """Return the ids of the kernels that the user may see, in the order of their starts."""
        return [] if self.handover.leaves_kernels else self.sharing.visible_to(user)

    def list_kernel_ids(self) -> list[str]:
        """Called by the server's stop, too, which tells its log how many it ends."""
        kernel_ids: list[str] = [] if self.handover.leaves_kernels else super().list_kernel_ids()
        return kernel_ids

    def list_kernels(self) -> list[dict[str, Any]]:
        """Called by GET /api/kernels: the kernels that the user of the request may see."""
        models = []
        for kernel_id in self.visible_to(current_user()):
            with contextlib.suppress(HTTPError, KeyError):  # it ended just now
                models.append(self.kernel_model(kernel_id))
        return models

    def kernel_state(self, kernel_id: str) -> tuple[str, str]:
        """Return the kernel's state (queued, starting, on_gpu, ended), and the reason.

        Raises HTTPError 404.
        """
        return self.state_of(kernel_id, self.get_kernel(kernel_id))[:2]

    def state_of(self, kernel_id: str, kernel: Any) -> tuple[str, str, str | None]:
        """Return the same of one of the kernels, and Jupyter's state. A status may ask it a thousand times."""
        is_ready, execution_state = kernel.ready.done(), kernel.execution_state
        waiting = None if is_ready else _waiting_reason(kernel)
        if waiting is not None:
            return "queued", waiting, execution_state
        if execution_state == "dead":
            return "ended", kernel.reason, execution_state
        # Jupyter says "starting" until a client connects, and while it ends. Such a kernel holds
        # its grant already.
        is_there = is_ready or kernel_id in self._stopping
        return "on_gpu" if is_there else "starting", kernel.reason, execution_state

    def connections(self, kernel_id: str) -> int:
        """Return how many browsers and other clients of the owner are connected to it here.

        Asked by the culler.
        """
        return int(self._kernel_connections.get(kernel_id, 0)) - self.sharing.collaborators_of(kernel_id)

    def initialize_culler(self) -> None:
        """Called by Jupyter at each start.

        Jupyter's culler stays out where ours is: it judges by `execution_state`.
        """
        if self.endings is None:
            super().initialize_culler()

    def kernel_model(self, kernel_id: str) -> dict[str, Any]:
        """Called by Jupyter's handlers for each kernel they show.

        A kernel that waits says why, and one that works is active now. A kernel of another user
        than the one of the request says so. A server in gateway mode leaves replaced kernels to us.
        """
        model: dict[str, Any] = super().kernel_model(kernel_id)
        model["last_activity"] = self.activity.active_until(kernel_id) or model["last_activity"]
        user, owner = current_user(), self.owner_of(kernel_id)
        kernel = self.get_kernel(kernel_id)
        if owner != user.name:
            model["access"], model["owner"] = access_of(user, self, kernel_id).word, owner
        elif isinstance(kernel, ManagedKernel) and kernel.replaces:
            model[ANSWER] = sorted(kernel.replaces)
        waiting = _waiting_reason(kernel)
        if waiting is not None:
            model["execution_state"], model["reason"] = "starting", waiting
        return model

    @property
    def has_images(self) -> bool:
        """Return whether kernels may have been started in containers. Asked by recovery."""
        return self.services.containers is not None and self.services.containers.has_images

    def is_in_container(self, kernel_id: str) -> bool:
        """Return whether the kernel runs in a container. Asked by the interception guard."""
        kernel = self.find(kernel_id)
        return kernel is not None and kernel.is_in_container

    async def until_there(self, kernel_id: str) -> None:
        """Wait until a kernel has started, and its link is made.

        Raises the error that its start failed with.
        """
        await asyncio.shield(cast("asyncio.Future[None]", self.get_kernel(kernel_id).ready))
        watching = self._pending_kernel_tasks.get(kernel_id)
        if watching is not None:
            await asyncio.wait({watching})

    # ---- activity

    def start_watching_activity(self, kernel_id: str) -> None:
        """Called by Jupyter when a kernel has started. Opens its link."""
        if not self.activity.follow(kernel_id):
            super().start_watching_activity(kernel_id)

    def _note_activity(self, at: datetime) -> None:
        self.last_kernel_activity = max(self.last_kernel_activity, at)

    def start_buffering(self, kernel_id: str, session_key: str, channels: Any) -> None:
        """Called when the last websocket closed.

        One over a link has no channels: the relay keeps what comes.
        """
        if channels:
            super().start_buffering(kernel_id, session_key, channels)

    # ---- start

    async def _async_start_kernel(self, *, kernel_id: str | None = None, path: Any = None, **kwargs: Any) -> str:
        """Called by POST /api/kernels and by sessions.

        Raises HTTPError for a kernel that could never start.

        Returns when the start is on disk: the next gateway knows each start that was answered.
        """
        if kernel_id is not None and kernel_id in self:
            if access_of(current_user(), self, kernel_id) is Access.NONE:
                raise HTTPError(409, f"Kernel already exists: {kernel_id}")
            await super()._async_start_kernel(kernel_id=kernel_id, path=path, **kwargs)
        else:
            # A server that is only just up does not know yet which sizes never fit its node.
            admission, name = self.services.admission, kwargs.get("kernel_name")
            if admission is not None and not admission.readiness.is_come and self.starts.requests_grant(name):
                await admission.readiness.wait()
            kernel_id = await self._start_new(kernel_id, path, kwargs)
        await self.handover.noted(kernel_id)
        return kernel_id

    start_kernel = _async_start_kernel

    async def _start_new(self, kernel_id: str | None, path: Any, kwargs: dict[str, Any]) -> str:
        user = current_user()
        # Sessions take an empty name as none, and Jupyter's own manager would fail on it.
        kwargs["kernel_name"] = kwargs.get("kernel_name") or None
        kernel_id = kernel_id or self.new_kernel_id()
        self.starts.check_id(kernel_id, user)
        kwargs["kernel_name"] = self.starts.with_requested_size(kwargs["kernel_name"])
        replaced = self.replacements.requested(user, requested_env())
        is_sized = self.starts.check(kwargs["kernel_name"], user, replaced)
        kwargs |= self.replacements.start_arguments(replaced)
        replaced = self.replacements.ended_here(replaced, waits=is_sized)
        kwargs |= self.starts.request_arguments(kwargs["kernel_name"])
        self.owners.note(kernel_id, user.name)
        try:
            await super()._async_start_kernel(kernel_id=kernel_id, path=path, **kwargs)
            if is_sized:
                self.replacements.replace_later(replaced)
            else:
                # A plain start is answered when it is done, as in Jupyter without pending kernels.
                await self._finish_start(kernel_id)
                self.replacements.replace_now(replaced)
        except BaseException as error:
            self.owners.forget(kernel_id)
            if isinstance(error, AliquotError):
                raise http_error(error) from error
            raise
        return kernel_id

    async def _finish_start(self, kernel_id: str) -> None:
        kernel = self.get_kernel(kernel_id)
        task = self._pending_kernels.get(kernel_id)
        if task is not None:
            await asyncio.shield(task)
        failure = kernel.start_failure() if isinstance(kernel, ManagedKernel) else kernel.ready.exception()
        if failure is not None:
            KERNEL_CURRENTLY_RUNNING_TOTAL.labels(type=kernel.kernel_name).dec()
            self.remove_kernel(kernel_id)
            raise failure
        watching = self._pending_kernel_tasks.get(kernel_id)
        if watching is not None:
            await asyncio.shield(watching)

    def pre_start_kernel(self, kernel_name: str | None, kwargs: dict[str, Any]) -> tuple[Any, str, str]:
        """Called by MultiKernelManager.start_kernel: makes the kernel's own manager."""
        kernel, name, kernel_id = super().pre_start_kernel(kernel_name, kwargs)
        if isinstance(kernel, ManagedKernel):
            self.introduce(kernel, kernel_id, kwargs)
            # Before the start is answered: a later gateway knows of each start that was.
            kernel.note(KernelState.PENDING)
        return kernel, name, kernel_id

    def introduce(self, kernel: ManagedKernel, kernel_id: str, arguments: Mapping[str, Any]) -> None:
        """Tell a new kernel its id, its owner and the arguments of its start."""
        user = current_user()
        kernel.introduce(kernel_id, self.owners.get(kernel_id) or user.name, user.teams, arguments)

    def make(self, kernel_id: str, kernelspec: str) -> ManagedKernel:
        """Make the manager of a kernel that is not listed yet. Called by the handover."""
        kernel, _, _ = super().pre_start_kernel(kernelspec, {"kernel_id": kernel_id})
        assert isinstance(kernel, ManagedKernel)  # recovery is made for this class alone
        return kernel

    def begin(self, kernel_id: str, kernel: ManagedKernel, first: Awaitable[None] | None = None) -> None:
        """Start a kernel after *first*, with the arguments that it was asked with.

        It is listed at once.
        """

        async def start() -> None:
            if first is not None:
                await first
            await kernel.start_kernel(**kernel.start_arguments)

        self._list(kernel_id, kernel, "starting")
        self._pending_kernels[kernel_id] = asyncio.create_task(self._add_kernel_when_ready(kernel_id, kernel, start()))
        self._pending_kernel_tasks[kernel_id] = asyncio.create_task(self._finish_kernel_start(kernel_id))

    def welcome(self, kernel: ManagedKernel) -> None:
        """List a kernel that runs already. Called by recovery."""
        self._list(kernel.kernel_id, kernel, "idle")
        self._pending_kernel_tasks[kernel.kernel_id] = asyncio.create_task(self._finish_kernel_start(kernel.kernel_id))

    def _list(self, kernel_id: str, kernel: ManagedKernel, state: str) -> None:
        if kernel_id not in self._kernels:
            KERNEL_CURRENTLY_RUNNING_TOTAL.labels(type=kernel.kernel_name).inc()
            self._kernel_connections[kernel_id] = 0
        self._kernels[kernel_id] = kernel
        kernel.execution_state, kernel.reason, kernel.last_activity = state, "", utcnow()

    async def _add_kernel_when_ready(self, kernel_id: str, km: Any, kernel_awaitable: Any) -> None:
        """Called by MultiKernelManager.start_kernel as a task.

        Sees a start through, and logs how it ended.
        """
        try:
            await kernel_awaitable
            if not self.use_pending_kernels:
                self._kernels[kernel_id] = km
        except AliquotError as error:
            self.log.info("kernel=%s start=%s reason=%s", kernel_id, type(error).__name__, error)
        except Exception:
            self.log.exception("kernel=%s start=failed", kernel_id)
        finally:
            self._pending_kernels.pop(kernel_id, None)

    async def _finish_kernel_start(self, kernel_id: str) -> None:
        """Called by MappingKernelManager.start_kernel as a task, which a shutdown cancels.

        Shielded: cancelling it must not cancel the kernel's own future, which others wait for.
        """
        await self._watch_when_ready(kernel_id)
        # A kept task would keep the start's request alive. The task of a start that failed stays
        # for those who wait.
        if self._pending_kernel_tasks.get(kernel_id) is asyncio.current_task():
            del self._pending_kernel_tasks[kernel_id]

    async def _watch_when_ready(self, kernel_id: str) -> None:
        kernel = self.get_kernel(kernel_id)
        try:
            await asyncio.shield(cast("asyncio.Future[None]", kernel.ready))
        except Exception as error:
            self.log.debug("kernel=%s never became ready: %s", kernel_id, error)
            return
        if kernel_id in self:
            await super()._finish_kernel_start(kernel_id)
            self.add_restart_callback(kernel_id, lambda: self._handle_kernel_restarts(kernel_id), "restart")

    # ---- restart, interrupt

    async def _async_restart_kernel(self, kernel_id: str, now: bool = False) -> Any:
        """Called by POST /api/kernels/{id}/restart.

        A kernel that waits keeps its place: nothing of it runs yet. A kernel whose start failed is
        started again.
        """
        self._check_kernel_id(kernel_id)
        kernel = self.get_kernel(kernel_id)
        if isinstance(kernel, ManagedKernel):
            if kernel_id in self._pending_kernels and kernel_id not in self._stopping:
                self.pending.restart(kernel_id)
                return None
            if kernel.start_failure() is not None:
                return self._start_again(kernel_id, kernel)
            kernel.last_crash = None
        return await super()._async_restart_kernel(kernel_id, now=now)

    restart_kernel = _async_restart_kernel

    def _start_again(self, kernel_id: str, kernel: ManagedKernel) -> None:
        if self.endings is not None:
            self.endings.runs_again(kernel_id)
        self.stop_watching_activity(kernel_id)
        kernel.queued_at = time.time()
        kernel.note(KernelState.PENDING)
        self.begin(kernel_id, kernel)

    # MultiKernelManager types it as returning None; Jupyter Server's is a coroutine, and its
    # handler awaits either.
    async def interrupt_kernel(self, kernel_id: str) -> None:  # type: ignore[override]
        """Called by POST /api/kernels/{id}/interrupt.

        Cells of a pending kernel leave the queue; the kernel stays.
        """
        self._check_kernel_id(kernel_id)
        state, reason = self.kernel_state(kernel_id)
        if state == "ended":
            raise HTTPError(409, f"Kernel {kernel_id} has ended ({reason or 'unknown reason'}). Restart it instead.")
        self.pending.interrupt(kernel_id)
        if self.get_kernel(kernel_id).ready.done():
            self.activity.note_interrupt(kernel_id)
            await ensure_async(super().interrupt_kernel(kernel_id))
            await self.activity.tell_interrupt(kernel_id)

    def update_env(self, *, kernel_id: str, env: dict[str, str]) -> None:
        """Called by PATCH /api/sessions/{id}: the notebook has another name.

        The session of another user than the owner names that user's own session, and not the
        kernel.
        """
        if current_user().name != self.owners.get(kernel_id):
            return
        super().update_env(kernel_id=kernel_id, env=env)
        kernel = self.find(kernel_id)
        if kernel is not None:
            self.handover.take_env(kernel, env)

    # ---- end

    async def end_kernel(self, kernel_id: str, asked: Asked, now: bool = False) -> None:
        """End the kernel for the reason *asked*, for example a rule of this server.

        A user's request does not come here.
        """
        self.services.check_end(asked)
        if self.endings is not None:
            self.endings.expect(kernel_id, asked)
        try:
            await self._end(kernel_id, now=now)
        finally:
            if self.endings is not None:
                self.endings.unexpect(kernel_id)

    async def _async_shutdown_kernel(
        self, kernel_id: str, now: bool | None = False, restart: bool | None = False
    ) -> None:
        """Called by DELETE /api/kernels/{id}, by culling and by sessions.

        Returns when it has ended, with its grant.

        It stays where the session that ends belongs to another user than the kernel's owner.
        """
        if self._may_end(kernel_id):
            await self._end(kernel_id, now, restart)
        else:
            user = current_user().name
            self.log.info("kernel=%s left=running requester=%s reason=not its owner, or too early", kernel_id, user)

    shutdown_kernel = _async_shutdown_kernel

    def _may_end(self, kernel_id: str) -> bool:
        """Return whether the request being served may end it; the server itself may."""
        return not is_spared(kernel_id) and access_of(current_user(), self, kernel_id) is Access.OWN

    async def _end(self, kernel_id: str, now: bool | None = False, restart: bool | None = False) -> None:
        """End the kernel once, also for two requests. Both return then."""
        stopping = self._stopping.get(kernel_id)
        if stopping is None:
            self._check_kernel_id(kernel_id)
            asked = self._asked(kernel_id)
            stopping = asyncio.create_task(self._stop(kernel_id, now, restart, asked), name=f"aliquot-stop-{kernel_id}")
            self._stopping[kernel_id] = stopping
            stopping.add_done_callback(lambda _: self._stopping.pop(kernel_id, None))
        await asyncio.shield(stopping)

    def _asked(self, kernel_id: str) -> Asked | None:
        if self.endings is None:
            return None
        return self.endings.asked(kernel_id, current_user().name, self.owners.get(kernel_id, ""))

    async def _stop(self, kernel_id: str, now: bool | None, restart: bool | None, asked: Asked | None) -> None:
        kernel = self.get_kernel(kernel_id)
        with restarts_of(kernel).none(is_meant=not restart):
            if isinstance(kernel, ManagedKernel) and not restart:
                kernel.note(KernelState.ENDING, asked)
                await kernel.noted()
            is_waiting = isinstance(kernel, ManagedKernel) and kernel.withdraw()
            if isinstance(kernel, ManagedKernel) and kernel_id not in self._pending_kernels:
                await kernel.until_restarted()
            await super()._async_shutdown_kernel(kernel_id, now=now, restart=restart)
            if (ending := self._pending_kernels.get(kernel_id)) is not None:
                await ending
            if kernel_id in self and not restart:
                raise HTTPError(500, f"Kernel {kernel_id} could not be ended. See the server's log.")
            if self.endings is not None and asked is not None and isinstance(kernel, ManagedKernel) and not restart:
                self.endings.ended(kernel, asked, is_waiting)

    def remove_kernel(self, kernel_id: str) -> Any:
        """Called by MultiKernelManager when a kernel has ended, or never started."""
        self._kernel_connections.pop(kernel_id, None)
        self.sharing.forget(kernel_id)
        self.owners.forget(kernel_id)
        self.handover.forget(kernel_id)
        self.activity.forget(kernel_id)
        kernel = super().remove_kernel(kernel_id)
        self.pending.end(kernel_id)
        if isinstance(kernel, ManagedKernel):
            kernel.let_go()
        return kernel

    def _handle_kernel_died(self, kernel_id: str) -> None:
        """Called by the restarter that has given up.

        Jupyter forgets the kernel then; its grant must be returned, too.
        """
        kernel = self._kernels.get(kernel_id)
        if self.endings is not None and isinstance(kernel, ManagedKernel):
            self.endings.given_up(kernel, restarter_of(kernel).restart_limit)
        provisioner = None if kernel is None else kernel.provisioner
        super()._handle_kernel_died(kernel_id)
        if isinstance(kernel, ManagedKernel):
            ending = asyncio.ensure_future(kernel.clean_up_removed(provisioner))
            self._clearing.add(ending)
            ending.add_done_callback(self._clearing.discard)

    def _handle_kernel_restarts(self, kernel_id: str) -> None:
        """Called by the restarter, which found it dead and is about to start it again."""
        if isinstance(kernel := self._kernels.get(kernel_id), ManagedKernel):
            kernel.restarts.found_dead()
            if self.endings is not None:
                self.endings.restarting(kernel)

    def start_failed(self, kernel: ManagedKernel, error: BaseException) -> None:
        """Called by a kernel whose start failed.

        A kernel that is being ended keeps that as its reason.
        """
        if self.endings is not None and kernel.kernel_id not in self._stopping and isinstance(error, Exception):
            self.endings.failed(kernel, error)

    async def _async_shutdown_all(self, now: bool = False) -> None:
        """Called when the server stops. A kernel that cannot be ended does not keep the others."""
        if self.handover.leaves_kernels:
            return
        kernel_ids = self.list_kernel_ids()
        if self.endings is not None:
            self.endings.expect_stop()
        starting = [task for kernel_id, task in self._pending_kernels.items() if kernel_id not in self._kernels]
        for task in starting:
            task.cancel()
        stops = [self._async_shutdown_kernel(kernel_id, now=now) for kernel_id in kernel_ids]
        replaced = self.replacements.under_way()
        results = await asyncio.gather(*stops, *starting, *replaced, *self._clearing, return_exceptions=True)
        await self.pending.stop()
        for result in results:
            if isinstance(result, Exception):
                self.log.error("shutdown=failed reason=%s", result)

    shutdown_all = _async_shutdown_all


def _waiting_reason(kernel: Any) -> str | None:
    return kernel.waiting_reason() if isinstance(kernel, ManagedKernel) else None
