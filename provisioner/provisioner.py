"""The kernel provisioner: it has jupyter_client's lifecycle verbs and keeps the kernel's Grant.

`launch_spec` decides what to run, the runtime how, and `grants` gets a grant. Clients connect to
the kernel's relay.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets import Bool, CUnicode, Float, Unicode

from jupyter_aliquot.gpu_hook.paths import (
    RuntimeDir,
    find_runtime_dir,
    is_anothers,
    native_dir,
    private_runtime_dir,
)
from jupyter_aliquot.gpu_hook.waiting import within
from jupyter_aliquot.provisioner.containers.plan import ContainerLimits, ContainerPlan
from jupyter_aliquot.provisioner.grants.acquire import GrantClient, Question
from jupyter_aliquot.provisioner.grants.codec import grant_record, parse_request, read_grant
from jupyter_aliquot.provisioner.grants.reservation import GrantHold, Names, bind_process
from jupyter_aliquot.provisioner.relay.client.kernel_relay import (
    WITHOUT_RELAY,
    KernelRelay,
    NoRelayError,
    check_place,
    relay_options,
)
from jupyter_aliquot.provisioner.runtime.base import Containers, Launch, Runtime
from jupyter_aliquot.provisioner.runtime.factory import choose_runtime
from jupyter_aliquot.provisioner.runtime.process import ProcessRuntime
from jupyter_aliquot.provisioner.runtime.relay_process import RelayedRuntime
from jupyter_aliquot.provisioner.runtime.stdio import PipeEnds

from .control_groups import NO_LIMITS, GroupLimits
from .errors import AgentUnavailableError, EngineError, LaunchError, RequestError
from .launch_spec import LaunchSettings, LaunchSpec, launch_spec
from .resources import Bytes, GpuShare, Grant, KernelProcess, Request
from .terminations import ProcessEnd

_END_SECONDS = 5.0
# Keyword arguments of start_kernel that belong to us or to Jupyter, and not to Popen.
_NOT_STREAMS = frozenset({"env", "cwd", "extra_arguments", "kernel_id"})


class AliquotProvisioner(LocalProvisioner):
    """Start a kernel within a grant. Without a size it is a plain local kernel."""

    # LocalProvisioner gives what surrounds the process: connection file, cached ports, Curve keys,
    # path resolution. This class overrides everything that touches the process, so that runtimes
    # can be exchanged.

    # Cast: a number in kernel.json is as clear as a string.
    gpus = CUnicode("", help="GPUs of the kernel, such as 0.25 or 2.5; empty: a kernel without a GPU.").tag(config=True)
    memory_limit = CUnicode(
        "", help="Memory limit, such as 8GiB; empty: the share's part of each device's memory."
    ).tag(config=True)
    priority = Unicode("normal", help="normal or low.").tag(config=True)
    residency = Unicode(
        "",
        help="How memory may leave the GPU while the kernel is idle: vmm, managed or off; empty: as the node has it.",
    ).tag(config=True)
    cpus = CUnicode("", help="CPUs of the kernel, where a gateway can limit them; empty: the size's part.").tag(
        config=True
    )
    ram = CUnicode(
        "",
        help="Memory of the host for the kernel, such as 16GiB, where a gateway can limit it; empty: the size's part.",
    ).tag(config=True)
    folders = Unicode(
        "", help="Shared folders of a kernel in a container, by name with commas between; none: no folder; empty: all."
    ).tag(config=True)
    wait_seconds = Float(
        50.0, help="How long a kernel that asks for its grant by itself waits; below its client's start time-out."
    ).tag(config=True)
    local_limit = Unicode(
        "", help="GPUs that one user may hold in all where no gateway decides; empty: as many as the node has."
    ).tag(config=True)
    local_normal_priority = Bool(True, help="Whether kernels may have normal priority where no gateway decides.").tag(
        config=True
    )

    relay = Bool(
        True,
        help="Whether a relay stands before each kernel; without one a kernel ends with its client or server.",
    ).tag(config=True)
    trim = Bool(
        True, help="Whether an idle ipykernel returns the unused GPU memory that torch and CuPy keep, when asked to."
    ).tag(config=True)
    waiting_notice = Bool(
        True, help="Whether a cell that waits for GPU memory is told so, why and how long, on its stderr."
    ).tag(config=True)
    runtime_dir = Unicode(
        "", help="Folder of the relays of kernels without a GPU; empty for the usual places. A server of ours sets it."
    ).tag(config=True)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # Values from the gateway. A restart replays old arguments; these stay as they are now.
        self.grant: Grant | None = None
        self.container: ContainerPlan | None = None
        self.relay_facts: Mapping[str, Any] | None = None
        self.account = ""  # the system account as which the kernel runs; empty: our own
        self.group = NO_LIMITS  # of such a kernel's control group
        self._runtime: Runtime = ProcessRuntime()
        self._kernel: KernelProcess | None = None
        self._end: ProcessEnd | None = None
        self._relay: KernelRelay | None = None
        self._is_plain = False  # started without a relay, and stays without
        self._hold: GrantHold | None = None
        self._grant_client = GrantClient(self.log)

    # ---- before the launch

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Get a grant and a relay. Called by KernelManager.pre_start_kernel.

        At a restart, the provisioner keeps the grant that it holds. The gateway passes ``grant``,
        ``container``, ``relay_facts``, ``account`` and ``group`` by value. Without a grant this asks for its
        own; without a container the kernel is a process; the relay keeps the facts. Raises AliquotError.
        """
        given: Grant | None = kwargs.pop("grant", None)
        self.container = kwargs.pop("container", self.container)
        self.relay_facts = kwargs.pop("relay_facts", self.relay_facts)
        self.account = kwargs.pop("account", self.account)
        self.group = kwargs.pop("group", self.group)
        self._check_host_part()
        if self.grant is None:
            await self._get_grant(given, self._names(kwargs.get("env")))
        try:
            await self._stand_before(kwargs)
            prepared: dict[str, Any] = await super().pre_launch(**kwargs)
        except BaseException:
            await self._let_go()
            raise
        if self._relay is not None:
            prepared["cmd"] = self._relay.with_private_file(prepared["cmd"], self.parent)
        return prepared

    @property
    def is_asking(self) -> bool:
        """Tell whether pre_launch is waiting for a grant."""
        return self._grant_client.is_asking

    def withdraw(self) -> bool:
        """Withdraw a request for a grant that waits. pre_launch then raises WithdrawnError."""
        return self._grant_client.withdraw()

    def request(self) -> Request | None:
        """Return the kernelspec's request. Raises RequestError."""
        if not self.gpus:
            return None
        return parse_request(self.gpus, self.memory_limit, self.priority, self.residency)

    def _check_host_part(self) -> None:
        """Refuse CPUs or memory of the host for a kernel that nothing limits. Raises LaunchError."""
        if (self.cpus or self.ram) and self.container is None and not self.group:
            asked = " and ".join(
                filter(None, (self.cpus and f"{self.cpus} CPUs", self.ram and f"{self.ram} of host memory"))
            )
            raise LaunchError(
                f"Requested {asked} for kernel {self.kernel_id}, but it starts here as a process that nothing limits. "
                "Choose a kernelspec without them, or start it through a gateway with containers or accounts"
            )

    async def _get_grant(self, given: Grant | None, names: Names) -> None:
        request = self.request()
        if given is not None or request is None:
            self.grant = given
            return
        question = Question(
            self.kernel_id, request, names, self.wait_seconds, self._limit(), self.local_normal_priority
        )
        self._hold = await self._grant_client.ask(question)
        self.grant = self._hold.grant

    def _names(self, env: Any) -> Names:
        """Return the kernel's names.

        A kernelspec read from disk knows its name only by its folder.
        """
        spec = self.kernel_spec
        session = env.get("JPY_SESSION_NAME", "") if isinstance(env, dict) else ""
        name = spec.name or os.path.basename(spec.resource_dir)
        return Names(os.path.basename(session) or spec.display_name or name, name)

    def _limit(self) -> GpuShare | None:
        try:
            return GpuShare.parse(self.local_limit) if self.local_limit else None
        except ValueError as error:
            raise RequestError(f"AliquotProvisioner.local_limit: {error}") from error

    # ---- the relay

    async def _stand_before(self, arguments: Mapping[str, Any]) -> None:
        """Make sure that the kernel has a relay: the one it has, or a new one.

        Raises LaunchError.
        """
        manager = self.parent
        if self.account and (not self.relay or manager is None):
            raise LaunchError(
                f"Requested a kernel as {self.account!r}, but only a relay can start it so. Set "
                "c.AliquotProvisioner.relay = True"
            )
        if not self.relay or self._is_plain or manager is None:
            self._is_plain = True
            return
        if self._relay is not None and self._relay.is_alive():
            if self.account:
                self._relay.require_account(self.account)
            self._relay.lead(manager)
            return
        runtime = self._runtime_dir()
        try:
            check_place(manager, runtime, self.kernel_id)
        except NoRelayError as error:
            self._start_without(error)
            return
        containers = self._containers()
        if containers is not None:
            await containers.ensure_relay_host(runtime)
        options = relay_options(self.relay_facts, self.grant, self.container is not None, arguments)
        options = replace(options, waiting_notice=self.waiting_notice, trim=self.trim)
        options = replace(options, account=self.account, group=self.group, has_sidecar=self._is_elsewhere)
        if self._is_elsewhere:  # the relay need not be there before the pod
            self._relay = KernelRelay.begin(manager, runtime, self.kernel_id, options, self.log)
        else:
            self._relay = await KernelRelay.start(manager, runtime, self.kernel_id, options, self.log)

    def _start_without(self, reason: NoRelayError) -> None:
        """Start a kernel without a relay, unless it has a grant or a container.

        Raises LaunchError.
        """
        if self.grant is not None or self.container is not None or self.account:
            raise LaunchError(
                f"Requested a relay for kernel {self.kernel_id}, but there is none: {reason}. Change "
                f"that, or {WITHOUT_RELAY}"
            ) from reason
        self._is_plain = True
        self.log.warning("kernel=%s relay=none reason=%s; it ends with this process", self.kernel_id, reason)

    def _runtime_dir(self) -> RuntimeDir:
        """Return the runtime folder that the grant came from if it is ours, or else the usual one."""
        if self.grant is not None and not self._is_elsewhere:  # else the folder is one of another machine
            found = RuntimeDir(Path(self.grant.kernel_dir).parent.parent)
            return private_runtime_dir() if is_anothers(found) else found
        return RuntimeDir(Path(self.runtime_dir)) if self.runtime_dir else find_runtime_dir()

    @property
    def _is_elsewhere(self) -> bool:
        """Tell whether the kernel will be a pod, on another machine."""
        containers = self._containers()
        return self.container is not None and containers is not None and not containers.serves("")

    # ---- the launch

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start the kernel; a failure leaves nothing behind. Called by KernelManager.launch_kernel.

        Raises LaunchError.
        """
        streams = {name: value for name, value in kwargs.items() if name not in _NOT_STREAMS}
        spec = self._launch_spec(cmd, kwargs["env"], kwargs.get("cwd"))
        relay = None if self._relay is None else self._relay.record
        launch = Launch(spec, streams, self.grant, self.container, relay)
        if self._relay is not None and self._relay.request is not None:
            until_relay = partial(self._relay.until_there, self.parent)
            launch = replace(launch, relay_request=self._relay.request, until_relay=until_relay)
        # A manager that starts twice replaces its kernel: no client could reach the first one any
        # more.
        await self._end_process()
        try:
            self._runtime = choose_runtime(relay, self.container is not None, self._containers())
            self._end = None
            self._kernel = await self._runtime.create(launch)
            await self._bind(self._kernel)
        except BaseException:
            await self._end_process()
            await self._let_go()
            raise
        self.pid, self.pgid = self._kernel.pid or None, self._kernel.process_group or None
        self.cwd = kwargs.get("cwd", Path.cwd())
        return self.connection_info

    def _containers(self) -> Containers | None:
        """Return the container runtime of the gateway's kernels; None without a gateway."""
        return getattr(self.parent, "container_runtime", None)

    def _launch_spec(self, cmd: list[str], env: dict[str, str], cwd: str | os.PathLike[str] | None) -> LaunchSpec:
        program = native_dir() / "bin" / "aliquot-kernel-start"
        start_program = str(program) if os.access(program, os.X_OK) else None
        settings = LaunchSettings(start_program, has_image=self.container is not None)
        folder = None if cwd is None else os.fspath(cwd)
        return launch_spec(self.kernel_id, cmd, env, self.grant, settings, folder)

    async def _bind(self, process: KernelProcess) -> None:
        if not process.pid:
            return  # of another machine, whose agent learns its processes from the kubelet
        if self._hold is not None:
            await self._hold.bind(process)
        elif self.grant is not None:
            try:
                await bind_process(self.grant, process, Path(self.grant.kernel_dir).parent.parent)
            except AgentUnavailableError as error:
                # The gateway's own connection holds the grant, and renews it when the agent is back.
                self.log.warning("kernel=%s bind=missed reason=%s", self.kernel_id, error)

    async def resize(self, grant: Grant, limits: ContainerLimits | None = None) -> str:
        """Take the kernel's new grant, for restarts too.

        Called by the gateway after the agent's resize. ``limits`` None: the container keeps the
        limits that it has. Returns in words what could not be changed while the kernel runs; the
        next start changes that. Raises EngineError, RequestError.
        """
        if self.grant is None or grant.kernel_id != self.grant.kernel_id:
            raise RequestError(
                f"Requested to resize kernel {self.kernel_id} by a grant of {grant.kernel_id!r}, but it "
                "holds no such grant"
            )
        self.grant = grant
        if self._hold is not None:
            self._hold.grant = grant
        if self._relay is not None:
            await self._relay.note_grant(grant)
        if self.container is None and limits is not None and self._relay is not None:
            self.group = GroupLimits(limits.memory or Bytes(0), limits.cpus or 0.0, limits.pids or 0)
            return await self._relay.limit(self.group)
        if self.container is None or limits is None:
            return ""
        self.container = replace(self.container, limits=limits)
        return "" if self._kernel is None else await self._runtime.resize(self._kernel, limits)

    # ---- the process

    @property
    def process(self) -> PipeEnds | None:  # type: ignore[override]  # LocalProvisioner's is a Popen, or None
        """The pipes of a caller that asked for pipes as stdin, stdout or stderr."""
        return None if self._kernel is None else self._runtime.pipes(self._kernel)

    @property
    def has_process(self) -> bool:
        """Tell whether there is a process. Called by KernelManager throughout."""
        return self._kernel is not None

    @property
    def is_started_by_relay(self) -> bool:
        """Tell whether the relay started the process, on this machine: it then tells of its end at once."""
        return isinstance(self._runtime, RelayedRuntime)

    async def poll(self) -> int | None:
        """Return the exit status; None while the kernel runs.

        Called by KernelManager.is_alive, and so by the restarter.
        """
        return 0 if self._kernel is None else await self._runtime.poll(self._kernel)

    async def wait(self) -> int | None:
        """Wait for the end of the process, which is then forgotten.

        Called by KernelManager.finish_shutdown and kill_kernel.
        """
        process = self._kernel
        if process is None:
            return 0
        status = await self._runtime.wait(process)
        self._end = await self._runtime.ending(process)
        # An ended container stays with its engine until the runtime removes it.
        await self._end_process()
        return status

    async def ending(self) -> ProcessEnd | None:
        """Return how the latest process ended; None while it runs, and before there was one."""
        return self._end if self._kernel is None else await self._runtime.ending(self._kernel)

    async def send_signal(self, signum: int) -> None:
        """Send a signal to the whole process group.

        Called by KernelManager.signal_kernel and interrupt_kernel. Raises EngineError.

        KernelManager.shutdown_kernel interrupts the kernel first: one that takes no interrupt ends all the same.
        """
        if self._kernel is None:
            return
        try:
            await self._runtime.signal(self._kernel, signum)
        except EngineError as error:
            if signum != signal.SIGINT or self.parent is None or not self.parent.shutting_down:
                raise
            self.log.info("kernel=%s interrupt=missed reason=%s", self.kernel_id, error)

    async def kill(self, restart: bool = False) -> None:
        """Kill the process. Called by KernelManager.kill_kernel."""
        await self.send_signal(signal.SIGKILL)

    async def terminate(self, restart: bool = False) -> None:
        """Send SIGTERM. Called by KernelManager.finish_shutdown, half way through its patience."""
        await self.send_signal(signal.SIGTERM)

    async def cleanup(self, restart: bool = False) -> None:
        """Clean up; end the grant unless a restart follows.

        Called by KernelManager.cleanup_resources.
        """
        if not restart:
            await self._end_process()
            await self._let_go()
        elif self._relay is not None:
            self._relay.keep_links()
        await super().cleanup(restart=restart)
        if not restart:
            self.ports_cached = False

    async def _end_process(self) -> None:
        """Kill a process that still runs.

        If even that fails, the process is left to the agent, which watches its end.
        """
        process = self._kernel
        if process is None:
            return
        try:
            await within(self._runtime.remove(process), _END_SECONDS)
            self._end = await self._runtime.ending(process)
        except asyncio.TimeoutError:
            self.log.error("kernel=%s pid=%d end=timeout", self.kernel_id, process.pid)
        except EngineError as error:
            self.log.error("kernel=%s container=%s end=stuck reason=%s", self.kernel_id, process.container, error)
        self._kernel = None

    async def _let_go(self) -> None:
        """End the relay, and a grant that we asked for; the gateway ends those that it gave."""
        relay, self._relay, self._is_plain = self._relay, None, False
        if relay is not None:
            await relay.stop()
        hold, self._hold, self.grant = self._hold, None, None
        if hold is not None:
            await hold.release()

    # ---- the record

    async def get_provisioner_info(self) -> dict[str, Any]:
        """Return the kernel's record. Called by programs that keep records of kernels.

        It is JSON-safe but for the connection key, which is Jupyter's bytes.
        """
        info: dict[str, Any] = await super().get_provisioner_info()
        process = self._kernel
        info["grant"] = None if self.grant is None else grant_record(self.grant)
        info["relay"] = None if self._relay is None else os.fspath(self._relay.record.folder)
        info["is_self_granted"] = self._hold is not None
        info["process"] = None if process is None else list(astuple(process)[1:])
        return info

    async def load_provisioner_info(self, provisioner_info: dict[str, Any]) -> None:
        """Adopt a running kernel by its record. Called by the program that takes it over.

        If the former provisioner held the grant itself, this one holds it again.
        """
        await super().load_provisioner_info(provisioner_info)
        record, process = provisioner_info["grant"], provisioner_info["process"]
        self.grant = None if record is None else read_grant(record)
        self._kernel = None if process is None else KernelProcess(self.kernel_id, *process)
        self._find_relay(provisioner_info["relay"])
        if self.grant is not None and provisioner_info["is_self_granted"]:
            runtime_dir = Path(self.grant.kernel_dir).parent.parent
            self._hold = GrantHold(self.grant, self._names(None), None, runtime_dir, self.log)
            if self._kernel is not None:
                await self._hold.bind(self._kernel)

    def _find_relay(self, folder: str | None) -> None:
        self._relay = None if folder is None else KernelRelay.find(Path(folder), self.log)
        self._is_plain = folder is None
        if self._relay is not None and self.parent is not None:
            self._relay.lead(self.parent)
        in_container = self._kernel is not None and bool(self._kernel.container)
        relay = None if self._relay is None else self._relay.record
        self._runtime = choose_runtime(relay, in_container, self._containers())
