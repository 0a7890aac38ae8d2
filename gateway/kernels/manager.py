"""The kernels of this server: whose they are, which of them wait for a grant, and how each of them ends.

Who gets a grant is admission's matter, and a single kernel's start managed_kernel's.
"""

# mypy: disable-error-code="no-untyped-call, attr-defined, assignment"
# Jupyter Server's kernel managers carry no types, and define their coroutines twice, as functions and as attributes.
from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, cast

import zmq
import zmq.asyncio
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_server.prometheus.metrics import KERNEL_CURRENTLY_RUNNING_TOTAL
from tornado.web import HTTPError
from traitlets import Bool, default

from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.gateway.auth.identity import access_of, current_user
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.http_errors import http_error
from jupyter_aliquot.gateway.containers.planner import REQUEST_ENV, ContainerPlanner
from jupyter_aliquot.gateway.kernelspecs.manager import SizedKernelSpecManager
from jupyter_aliquot.gateway.limits.guard import LimitGuard
from jupyter_aliquot.gateway.scheduling.ledger import Asker
from jupyter_aliquot.gateway.sizes.environment import with_size
from jupyter_aliquot.gateway.state.records import KernelState
from jupyter_aliquot.gpu_hook.paths import KERNEL_ID
from jupyter_aliquot.provisioner.engine.runtime import ContainerRuntime
from jupyter_aliquot.provisioner.errors import AliquotError
from jupyter_aliquot.provisioner.grants.codec import stanza_request
from jupyter_aliquot.provisioner.terminations import Asked

from .first_word import FirstWord, after_first_word
from .kernel import REPLACES, ManagedKernel
from .replacement import ReplacingKernelManager
from .request_context import requested_env

# ZeroMQ's own 100 ms let a kernel that is up wait for its server: 70 ms on average, of a start of 300.
_TRY_AGAIN_MILLISECONDS = 10


class AliquotKernelManager(ReplacingKernelManager):
    """Jupyter's kernel manager, with owners and grants. ``admission`` is the extension's; None: it is not loaded."""

    use_pending_kernels = Bool(
        True, help="Whether a start is answered before the kernel has its grant; if not, the request itself waits."
    ).tag(config=True)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.containers: ContainerPlanner | None = None
        self.limits: LimitGuard | None = None
        self.container_runtime: ContainerRuntime | None = None
        self.hides_servers_env = False
        self.first_word: FirstWord | None = None

    @default("context")
    def _context_default(self) -> zmq.asyncio.Context:
        """Called by MultiKernelManager. Sockets connect before their kernel listens, and try again until it does."""
        context = super()._context_default()
        context.setsockopt(zmq.RECONNECT_IVL, _TRY_AGAIN_MILLISECONDS)
        return context

    @default("kernel_manager_class")
    def _managed_kernels(self) -> str:
        return "jupyter_aliquot.gateway.kernels.kernel.ManagedKernel"

    # ---- what others ask

    def kernel_state(self, kernel_id: str) -> tuple[str, str]:
        """Where it is in its life (pending, starting, resident, ended), and why. Raises HTTPError 404."""
        kernel = self.get_kernel(kernel_id)
        waiting = _waiting_reason(kernel)
        if waiting is not None:
            return "pending", waiting
        if kernel.execution_state == "dead":
            return "ended", kernel.reason
        # Jupyter says "starting" until a client connects, and while it ends; for us a kernel holds what it was granted.
        return "resident" if kernel.ready.done() or kernel_id in self._stopping else "starting", kernel.reason

    def connections(self, kernel_id: str) -> int:
        """How many browsers and other clients of its owner's look at it through this server. Asked by the culler."""
        return int(self._kernel_connections.get(kernel_id, 0)) - self.guests_of(kernel_id)

    def initialize_culler(self) -> None:
        """Called by Jupyter at each start. Its culler goes by `execution_state`; where ours is, it stays out."""
        if self.endings is None:
            super().initialize_culler()

    def kernel_model(self, kernel_id: str) -> dict[str, Any]:
        """Called by Jupyter's handlers for each kernel they show. A kernel that waits says why."""
        model: dict[str, Any] = super().kernel_model(kernel_id)
        waiting = _waiting_reason(self.get_kernel(kernel_id))
        if waiting is not None:
            model["execution_state"], model["reason"] = "starting", waiting
        return model

    @property
    def has_images(self) -> bool:
        """Whether kernels may have been started in containers. Asked by adoption."""
        return self.containers is not None and self.containers.has_images

    def is_in_container(self, kernel_id: str) -> bool:
        """Asked by the interception guard."""
        kernel = self._kernels.get(kernel_id)
        return isinstance(kernel, ManagedKernel) and kernel.is_in_container

    # ---- start

    @after_first_word
    async def _async_start_kernel(self, *, kernel_id: str | None = None, path: Any = None, **kwargs: Any) -> str:
        """Called by POST /api/kernels and by sessions. Raises HTTPError for what could never start."""
        user = current_user()
        if kernel_id is not None and kernel_id in self:
            if access_of(user, self, kernel_id) is Access.NONE:
                raise HTTPError(409, f"Kernel already exists: {kernel_id}")
            return str(await super()._async_start_kernel(kernel_id=kernel_id, path=path, **kwargs))
        if kernel_id is not None and self._was_anothers(kernel_id, user):
            # Its owner's notebooks come back to this id, and would run in a kernel that is not his.
            raise HTTPError(409, f"Kernel already exists: {kernel_id}")
        # A name of no letters is none: sessions take it so, and Jupyter's own manager would fail on it.
        kwargs["kernel_name"] = kwargs.get("kernel_name") or None
        kernel_id = kernel_id or self.new_kernel_id()
        if not KERNEL_ID.fullmatch(kernel_id):
            raise HTTPError(400, f"asked kernel id {kernel_id!r}; an id has 1 to 36 letters, digits, '_', '.', '-'")
        kwargs["kernel_name"] = self.with_requested_size(kwargs["kernel_name"])
        replaced = self.asked_to_replace(user, requested_env())
        is_sized = self._check_start(kwargs["kernel_name"], user, replaced)
        kwargs |= self.intended(replaced)
        replaced = self.ended_by_us(replaced, waits=is_sized)
        if self.containers is not None and self.containers.wants(kwargs["kernel_name"] or self.default_kernel_name):
            kwargs[REQUEST_ENV] = self.containers.allowed_env(requested_env())
        self.owners.note(kernel_id, user.name)
        try:
            await super()._async_start_kernel(kernel_id=kernel_id, path=path, **kwargs)
            if is_sized:
                self.replace_later(replaced)
            else:
                # As Jupyter does without pending kernels: a plain start is answered when it is done.
                await self._finish_start(kernel_id)
                self.replace_now(replaced)
        except BaseException as error:
            self.owners.forget(kernel_id)
            if isinstance(error, AliquotError):
                raise http_error(error) from error
            raise
        return kernel_id

    start_kernel = _async_start_kernel

    def _was_anothers(self, kernel_id: str, user: User) -> bool:
        """Whether a kernel of this id has ended that somebody else had; an administrator may do everything with it."""
        ended = None if self.endings is None else self.endings.remembered.of(kernel_id)
        return ended is not None and ended.owner != user.name and not user.is_admin

    def with_requested_size(self, kernel_name: str | None) -> str | None:
        """The kernelspec in the size that the request's body names, where it has sizes. Raises HTTPError 400."""
        specs, name = self.kernel_spec_manager, kernel_name or self.default_kernel_name
        if not isinstance(specs, SizedKernelSpecManager):
            return kernel_name
        try:
            sized = with_size(name, requested_env(), specs.settings.largest())
        except AliquotError as error:
            raise http_error(error) from error
        return sized if sized != name and specs.has_sizes(name) else kernel_name

    def _check_start(self, kernel_name: str | None, user: User, replaced: frozenset[str]) -> bool:
        """Whether this kernelspec asks for a grant. Raises HTTPError for what waiting cannot help, and NoSuchKernel."""
        try:
            if self.limits is not None:
                has = len(self.owners.of(user.name)) - len(replaced)
                self.limits.check_kernels(user.name, has, is_admin=user.is_admin)
            specs = cast(KernelSpecManager, self.kernel_spec_manager)
            name = kernel_name or self.default_kernel_name
            spec = specs.get_kernel_spec(name)
            request = stanza_request(spec.metadata)
            if request is not None and self.admission is not None:
                asker = Asker("", user.name, kernelspec=name, teams=user.teams, replaces=replaced)
                self.admission.check(asker, request)
        except AliquotError as error:
            raise http_error(error) from error
        return request is not None

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
            self._introduce(kernel, kernel_id, kwargs)
            # Before the start is answered: what was answered is found again.
            kernel.note(KernelState.PENDING)
        return kernel, name, kernel_id

    def _introduce(self, kernel: ManagedKernel, kernel_id: str, arguments: Mapping[str, Any]) -> None:
        """Make a new kernel one of ours."""
        kernel.kernel_id, kernel.admission, kernel.containers = kernel_id, self.admission, self.containers
        kernel.container_runtime, kernel.hides_servers_env = self.container_runtime, self.hides_servers_env
        user = current_user()
        kernel.owner, kernel.teams = self.owners.get(kernel_id) or user.name, user.teams
        kernel.tell_failed = self._handle_start_failed
        kernel.memory, kernel.start_arguments = self.memory, dict(arguments)
        kernel.replaces, kernel.end_replaced = frozenset(arguments.get(REPLACES, ())), self.end_replaced

    async def _add_kernel_when_ready(self, kernel_id: str, km: Any, kernel_awaitable: Any) -> None:
        """Called by MultiKernelManager.start_kernel as a task: sees a start through, and logs how it ended."""
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
        # Kept, it would keep the request that asked for the kernel. One that failed is looked for by who waits.
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

        A kernel that waits keeps its place: nothing of it runs yet. One whose start failed is started again.
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

    def interrupt_kernel(self, kernel_id: str) -> Any:
        """Called by POST /api/kernels/{id}/interrupt. Cells of a pending kernel leave the queue; the kernel stays."""
        self._check_kernel_id(kernel_id)
        state, reason = self.kernel_state(kernel_id)
        if state == "ended":
            raise HTTPError(409, f"asked to interrupt kernel {kernel_id}; it has ended ({reason or 'unknown reason'})")
        self.pending.interrupt(kernel_id)
        return super().interrupt_kernel(kernel_id) if self.get_kernel(kernel_id).ready.done() else None

    # ---- end

    async def end_kernel(self, kernel_id: str, asked: Asked, now: bool = False) -> None:
        """End it for a reason that is not a user's request: a rule of this server, for example."""
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
        """Called by DELETE /api/kernels/{id}, by culling and by sessions. Returns when it has ended, with its grant.

        For the session of who does not own it, it stays.
        """
        if self.may_end(kernel_id):
            await self._end(kernel_id, now, restart)
        else:
            asker = current_user().name
            self.log.info("kernel=%s left=running asker=%s reason=not its owner, or too early", kernel_id, asker)

    shutdown_kernel = _async_shutdown_kernel

    async def _end(self, kernel_id: str, now: bool | None = False, restart: bool | None = False) -> None:
        """Asked twice, it ends once, and both are answered then."""
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
        if isinstance(kernel, ManagedKernel) and not restart:
            kernel.note(KernelState.ENDING, asked)
            await kernel.noted()
        is_waiting = isinstance(kernel, ManagedKernel) and kernel.withdraw()
        if isinstance(kernel, ManagedKernel) and kernel_id not in self._pending_kernels:
            await kernel.until_restarted()
        await super()._async_shutdown_kernel(kernel_id, now=now, restart=restart)
        ending = self._pending_kernels.get(kernel_id)
        if ending is not None:
            await ending
        if kernel_id in self and not restart:
            raise HTTPError(500, f"asked to end kernel {kernel_id}; it could not be ended, see the server's log")
        if self.endings is not None and asked is not None and isinstance(kernel, ManagedKernel) and not restart:
            self.endings.ended(kernel, asked, is_waiting)

    def remove_kernel(self, kernel_id: str) -> Any:
        """Called by MultiKernelManager when a kernel has ended, or never started."""
        self._kernel_connections.pop(kernel_id, None)
        return super().remove_kernel(kernel_id)

    def _handle_kernel_died(self, kernel_id: str) -> None:
        """Called by the restarter that has given up. Jupyter forgets the kernel then; its grant must end, too."""
        kernel = self._kernels.get(kernel_id)
        if self.endings is not None and isinstance(kernel, ManagedKernel):
            self.endings.given_up(kernel, kernel._restarter.restart_limit)
        provisioner = None if kernel is None else kernel.provisioner
        super()._handle_kernel_died(kernel_id)
        if isinstance(kernel, ManagedKernel):
            ending = asyncio.ensure_future(kernel.clean_up_removed(provisioner))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    def _handle_kernel_restarts(self, kernel_id: str) -> None:
        """Called by the restarter, which found it dead and is about to start it again."""
        kernel = self._kernels.get(kernel_id)
        if self.endings is not None and isinstance(kernel, ManagedKernel):
            self.endings.restarting(kernel)

    def _handle_start_failed(self, kernel: ManagedKernel, error: BaseException) -> None:
        """Called by a kernel whose start failed. One that is being ended leaves that as its reason."""
        if self.endings is not None and kernel.kernel_id not in self._stopping and isinstance(error, Exception):
            self.endings.failed(kernel, error)

    async def _async_shutdown_all(self, now: bool = False) -> None:
        """Called when the server stops. One kernel that cannot be ended does not keep the others."""
        if self.leaves_kernels:
            return
        kernel_ids = self.list_kernel_ids()
        if self.endings is not None:
            self.endings.expect_stop()
        starting = [task for kernel_id, task in self._pending_kernels.items() if kernel_id not in self._kernels]
        for task in starting:
            task.cancel()
        stops = [self._async_shutdown_kernel(kernel_id, now=now) for kernel_id in kernel_ids]
        results = await asyncio.gather(*stops, *starting, *self._ending, return_exceptions=True)
        await self.pending.stop()
        for result in results:
            if isinstance(result, Exception):
                self.log.error("shutdown=failed reason=%s", result)

    shutdown_all = _async_shutdown_all


def _waiting_reason(kernel: Any) -> str | None:
    return kernel.waiting_reason() if isinstance(kernel, ManagedKernel) else None
