"""One kernel of this server: waits for its grant, starts within it, and gives it back at its end.

The grant comes from admission and is handed to the provisioner by value. Without admission the provisioner asks itself.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any, Protocol, cast

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.kernelspec import KernelSpec, NoSuchKernel
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase
from jupyter_server.services.kernels.kernelmanager import ServerKernelManager, emit_kernel_action_event

from jupyter_aliquot.gateway.auth.shares import Shares
from jupyter_aliquot.gateway.containers.environment import without_servers_own
from jupyter_aliquot.gateway.containers.images import image_of
from jupyter_aliquot.gateway.containers.planner import (
    REQUEST_ENV,
    SESSION_VARIABLE,
    ContainerStart,
    refuse_without_planner,
)
from jupyter_aliquot.gateway.scheduling.ledger import Asker
from jupyter_aliquot.gateway.sizes.grammar import resized_name
from jupyter_aliquot.gateway.state.persistence import SizeWish
from jupyter_aliquot.gateway.state.records import KernelState
from jupyter_aliquot.gpu_hook.waiting import outlasting
from jupyter_aliquot.provisioner.containers.plan import ContainerPlan
from jupyter_aliquot.provisioner.errors import AliquotError, LaunchError, WithdrawnError
from jupyter_aliquot.provisioner.grants.codec import grant_record, stanza_request
from jupyter_aliquot.provisioner.provisioner import AliquotProvisioner
from jupyter_aliquot.provisioner.relay.wire.files import RelayRecord
from jupyter_aliquot.provisioner.resources import Grant, KernelProcess, Request
from jupyter_aliquot.provisioner.terminations import Asked, Ending, ProcessEnd

from .services import KernelServices

_ASKING = "asking for a GPU"
# Among the arguments of a start, so that a later gateway has them, too: the ids of those in whose place it comes.
REPLACES = "replaces"


class KernelListener(Protocol):
    """The kernel manager, told by its kernels of what happens to them."""

    def start_failed(self, kernel: ManagedKernel, error: BaseException) -> None:
        """Called when its start failed, after the kernel gave back what it had."""
        ...

    def end_replaced(self, kernel: ManagedKernel) -> None:
        """Called when it has its grant, or lacks nothing but the capacity of the kernels that it replaces."""
        ...


class ManagedKernel(ServerKernelManager):
    """Jupyter's manager of one kernel, with a grant. Made by AliquotKernelManager.pre_start_kernel.

    Without a *listener* there is no manager that keeps the reasons of failures or ends replaced kernels.
    """

    def __init__(
        self, *, services: KernelServices | None = None, listener: KernelListener | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        services = services or KernelServices()
        self.admission = services.admission
        self.containers = services.containers
        # The provisioner looks for it here: one for all kernels of the server.
        self.container_runtime = services.container_runtime
        self.memory = services.memory
        self._hides_servers_env = services.hides_servers_env
        self._listener = listener
        self.owner = ""
        # Those of its owner when it was asked for: caps count it there, whoever restarts it.
        self.teams: frozenset[str] = frozenset()
        # Seconds since the epoch: its place in the queue, also of a gateway that comes after us.
        self.queued_at = time.time()
        # What the first start was asked with: a start that failed can be tried again.
        self.start_arguments: dict[str, Any] = {}
        self._grant: Grant | None = None
        # The size that it waits for while it runs.
        self.wish: SizeWish | None = None
        self.shares = Shares()
        # Also of one that is no longer: what was told of it is told on.
        self.was_shared = False
        # Where it was in its life when that was last noted; None: it is to be forgotten.
        self._noted: KernelState | None = KernelState.RUNNING
        # How its process ended, once it did; why it was last restarted without anybody asking for it.
        self.process_end: ProcessEnd | None = None
        self.last_crash: Ending | None = None
        # The kernels of its owner that it replaces.
        self.replaces: frozenset[str] = frozenset()

    def introduce(self, kernel_id: str, owner: str, teams: frozenset[str], arguments: Mapping[str, Any]) -> None:
        """Take the facts of the request for this kernel. Jupyter makes a kernel's manager without them."""
        self.kernel_id, self.owner, self.teams = kernel_id, owner, teams
        self.start_arguments, self.replaces = dict(arguments), frozenset(arguments.get(REPLACES, ()))

    def request(self) -> Request | None:
        """What it has; before that, what its kernelspec asks for; None for a plain kernel. Raises RequestError."""
        if self._grant is not None:
            return self._grant.request
        return None if self.kernel_spec is None else stanza_request(self.kernel_spec.metadata)

    @property
    def is_in_container(self) -> bool:
        """Whether its kernelspec is an image of the catalogue."""
        return self.kernel_spec is not None and image_of(self.kernel_spec.metadata) is not None

    @property
    def label(self) -> str:
        """What people call it: its notebook, or else its kernelspec."""
        session = (self.start_arguments.get("env") or {}).get("JPY_SESSION_NAME", "")
        # Half a character of two is spelled out: no file and no answer in UTF-8 can hold it.
        return os.path.basename(session).encode(errors="backslashreplace").decode() or self.kernel_name

    def stanza(self) -> dict[str, Any]:
        """Its kernelspec, for a gateway that may not have it any more."""
        spec = self.kernel_spec
        return {} if spec is None else {**spec.to_dict(), "name": spec.name, "resource_dir": spec.resource_dir}

    def note(self, state: KernelState, asked: Asked | None = None) -> None:
        """Let a later gateway know where it is in its life."""
        self._noted = state
        if self.memory is not None:
            self.memory.note(self, state, asked)

    async def noted(self) -> None:
        """Wait until that is on the disk: what comes next may end this process."""
        if self.memory is not None:
            await self.memory.noted(self.kernel_id)

    def take_shares(self, shares: Shares) -> None:
        """It is shared so, for a later gateway, too. One that ends needs no note of it any more."""
        self.shares, self.was_shared = shares, self.was_shared or bool(shares)
        if self._noted not in (None, KernelState.ENDING):
            self.note(self._noted)

    @property
    def grant(self) -> Grant | None:
        """What it holds; None for a plain kernel, and for one that waits."""
        return self._grant

    def take_grant(self, grant: Grant) -> None:
        """Hold this grant, over restarts, too, and bear the name of its size, by which Jupyter's clients know it."""
        self._grant = grant
        name, before = resized_name(self.kernel_name, grant.request), self._kernel_spec
        if name == self.kernel_name:
            return
        self.kernel_name = name  # which forgets the kernelspec
        self._use_spec_of_name(before)

    async def apply_grant(self) -> str:
        """Have its process and its relay know the grant that it took. Tells what waits for the next start.

        Raises AliquotError.
        """
        grant = self._grant
        if grant is None:
            return ""  # it ended meanwhile
        provisioner, containers = self.provisioner, self.containers
        if not isinstance(provisioner, AliquotProvisioner) or provisioner.grant is None:
            return ""
        limits = None if containers is None else containers.limits_of(self.kernel_name, grant.request.gpus)
        return await provisioner.resize(grant, limits)

    async def adopt(self, relay: RelayRecord, process: KernelProcess | None, grant: Grant | None) -> None:
        """Take over one that was started by a gateway before us. ``process`` None: its relay stands alone."""
        self.load_connection_info(cast(KernelConnectionInfo, dict(relay.front)))
        stanza = relay.facts.get("spec") or {}
        self._use_spec_of_name(KernelSpec(**stanza) if stanza else None)
        if grant is not None:
            self.take_grant(grant)
        self._has_our_provisioner()
        assert self.provisioner is not None  # made a moment ago
        await self.provisioner.load_provisioner_info(_provisioner_info(relay, process, grant))
        self._launch_args, self._attempted_start = cast(Any, dict(self.start_arguments)), True
        if process is not None:
            self._ready = asyncio.get_running_loop().create_future()
            self._ready.set_result(None)
            self.start_restarter()
            # It has been up for long: should it die, clients stay at the same sockets.
            self._restarter._initial_startup = False
            self.write_connection_file()

    def _use_spec_of_name(self, before: KernelSpec | None) -> None:
        """Look its kernelspec up; one that is no longer there goes on as it was, ``before``."""
        try:
            found = self.kernel_spec
        except NoSuchKernel:
            found = None
        if found is None and before is not None:
            self._kernel_spec = before

    def outlives_us(self) -> bool:
        """Whether it goes on when this server ends: it has a relay that waits for us, or has not begun."""
        if self.memory is None or not self.memory.gateway:
            return False
        return not self.has_kernel or self.memory.has_relay(self.kernel_id)

    def waiting_reason(self) -> str | None:
        """Why it waits for a grant; None when it does not."""
        if self._ready is not None and self._ready.done():
            return None  # only a start waits, and this one is over
        entry = None if self.admission is None else self.admission.waiting(self.kernel_id)
        if entry is not None:
            return entry.reason
        if isinstance(self.provisioner, AliquotProvisioner) and self.provisioner.is_asking:
            return _ASKING
        return None if self.container_runtime is None else self.container_runtime.waiting_reason(self.kernel_id)

    def withdraw(self) -> bool:
        """Give up waiting for a grant; tells whether it waited. Its start then fails with WithdrawnError."""
        if self.admission is not None and self.admission.withdraw(self.kernel_id):
            return True
        return isinstance(self.provisioner, AliquotProvisioner) and self.provisioner.withdraw()

    def start_failure(self) -> BaseException | None:
        """Why the last start failed; None when it did not, or is under way."""
        ready = self._ready
        return ready.exception() if ready is not None and ready.done() and not ready.cancelled() else None

    @emit_kernel_action_event(success_msg="Kernel {kernel_id} was started.")
    async def start_kernel(self, **kwargs: Any) -> None:
        """Called by the multi-kernel manager. The grant is waited for here, so that it need not wait."""
        self.start_arguments = dict(kwargs)
        await self._async_start_kernel(**kwargs)

    async def _async_start_kernel(self, **kwargs: Any) -> None:
        """Called by start_kernel, and by KernelManager.restart_kernel with the old arguments.

        Jupyter's own does the same without the wait, and logs each failure with its traceback.
        """
        self.kernel_id = self.kernel_id or kwargs["kernel_id"]
        if self._ready is None or self._ready.done():
            self._ready = asyncio.get_running_loop().create_future()
        # In a server there is always a loop, so that this is never the other kind of future.
        ready = cast("asyncio.Future[None]", self._ready)
        try:
            await self.noted()
            grant = await self._get_grant(kwargs)
            if grant is not None:
                kwargs["grant"] = grant
            kwargs.pop(REQUEST_ENV, None)
            kwargs.pop(REPLACES, None)
            if self._hides_servers_env():
                kwargs["env"] = without_servers_own(kwargs.get("env") or os.environ)
            # Made anew at each restart, too: folders are looked at again, and may have been taken back.
            container = await self._get_container(kwargs)
            if container is not None:
                kwargs["container"] = container
            if self.memory is not None and self.memory.gateway and self._has_our_provisioner():
                kwargs["relay_facts"] = self.memory.facts(self, grant)
            self._attempted_start = True
            command, kwargs = await self._async_pre_start_kernel(**kwargs)
            await self._async_launch_kernel(command, **kwargs)
            self.note(KernelState.RUNNING)
            await self._async_post_start_kernel(**kwargs)
        except BaseException as error:
            await asyncio.shield(self._give_up(error))
            _fail(ready, error)
            raise
        if not ready.done():
            ready.set_result(None)

    async def _async_post_start_kernel(self, **kwargs: Any) -> None:
        """Called by _async_start_kernel. Jupyter opens a socket to end the kernel with; it does so again at its end."""
        await super()._async_post_start_kernel(**kwargs)
        self._close_control_socket()

    def _has_our_provisioner(self) -> bool:
        """Made here, as Jupyter would a moment later: another one would hand what it does not know on to Popen."""
        if self.provisioner is None:
            factory = KernelProvisionerFactory.instance(parent=self.parent)
            self.provisioner = factory.create_provisioner_instance(self.kernel_id, self.kernel_spec, parent=self)
        return isinstance(self.provisioner, AliquotProvisioner)

    async def _get_grant(self, kwargs: dict[str, Any]) -> Grant | None:
        """The grant it holds, or the one it waits for; None for a plain kernel. Raises AliquotError."""
        request = self.request()
        if request is None or self.admission is None:
            return None
        if self._grant is None:
            asker = Asker(self.kernel_id, self.owner, self.label, self.kernel_name, self.teams, self.replaces)
            self._grant = await self.admission.submit(asker, request, None, self.queued_at, self._end_replaced)
            self._end_replaced()
        return self._grant

    def _end_replaced(self) -> None:
        if self._listener is not None:
            self._listener.end_replaced(self)

    async def _get_container(self, kwargs: dict[str, Any]) -> ContainerPlan | None:
        """The container that it starts in; None for a process of this machine. Raises AliquotError."""
        spec = self.kernel_spec
        image = None if spec is None else image_of(spec.metadata)
        if image is None:
            return None
        if self.containers is None:
            raise refuse_without_planner(self.kernel_name, image)
        request = self.request()
        plan = await self.containers.plan(
            ContainerStart(
                kernel_name=self.kernel_name,
                owner=self.owner,
                share=None if request is None else request.gpus,
                folder=str(kwargs.get("cwd") or ""),
                session=(kwargs.get("env") or {}).get(SESSION_VARIABLE, ""),
                env=tuple(self.start_arguments.get(REQUEST_ENV, {}).items()),
            )
        )
        if plan is None:
            # A kernel that was adopted may be of an image that is offered no more. It must not run outside.
            raise LaunchError(f"asked to start a kernel in the image {image}; found no such image in the catalogue")
        return plan

    async def until_restarted(self) -> None:
        """Jupyter's multi-kernel manager reads whether the start failed, and cannot while a restart is under way."""
        if self._ready is not None and not self._ready.done():
            await asyncio.wait({cast("asyncio.Future[None]", self._ready)})

    def start_restarter(self) -> None:
        """Called by Jupyter once the kernel runs. Its timer goes on for the kernel's life."""
        outlasting(super().start_restarter)

    async def restart_kernel(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """Called by the multi-kernel manager, and by the restarter."""
        self.note(KernelState.RESTARTING)
        await self.noted()
        return await super().restart_kernel(*args, **kwargs)

    async def _give_up(self, error: BaseException) -> None:
        """After a start that failed: no process, no grant, and the reason for whoever looks."""
        # The restarter would try for ever what has just been found not to work.
        self.stop_restarter()
        if self.has_kernel:
            await self._async_kill_kernel()
        await self._async_cleanup_resources(restart=False)
        self._noted = None
        if self.memory is not None:
            self.memory.forget(self.kernel_id)
        self.execution_state = "dead"
        self.reason = str(error) if isinstance(error, AliquotError) else f"the kernel could not be started: {error!r}"
        if self._listener is not None:
            self._listener.start_failed(self, error)

    def let_go(self) -> None:
        """It is removed. Its parts, which know it as their parent, are no longer its own: so all of it is freed at
        once, and not when Python next looks for garbage among a thousand kernels."""
        self.provisioner = self._restarter = None
        error = self.start_failure()
        while error is not None:  # its frames know the kernel
            error.__traceback__, error = None, error.__cause__ or error.__context__

    async def clean_up_removed(self, provisioner: KernelProvisionerBase | None) -> None:
        """Of one that was removed first, for its restarter gave up: what it had of a process, relay and grant ends."""
        self.provisioner = provisioner
        try:
            await self._async_cleanup_resources(restart=False)
        finally:
            self.let_go()

    async def _async_is_alive(self) -> bool:
        """Called by the restarter, and while its end is waited for: the moment at which how it ended is known."""
        is_alive = await super()._async_is_alive()
        if not is_alive and isinstance(self.provisioner, AliquotProvisioner):
            self.process_end = await self.provisioner.ending()
        return is_alive

    is_alive = _async_is_alive  # type: ignore[assignment]  # Jupyter's base class has it synchronous

    async def _async_cleanup_resources(self, restart: bool = False) -> None:
        """Called by KernelManager.shutdown_kernel. Before a restart the grant is kept, else it ends here."""
        try:
            await super()._async_cleanup_resources(restart=restart)
        finally:
            if not restart and self.admission is not None:
                self._grant = None
                await self.admission.release(self.kernel_id)


def _provisioner_info(relay: RelayRecord, process: KernelProcess | None, grant: Grant | None) -> dict[str, Any]:
    """What a provisioner is told that did not start its kernel; see AliquotProvisioner.get_provisioner_info."""
    return {
        "kernel_id": relay.kernel_id,
        "connection_info": dict(relay.front),
        "pid": None if process is None else process.pid,
        "pgid": None if process is None else process.process_group,
        "ip": relay.front["ip"],
        "grant": None if grant is None else grant_record(grant),
        "is_self_granted": False,
        "relay": os.fspath(relay.folder),
        "process": None if process is None else list(astuple(process)[1:]),
    }


def _fail(ready: asyncio.Future[None], error: BaseException) -> None:
    """A start that was cancelled has failed, too: whoever waits for it must hear of it."""
    if ready.done():
        return
    if not isinstance(error, Exception):
        error = WithdrawnError("the start of the kernel was cancelled")
    ready.set_exception(error)
    # Seen: the kernel's reason says it, whether somebody waits or not.
    ready.exception()
