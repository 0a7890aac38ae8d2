"""One kernel of this server: it waits for its grant, starts within it, and returns it at its end.

The grant comes from admission and is handed to the provisioner by value. Without admission the
provisioner asks itself.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import astuple
from functools import partial
from typing import Any, Protocol, cast

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.kernelspec import KernelSpec, NoSuchKernel
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase
from jupyter_events import EventLogger
from jupyter_server.services.kernels.kernelmanager import ServerKernelManager, emit_kernel_action_event
from traitlets import default

from jupyter_aliquot.gateway.base.jupyter_private import has_started_before
from jupyter_aliquot.gateway.containers.environment import without_servers_own
from jupyter_aliquot.gateway.containers.images import image_of
from jupyter_aliquot.gateway.containers.planner import (
    REQUEST_ENV,
    SESSION_VARIABLE,
    ContainerStart,
    refuse_without_planner,
)
from jupyter_aliquot.gateway.reports.kernel import OwnerMessage
from jupyter_aliquot.gateway.scheduling.ledger import KernelRef
from jupyter_aliquot.gateway.sharing.shares import UNSHARED, Shares
from jupyter_aliquot.gateway.sizes.grammar import resized_name
from jupyter_aliquot.gateway.sizes.wish import ARGUMENT as WISH, wish_of
from jupyter_aliquot.gateway.state.persistence import PendingResize
from jupyter_aliquot.gateway.state.records import KernelState
from jupyter_aliquot.gateway.terminations.failures import is_worth_a_retry
from jupyter_aliquot.gpu_hook.waiting import outlasting
from jupyter_aliquot.provisioner.containers.plan import ContainerPlan
from jupyter_aliquot.provisioner.control_groups import GroupLimits
from jupyter_aliquot.provisioner.errors import AliquotError, LaunchError
from jupyter_aliquot.provisioner.grants.codec import grant_record, stanza_host_part, stanza_request
from jupyter_aliquot.provisioner.provisioner import AliquotProvisioner
from jupyter_aliquot.provisioner.relay.wire.files import RelayRecord
from jupyter_aliquot.provisioner.resources import NO_HOST_PART, Bytes, Grant, HostPart, KernelProcess, Request
from jupyter_aliquot.provisioner.terminations import Asked, Ending, ProcessEnd

from .changes import CountsChanges
from .owner_accounts import OwnerAccounts
from .restarts import CalmRestarter, Restarts, fail
from .services import KernelServices, event_logger_of

_ASKING = "asking for a GPU"
# The ids of the kernels that a start replaces. They are among its arguments, so that a later
# gateway has them, too.
REPLACES = "replaces"


# What a report tells of a kernel that is not of our class, where ManagedKernel.reported is missing.
NOT_REPORTED: tuple[Ending | None, Shares, OwnerMessage | None] = (None, UNSHARED, None)


class KernelListener(Protocol):
    """The kernel manager, which its kernels notify of their events."""

    def start_failed(self, kernel: ManagedKernel, error: BaseException) -> None:
        """Called when its start failed, after the kernel gave back what it had."""
        ...

    def end_replaced(self, kernel: ManagedKernel) -> None:
        """Called when the kernel has its grant, or lacks only the replaced kernels' capacity."""
        ...


class ManagedKernel(CountsChanges, ServerKernelManager):
    """Jupyter's manager of one kernel, with a grant. Made by AliquotKernelManager.pre_start_kernel.

    Without a *listener* there is no manager that keeps the reasons of failures or ends replaced
    kernels.
    """

    # Seconds before each new try of a start that failed by the infrastructure's fault.
    retry_pauses: tuple[float, ...] = (1.0, 5.0)
    _needs_control = True

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
        self._links = services.links
        self._hides_servers_env = services.hides_servers_env
        self._refuses_processes = services.refuses_processes
        self._accounts = services.accounts
        self._limits_processes = services.limits_processes and services.accounts is not None
        self._listener = listener
        self.owner = ""
        # The owner's teams when the kernel was requested. Their quotas count it, also after a
        # restart by another user.
        self.teams: frozenset[str] = frozenset()
        # Seconds since the epoch. They decide its place in the queue, also in a later gateway.
        self.queued_at = time.time()
        # The arguments of the first start, so that a start that failed can be tried again.
        self.start_arguments: dict[str, Any] = {}
        self._grant: Grant | None = None
        # The size that it waits for while it runs.
        self.pending_resize: PendingResize | None = None
        self.shares = Shares()
        # True also after it is no longer shared: users who were told of it are told of its changes.
        self.was_shared = False
        self.restarts = Restarts()
        # The state that was last noted. None: a later gateway is to forget the kernel.
        self._noted: KernelState | None = KernelState.RUNNING
        # How its process ended, and why the kernel was last restarted without a request.
        self.process_end: ProcessEnd | None = None
        self.last_crash: Ending | None = None
        # The last message of an administrator to its owner.
        self.owner_message: OwnerMessage | None = None
        # The kernels of its owner that it replaces.
        self.replaces: frozenset[str] = frozenset()

    @default("event_logger")
    def _default_event_logger(self) -> EventLogger:
        """Called at the first event. Jupyter's own reads and checks the events' schema for each kernel: 20 ms."""
        found = None if self.extra_event_schema_paths else event_logger_of(getattr(self.parent, "parent", None))
        return found or super()._default_event_logger()

    def introduce(self, kernel_id: str, owner: str, teams: frozenset[str], arguments: Mapping[str, Any]) -> None:
        """Take the facts of the request for this kernel.

        Jupyter makes a kernel's manager without them.
        """
        self.kernel_id, self.owner, self.teams = kernel_id, owner, teams
        self.start_arguments, self.replaces = dict(arguments), frozenset(arguments.get(REPLACES, ()))

    def request(self) -> Request | None:
        """Return the size that it holds, or else the one that its kernelspec requests.

        None for a plain kernel. Raises RequestError.
        """
        if self._grant is not None:
            return self._grant.request
        return None if self.kernel_spec is None else stanza_request(self.kernel_spec.metadata)

    @property
    def host_part(self) -> HostPart:
        """The part of the host that its kernelspec requests; none if that is gone. Raises RequestError."""
        try:
            spec = self.kernel_spec
        except NoSuchKernel:
            spec = None
        return NO_HOST_PART if spec is None else stanza_host_part(spec.metadata)

    @property
    def is_in_container(self) -> bool:
        """Return whether its kernelspec is an image of the catalogue."""
        return self.kernel_spec is not None and image_of(self.kernel_spec.metadata) is not None

    @property
    def label(self) -> str:
        """The name that users know: its notebook's, or else its kernelspec's."""
        session = (self.start_arguments.get("env") or {}).get("JPY_SESSION_NAME", "")
        # A lone surrogate is spelled out: no file and no answer in UTF-8 can hold it.
        return os.path.basename(session).encode(errors="backslashreplace").decode() or self.kernel_name

    def stanza(self) -> dict[str, Any]:
        """Return its kernelspec, for a later gateway in which it may not exist any more."""
        try:
            spec = self.kernel_spec
        except NoSuchKernel:
            spec = None
        return {} if spec is None else {**spec.to_dict(), "name": spec.name, "resource_dir": spec.resource_dir}

    def note(self, state: KernelState, asked: Asked | None = None) -> None:
        """Write the kernel's state into its record, for a later gateway."""
        self._noted = state
        if self.memory is not None:
            self.memory.note(self, state, asked)

    async def noted(self) -> None:
        """Wait until the record is on disk: the next step may end this process."""
        if self.memory is not None:
            await self.memory.noted(self.kernel_id)

    def take_shares(self, shares: Shares) -> None:
        """Take the kernel's shares, and note them for a later gateway unless the kernel ends."""
        self.shares, self.was_shared = shares, self.was_shared or bool(shares)
        if self._noted not in (None, KernelState.ENDING):
            self.note(self._noted)

    @property
    def reported(self) -> tuple[Ending | None, Shares, OwnerMessage | None]:
        """The facts that reports tell, and that it alone keeps: its last crash, its shares and a message."""
        return self.last_crash, self.shares, self.owner_message

    @property
    def grant(self) -> Grant | None:
        """The grant that it holds; None for a plain kernel, and for one that waits."""
        return self._grant

    def take_grant(self, grant: Grant) -> None:
        """Hold this grant, over restarts, too.

        Take the name of its size, by which Jupyter's clients know the kernel.
        """
        self._grant = grant
        name, before = self._name_in_size_of(grant), self._kernel_spec
        if name == self.kernel_name:
            return
        self.kernel_name = name  # which forgets the kernelspec
        self._use_spec_of_name(before)

    def _name_in_size_of(self, grant: Grant) -> str:
        containers = self.containers
        if containers is None:
            return resized_name(self.kernel_name, grant.request)
        # A name that keeps more than the new size may have would be refused at the next start.
        fit = partial(containers.nearest_part, self.kernel_name, grant.request.gpus)
        return resized_name(self.kernel_name, grant.request, fit)

    async def apply_grant(self) -> str:
        """Tell the grant that it took to its process and its relay.

        Returns a sentence about the parts that wait for its next start; empty for none. Raises
        AliquotError.
        """
        grant = self._grant
        if grant is None:
            return ""  # it ended meanwhile
        provisioner, containers = self.provisioner, self.containers
        if not isinstance(provisioner, AliquotProvisioner) or provisioner.grant is None:
            return ""
        share, host = grant.request.gpus, self.host_part
        limits = None if containers is None else containers.limits_of(self.kernel_name, share, host)
        if limits is None and containers is not None and self._limits_processes:
            limits = containers.group_limits(share, host)
        return await provisioner.resize(grant, limits)

    async def adopt(self, relay: RelayRecord, process: KernelProcess | None, grant: Grant | None) -> None:
        """Take over a kernel that an earlier gateway started.

        Without *process*, its relay runs alone.
        """
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
            # It has been up for long. If it dies, its clients stay at the same sockets.
            has_started_before(self._restarter)
            self.write_connection_file()

    def _use_spec_of_name(self, before: KernelSpec | None) -> None:
        """Look its kernelspec up by name. Where there is none any more, keep *before*."""
        try:
            found = self.kernel_spec
        except NoSuchKernel:
            found = None
        if found is None and before is not None:
            self._kernel_spec = before

    def outlives_us(self) -> bool:
        """Return whether it goes on when this server ends.

        It does if it has a relay that waits for a gateway, or has not begun.
        """
        if self.memory is None or not self.memory.gateway:
            return False
        return not self.has_kernel or self.memory.has_relay(self.kernel_id)

    def waiting_reason(self) -> str | None:
        """Return why it waits for a grant; None when it does not wait."""
        if self._ready is not None and self._ready.done():
            return None  # the start is over
        entry = None if self.admission is None else self.admission.waiting(self.kernel_id)
        if entry is not None:
            return entry.reason
        if isinstance(self.provisioner, AliquotProvisioner) and self.provisioner.is_asking:
            return _ASKING
        return None if self.container_runtime is None else self.container_runtime.waiting_reason(self.kernel_id)

    def withdraw(self) -> bool:
        """Give up waiting for a grant, or for a pod, and return whether it waited.

        Its start then fails with WithdrawnError.
        """
        if self.admission is not None and self.admission.withdraw(self.kernel_id):
            return True
        if isinstance(self.provisioner, AliquotProvisioner) and self.provisioner.withdraw():
            return True
        return self.container_runtime is not None and self.container_runtime.withdraw(self.kernel_id)

    def start_failure(self) -> BaseException | None:
        """Return the error of the last start; None when it did not fail, or is under way."""
        ready = self._ready
        return ready.exception() if ready is not None and ready.done() and not ready.cancelled() else None

    @emit_kernel_action_event(success_msg="Kernel {kernel_id} was started.")
    async def start_kernel(self, **kwargs: Any) -> None:
        """Called by the multi-kernel manager, which does not wait for the grant itself."""
        self.start_arguments = dict(kwargs)
        await self._async_start_kernel(**kwargs)

    async def _async_start_kernel(self, **kwargs: Any) -> None:
        """Called by start_kernel, and by KernelManager.restart_kernel with the old arguments.

        Jupyter's own method does the same without the grant, and logs each failure with its traceback.
        """
        self.kernel_id = self.kernel_id or kwargs["kernel_id"]
        if self._ready is None or self._ready.done():
            self._ready = asyncio.get_running_loop().create_future()
        # In a server there is always a loop, so that this is never a concurrent.futures.Future.
        ready = cast("asyncio.Future[None]", self._ready)
        try:
            await self._start_with_retries(kwargs)
        except BaseException as error:
            await asyncio.shield(self._give_up(error))
            fail(ready, error)
            raise
        if not ready.done():
            ready.set_result(None)

    async def _start_with_retries(self, kwargs: Mapping[str, Any]) -> None:
        """Start it; after a fault of the infrastructure, again with another grant, perhaps of another node."""
        for pause in self.retry_pauses:
            arguments = await self._prepared(dict(kwargs))
            try:
                return await self._launch(arguments)
            except AliquotError as error:
                if not is_worth_a_retry(error):
                    raise
                said = (self.kernel_id, type(error).__name__, pause, error)
                self.log.warning("kernel=%s start=failed kind=%s again_in=%gs reason=%s", *said)
            await self._return_all()
            await asyncio.sleep(pause)
        await self._launch(await self._prepared(dict(kwargs)))

    async def _prepared(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a launch: with its grant, and as a container or its owner's account."""
        await self.noted()
        self.restarts.refuse_if_being_ended(self.kernel_id)
        grant = await self._get_grant(kwargs)
        if grant is not None:
            kwargs["grant"] = grant
        kwargs.pop(REQUEST_ENV, None)
        kwargs.pop(REPLACES, None)
        kwargs.pop(WISH, None)
        if self._hides_servers_env():
            kwargs["env"] = without_servers_own(kwargs.get("env") or os.environ)
        # Planned again at each restart: access to a folder may have been withdrawn.
        container = await self._get_container(kwargs)
        if container is not None:
            kwargs["container"] = container
        elif self._accounts is not None:
            kwargs |= self._owners_arguments(self._accounts, kwargs)
            await self._note_before_its_owners_relay()
        if self.memory is not None and self.memory.gateway and self._has_our_provisioner():
            kwargs["relay_facts"] = self.memory.facts(self, grant)
        return kwargs

    async def _launch(self, kwargs: dict[str, Any]) -> None:
        self._attempted_start = True
        command, kwargs = await self._async_pre_start_kernel(**kwargs)
        await self._async_launch_kernel(command, **kwargs)
        self.note(KernelState.RUNNING)
        await self._async_post_start_kernel(**kwargs)

    async def _return_all(self) -> None:
        """End the process of a start that failed, and return its grant."""
        if self.has_kernel:
            await self._async_kill_kernel()
        await self._async_cleanup_resources(restart=False)

    async def _note_before_its_owners_relay(self) -> None:
        """Have the grant on disk before a relay of its owner's account runs.

        A later gateway believes no metadata of that relay. A kernel that was asked to end stays so.
        """
        if self._noted is KernelState.PENDING:
            self.note(KernelState.PENDING)
            await self.noted()

    async def _async_post_start_kernel(self, **kwargs: Any) -> None:
        """Called by _async_start_kernel. Opens no control socket, which Jupyter opens when the kernel ends."""
        self._needs_control = False
        try:
            await super()._async_post_start_kernel(**kwargs)
        finally:
            self._needs_control = True

    def _connect_control_socket(self) -> None:
        """Called by Jupyter after a start and before a shutdown."""
        if self._needs_control:
            super()._connect_control_socket()

    def _has_our_provisioner(self) -> bool:
        """Make the provisioner, as Jupyter would a moment later, and return whether it is ours.

        Other provisioners hand arguments that they do not know on to Popen.
        """
        if self.provisioner is None:
            factory = KernelProvisionerFactory.instance(parent=self.parent)
            self.provisioner = factory.create_provisioner_instance(self.kernel_id, self.kernel_spec, parent=self)
        return isinstance(self.provisioner, AliquotProvisioner)

    async def _get_grant(self, kwargs: dict[str, Any]) -> Grant | None:
        """Return the grant that it holds, or else wait for one; None for a plain kernel.

        Raises AliquotError.
        """
        request = self.request()
        if request is None or self.admission is None:
            return None
        if self._grant is None:
            names = (self.kernel_id, self.owner, self.label, self.kernel_name, self.teams, self.replaces)
            requester = KernelRef(*names, wish=wish_of(self.start_arguments))
            self._grant = await self.admission.submit(requester, request, None, self.queued_at, self._end_replaced)
            self._end_replaced()
        return self._grant

    def _end_replaced(self) -> None:
        if self._listener is not None:
            self._listener.end_replaced(self)

    async def _get_container(self, kwargs: dict[str, Any]) -> ContainerPlan | None:
        """Plan the container that it starts in; None for a process of this machine.

        Raises AliquotError.
        """
        spec = self.kernel_spec
        image = None if spec is None else image_of(spec.metadata)
        if image is None:
            if self._refuses_processes():  # a recovered kernel that is restarted was not checked
                raise LaunchError(
                    f"Requested {self.kernel_name}, a process of the gateway's account, but this gateway runs as root. "
                    "Choose an image"
                )
            return None
        if self.containers is None:
            raise refuse_without_planner(self.kernel_name, image)
        request = self.request()
        plan = await self.containers.plan(
            ContainerStart(
                kernel_name=self.kernel_name,
                owner=self.owner,
                share=None if request is None else request.gpus,
                host=self.host_part,
                folder=str(kwargs.get("cwd") or ""),
                session=(kwargs.get("env") or {}).get(SESSION_VARIABLE, ""),
                env=tuple(self.start_arguments.get(REQUEST_ENV, {}).items()),
            )
        )
        if plan is None:
            # A recovered kernel may be of an image that is offered no more. It must not run outside
            # a container.
            raise LaunchError(
                f"Requested a kernel in the image {image}, but the catalogue has no such image. Choose another kernel."
            )
        return plan

    def _owners_arguments(self, accounts: OwnerAccounts, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a start as its owner's account. Raises LaunchError."""
        if not self._has_our_provisioner():
            raise LaunchError(
                f"Requested {self.kernel_name}, whose provisioner would start it as the gateway's account. Choose a "
                "kernel of Aliquot's provisioner"
            )
        spec = self.kernel_spec
        program = spec.argv[0] if spec is not None and spec.argv else ""
        requested = self.start_arguments.get(REQUEST_ENV) or {}
        arguments = accounts.start_arguments(self.owner, program, kwargs.get("env") or os.environ, requested)
        if self.containers is not None and self._limits_processes:
            request = self.request()
            limits = self.containers.group_limits(None if request is None else request.gpus, self.host_part)
            arguments["group"] = GroupLimits(limits.memory or Bytes(0), limits.cpus or 0.0, limits.pids or 0)
        return arguments

    async def until_restarted(self) -> None:
        """Wait for a start or restart that is under way.

        Until then Jupyter's manager cannot read whether the start failed.
        """
        while futures := {one for one in (self._ready, *self.restarts.under_way()) if one and not one.done()}:
            await asyncio.wait(cast("set[asyncio.Future[None]]", futures))

    @default("restarter_class")
    def _calm_restarter(self) -> type[CalmRestarter]:
        return CalmRestarter

    def start_restarter(self) -> None:
        """Called by Jupyter once the kernel runs. The restarter's timer goes on for the kernel's life."""
        outlasting(super().start_restarter)

    async def restart_kernel(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """Called by the multi-kernel manager, and by the restarter."""
        with self.restarts.one(self.kernel_id) as may_start:
            if not may_start:
                return None
            self.note(KernelState.RESTARTING)
            await self.noted()
            return await super().restart_kernel(*args, **kwargs)

    async def _give_up(self, error: BaseException) -> None:
        """Clean up after a start that failed: end the process, return the grant, keep the reason."""
        # The restarter would repeat the failed start for ever.
        self.stop_restarter()
        await self._return_all()
        self._noted = None
        if self.memory is not None:
            self.memory.forget(self.kernel_id)
        self.execution_state = "dead"
        self.reason = str(error) if isinstance(error, AliquotError) else f"the kernel could not be started: {error!r}"
        if self._listener is not None:
            self._listener.start_failed(self, error)

    def let_go(self) -> None:
        """Drop the references of a removed kernel's parts to each other.

        Python then frees all of it at once, and not at the next collection among a thousand kernels.
        """
        self.provisioner = self._restarter = None
        error = self.start_failure()
        while error is not None:  # its frames refer to the kernel
            error.__traceback__, error = None, error.__cause__ or error.__context__

    async def clean_up_removed(self, provisioner: KernelProvisionerBase | None) -> None:
        """End the process, the relay and the grant of a kernel that Jupyter removed.

        Jupyter removes a kernel when its restarter gives up.
        """
        self.provisioner = provisioner
        try:
            await self._async_cleanup_resources(restart=False)
        finally:
            self.let_go()

    async def _async_is_alive(self) -> bool:
        """Called by the restarter, and while the kernel's end is awaited. Reads how the process ended."""
        # The restarters of a thousand kernels would each read a file every few seconds.
        if self.runs_by_its_relay():
            return True
        is_alive = await super()._async_is_alive()
        if not is_alive and isinstance(self.provisioner, AliquotProvisioner):
            self.process_end = await self.provisioner.ending()
        return is_alive

    def runs_by_its_relay(self) -> bool:
        """Return whether the relay that started the process says that it runs; a lost machine's link stays up."""
        link = None if self._links is None else self._links.get(self.kernel_id)
        if link is None or not link.is_up or link.kernel is None or link.kernel.state != "started":
            return False
        return isinstance(self.provisioner, AliquotProvisioner) and self.provisioner.is_started_by_relay

    is_alive = _async_is_alive  # type: ignore[assignment]  # Jupyter's base class has it synchronous

    async def _async_cleanup_resources(self, restart: bool = False) -> None:
        """Called by KernelManager.shutdown_kernel. Keeps the grant before a restart, and returns it otherwise."""
        try:
            await super()._async_cleanup_resources(restart=restart)
        finally:
            if not restart and self.admission is not None:
                self._grant = None
                await self.admission.release(self.kernel_id)


def restarts_of(kernel: object) -> Restarts:
    """Return the restarts of a kernel; of one that is not ours, none."""
    return kernel.restarts if isinstance(kernel, ManagedKernel) else Restarts()


def _provisioner_info(relay: RelayRecord, process: KernelProcess | None, grant: Grant | None) -> dict[str, Any]:
    """Return AliquotProvisioner.get_provisioner_info of a kernel that another provisioner started."""
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
