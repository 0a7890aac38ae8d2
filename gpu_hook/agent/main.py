"""The node agent, put together.

This is the only place that makes and joins its objects.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import platform
import socket
import sys
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_aliquot.gpu_hook.agent.actuators.actuation import Actuation
from jupyter_aliquot.gpu_hook.agent.actuators.base import ActuatorError
from jupyter_aliquot.gpu_hook.agent.compute.controllers import CONTROLLERS, MakeController
from jupyter_aliquot.gpu_hook.agent.compute.loop import ComputeKeeper
from jupyter_aliquot.gpu_hook.agent.devices.audit import Audit, Auditor, Findings
from jupyter_aliquot.gpu_hook.agent.devices.cdi import write_node_specs
from jupyter_aliquot.gpu_hook.agent.devices.claims import DeviceClaimedError, DeviceClaims
from jupyter_aliquot.gpu_hook.agent.devices.context_probe import SECONDS, ContextProbe
from jupyter_aliquot.gpu_hook.agent.devices.devices import (
    DeviceMonitor,
    DeviceReading,
    DeviceSource,
    DriverError,
    LateSource,
)
from jupyter_aliquot.gpu_hook.agent.devices.host_memory import machine_memory_bytes
from jupyter_aliquot.gpu_hook.agent.devices.libraries import Libraries, installed, mounted_folders, prune, publish
from jupyter_aliquot.gpu_hook.agent.devices.nvml import NvmlSource, softgpu_environment
from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import prepare, remove, remove_abandoned
from jupyter_aliquot.gpu_hook.agent.dialing.settings import GatewayAddress
from jupyter_aliquot.gpu_hook.agent.enforcers.base import EnforcerError
from jupyter_aliquot.gpu_hook.agent.enforcers.choice import Chosen, FindEnforcers, choose_candidates, find_enforcers
from jupyter_aliquot.gpu_hook.agent.enforcers.enforcement import Enforcement
from jupyter_aliquot.gpu_hook.agent.host_copies.arena import Arena, HostBudget
from jupyter_aliquot.gpu_hook.agent.kernels.evictions import Evictions
from jupyter_aliquot.gpu_hook.agent.kernels.kernel import Kernel
from jupyter_aliquot.gpu_hook.agent.kernels.relocations import Relocations
from jupyter_aliquot.gpu_hook.agent.kernels.reservations import Reservations
from jupyter_aliquot.gpu_hook.agent.kubelet.allocation import NodeParts
from jupyter_aliquot.gpu_hook.agent.kubelet.settings import KubeletSettings
from jupyter_aliquot.gpu_hook.agent.ledger.contexts import ContextCosts
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import Ledger
from jupyter_aliquot.gpu_hook.agent.scheduling.keeper import LeaseKeeper
from jupyter_aliquot.gpu_hook.agent.scheduling.overcommit import OvercommitKeeper
from jupyter_aliquot.gpu_hook.agent.scheduling.records import read_moment
from jupyter_aliquot.gpu_hook.agent.server.control import ControlServer
from jupyter_aliquot.gpu_hook.agent.server.guests import Guests
from jupyter_aliquot.gpu_hook.agent.server.lease_operations import LeaseOperations
from jupyter_aliquot.gpu_hook.agent.server.notifier import StatusNotices
from jupyter_aliquot.gpu_hook.agent.server.operations import CONTROL_VERSION, DeviceDiscovery, Node, Operations
from jupyter_aliquot.gpu_hook.agent.server.status_maker import StatusMaker, Subjects
from jupyter_aliquot.gpu_hook.agent.settings import AgentSettings, read_arguments
from jupyter_aliquot.gpu_hook.agent.swap.checkpoint import CheckpointTools, Circumstances
from jupyter_aliquot.gpu_hook.agent.swap.checkpoint_helper import CheckpointHelper
from jupyter_aliquot.gpu_hook.agent.swap.residency import SwapTools
from jupyter_aliquot.gpu_hook.agent.trimming.trimmer import Trims
from jupyter_aliquot.gpu_hook.paths import (
    Driver,
    PathError,
    choose_driver,
    native_dir,
    prepare_runtime_dir,
    softgpu_state_path,
)
from jupyter_aliquot.gpu_hook.placement.placement import DeviceState
from jupyter_aliquot.gpu_hook.waiting import end_task

from .lifecycle import (
    AgentLock,
    StartError,
    end_on_signals,
    end_when_idle,
    log_to,
    raise_descriptor_limit,
    write_agent_info,
)

if TYPE_CHECKING:
    from jupyter_aliquot.gpu_hook.agent.kubelet.node import KubeletNode

log = logging.getLogger(__name__)

OpenSource = Callable[[Driver], DeviceSource]
FindDriver = Callable[[str], Driver]
Controllers = Mapping[str, MakeController]


@dataclass(frozen=True)
class Makers:
    """The factories that an agent calls once it holds its lock.

    Tests and benchmarks pass their own.
    """

    open_source: OpenSource
    enforcers: FindEnforcers
    controllers: Controllers


class Agent:
    """The agent.

    It is made when the lock is held and the driver runs. ``serve`` returns at its end.
    """

    def __init__(
        self, settings: AgentSettings, node: Node, source: DeviceSource, chosen: Chosen, controller: MakeController
    ) -> None:
        """Make the agent.

        ``source`` may block at its first read for as long as the driver takes to start.
        """
        self._settings = settings
        self._node = node
        self._end = asyncio.Event()
        machine_bytes = machine_memory_bytes()
        contexts = ContextCosts(settings.context_slack_bytes)
        self._ledger = Ledger(machine_bytes, contexts=contexts)
        self._notices = StatusNotices(self._send)
        self._claims = DeviceClaims(os.fspath(self._softgpu_state or ""))
        self._kubelet = None if settings.kubelet is None else self._make_kubelet(settings.kubelet)
        self._monitor = DeviceMonitor(source, self._saw_devices, settings.driver_deadline_seconds)
        self._devices_known = asyncio.Event()
        budget, swapping = HostBudget(settings.leases.host.bytes(machine_bytes)), settings.swap
        self._arena = Arena(budget, swapping.segment_bytes, swapping.spill_dir)
        self._overcommit = OvercommitKeeper(self._ledger, settings.leases, self._arena)
        self._probe = ContextProbe(node.driver.cuda, self._monitor, contexts, SECONDS, self._checked, self._is_held)
        self._checkpoints = CheckpointHelper(node.driver.cuda, node.driver_env)
        self._leases = self._keep_leases()
        swap = SwapTools(self._arena, settings.swap, self._checkpoint_tools(), self._leases.room.departures)
        compute, now = settings.compute, time.monotonic_ns
        self._actuation = Actuation(chosen.actuators, lambda asked: compute.caps(asked.is_production))
        self._compute = ComputeKeeper(compute, now, self._leases, self._actuation, partial(controller, compute))
        self._reservations = Reservations(
            self._ledger, settings, self._tell_change, self._processes_changed, swap, self._leases, self._compute
        )
        self._enforcement = Enforcement(chosen.limits, self._kernels, self._ledger.within_devices)
        self._auditor = Auditor(Audit(settings.context_slack_bytes))
        self._learned = Findings()  # the findings from which the agent last learned contexts
        self._evictions = Evictions(self._reservations, self._ledger, self._leases, self._tell_change)
        self._relocations = self._make_relocations()
        self._lease_operations = self._make_lease_operations()
        self._trims = Trims(settings.trim, self._kernels, self._idle_since, self._send, read_moment)
        self._guests = Guests(self._reservations)
        self._control = ControlServer(self._make_operations(chosen).answer, self._drop_connection, self._guests.admit)

    def _make_relocations(self) -> Relocations:
        libraries = self._node.libraries.folder.name
        parts = (self._reservations, self._ledger, self._leases, libraries, self._moved)
        return Relocations(*parts, lambda kernel_id: kernel_id in self._auditor.findings.unhooked)

    def _make_lease_operations(self) -> LeaseOperations:
        asked = (self._leases, self._evictions, self._relocations)
        return LeaseOperations(*asked, self._send, self._notices.enter)

    def _make_operations(self, chosen: Chosen) -> Operations:
        enforcer, within = chosen.limits.enforcer, self._ledger.within_devices
        return Operations(
            self._node,
            self._reservations,
            self._lease_operations,
            self._trims,
            self._make_status().describe,
            lambda connection: self._control.subscribe(connection),
            self._end.set,
            lambda asked: {**enforcer.environment(within(asked.parts)), **self._actuation.environment(asked)},
            lambda kernel: self._actuation.needs_restart(kernel.reservation, kernel.pids),
            DeviceDiscovery(self._devices_known, self._why_unknown),
            self._guests,
        )

    def _make_status(self) -> StatusMaker:
        subjects = Subjects(
            self._ledger,
            self._reservations,
            self._monitor,
            self._auditor,
            self._enforcement,
            self._actuation,
            self._compute,
            self._leases,
            self._trims,
            self._arena,
            self._overcommit,
            self._evictions,
            self._relocations,
        )
        holder_of = (lambda uuid: "") if self._kubelet is None else self._kubelet.holder_of
        return StatusMaker(
            self._node, subjects, lambda: self._control.connections, began=time.time(), holder_of=holder_of
        )

    async def serve(self) -> None:
        """Run until a signal, ``shutdown``, or the idle time.

        The agent listens before it reads the devices, so that clients can ask why a driver hangs.
        Raises StartError, DeviceClaimedError and DriverError at the start.
        """
        settings = self._settings
        end_on_signals(self._end)
        try:
            info = {"version": CONTROL_VERSION, "driver": self._node.driver.kind, "node": self._node.name}
            write_agent_info(settings.runtime, info)
            await self._control.listen(settings.runtime.agent_socket)
            if self._kubelet is not None:
                await self._kubelet.look()
            first = await self._look_first()
            if first is None:
                return
            self._restore()
            self._leases.room.look(first, self._reservations.on_devices())
            self._write_specs()
        except OSError as error:
            raise StartError(f"cannot start in {settings.runtime.path}: {error}") from error
        self._devices_known.set()
        log.info("event=started pid=%d folder=%s driver=%s", os.getpid(), settings.runtime.path, self._node.driver.kind)
        await self._run_jobs()

    async def _look_first(self) -> tuple[DeviceReading, ...] | None:
        """Wait for the first look, no longer than its deadline, and measure contexts.

        Return the look from before the agent had a context; None: the agent ends. Raises
        DriverError, and DeviceClaimedError for a device of another account's agent.
        """
        if not await self._unless_ended(self._monitor.look()):
            return None
        if self._monitor.problem and not self._monitor.is_silent:
            raise DriverError(self._monitor.problem)
        first = self._monitor.readings
        self._claims.claim(reading.facts.uuid for reading in first)
        return first if await self._unless_ended(self._probe.measure()) else None

    async def _unless_ended(self, work: Coroutine[Any, Any, None]) -> bool:
        """Wait for a part of the start; return False if the agent ends before it is done."""
        task, end = asyncio.ensure_future(work), asyncio.ensure_future(self._end.wait())
        await asyncio.wait([task, end], return_when=asyncio.FIRST_COMPLETED)
        if self._end.is_set():
            await end_task(task)
            return False
        end.cancel()
        task.result()
        return True

    def _restore(self) -> None:
        self._reservations.restore(has_kubelet=self._kubelet is not None)
        self._relocations.resume()
        kernels = list(self._reservations.kernels)
        if all(kernel.libraries for kernel in kernels):
            prune(self._node.libraries, {name for kernel in kernels for name in kernel.libraries})

    async def _run_jobs(self) -> None:
        settings = self._settings
        jobs = [
            self._monitor.run(settings.device_period_seconds),
            self._enforcement.run(settings.device_period_seconds),
            self._sample_pages(),
            self._control.keep_file(settings.runtime.agent_socket),
            self._trims.run(),
            self._leases.run(),
        ]
        if settings.gateway is not None:
            jobs.append(_dial(settings.gateway, self._node.name, settings.runtime.agent_socket))
        if self._kubelet is not None:
            jobs.append(self._kubelet.run())
        if settings.exit_when_idle_seconds is not None:
            jobs.append(end_when_idle(self._is_idle, settings.exit_when_idle_seconds, self._end))
        tasks = [asyncio.create_task(job) for job in jobs]
        try:
            await self._end.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _why_unknown(self) -> str:
        return "" if self._monitor.readings else self._monitor.problem

    def _kernels(self) -> Iterable[Kernel]:
        return self._reservations.kernels

    def _send(self, connection: int, event: dict[str, Any]) -> None:
        self._control.send(connection, event)

    def _keep_leases(self) -> LeaseKeeper:
        policy, after = self._settings.leases.policy, self._settings.leases.checkpoint_after_seconds
        return LeaseKeeper(policy, read_moment, self._ledger.lent, self._host_room, self._tell_lease, after)

    def _checkpoint_tools(self) -> CheckpointTools:
        def gpus() -> list[str]:
            return [reading.facts.uuid for reading in self._monitor.readings]

        return CheckpointTools(self._checkpoints, self._circumstances, self._bytes_of, gpus)

    def _circumstances(self) -> Circumstances:
        versions = {reading.driver_version for reading in self._monitor.readings}
        return Circumstances(", ".join(versions), platform.machine(), self._enforcement.word)

    def _bytes_of(self, pids: Sequence[int]) -> dict[str, int]:
        """Return the bytes of these processes at the last look.

        The look is at most a second old, and a process that is swapped out does not grow.
        """
        return {
            reading.facts.uuid: sum(reading.processes.get(pid) or 0 for pid in pids)
            for reading in self._monitor.readings
        }

    def _write_specs(self) -> None:
        """Write the CDI specs. Raises OSError."""
        if self._settings.cdi_dir is not None:
            indices = [device.index for device in self._ledger.devices]
            write_node_specs(
                self._settings.cdi_dir, self._settings.runtime, self._node.libraries, self._node.driver, indices
            )

    async def close(self) -> None:
        """Leave the folder to the next agent: kernels that live keep their grant.json."""
        self._compute.close()
        await self._probe.close()
        await self._leases.close()
        self._reservations.close()  # before the connections that hold some of the kernels
        self._arena.close()
        await self._checkpoints.close()
        await self._control.close()
        await self._monitor.close()
        self._claims.close()
        with contextlib.suppress(OSError):
            self._settings.runtime.agent_info.unlink()
        log.info("event=ended pid=%d", os.getpid())

    async def _sample_pages(self) -> None:
        while True:
            await asyncio.sleep(self._settings.page_period_seconds)
            try:
                self._reservations.sample_shared()
                self._notices.look(self._reservations.kernels)
            except Exception:
                log.exception("event=sample_failed")

    def _saw_devices(self) -> None:
        readings = self._monitor.readings
        before = self._ledger.device_states()
        self._set_devices()
        is_other = self._overcommit.look(self._promised_bytes(readings))
        if not self._devices_known.is_set():
            return  # no kernel is restored yet: its bytes would count as another process's
        self._claim_late(readings)
        self._auditor.look(readings, self._reservations.processes(), asyncio.get_running_loop().time())
        self._learn_contexts()
        self._reservations.book_looks(readings)
        self._compute.saw_devices(readings)
        on_devices = self._reservations.on_devices()
        self._follow_departures(readings, on_devices)
        self._leases.room.look(readings, on_devices, self._leases.paged_bytes)
        self._probe.saw_devices()
        if is_other:
            self._tell_change()
        self._tell_devices(before)

    def _saw_holders(self) -> None:
        """Open and close devices at once: a status never tells one that no holder has as one that can be used."""
        before = self._ledger.device_states()
        self._set_devices()
        self._tell_devices(before)

    def _set_devices(self) -> None:
        held = [reading for reading in self._monitor.readings if self._is_held(reading.facts.uuid)]
        self._ledger.set_devices((r.facts for r in held), (r.facts.uuid for r in held if r.is_lost))

    def _tell_devices(self, before: tuple[DeviceState, ...]) -> None:
        if self._ledger.device_states() != before:
            log.warning("event=devices_changed lost=%s", [s.index for s in self._ledger.device_states() if s.lost])
            self._tell_change()

    def _is_held(self, uuid: str) -> bool:
        """Return whether kernels may be on a device: a cluster gives those that are not held to other pods."""
        return self._kubelet is None or self._kubelet.is_held(uuid)

    @property
    def _softgpu_state(self) -> Path | None:
        """Return the file that is this node's software GPU; None: it has NVIDIA's driver."""
        return softgpu_state_path(self._settings.runtime) if self._node.driver.kind == "softgpu" else None

    def _make_kubelet(self, settings: KubeletSettings) -> KubeletNode:
        """Return the work for the kubelet. Raises StartError."""
        try:
            from jupyter_aliquot.gpu_hook.agent.kubelet.node import KubeletNode, NodeSide
        except ImportError as error:
            raise StartError(
                f"Requested --kubelet, but {error.name} is not installed. Install jupyter-aliquot[kubernetes]"
            ) from error
        node = self._node
        folders = partial(mounted_folders, node.libraries)
        parts = NodeParts(node.driver, node.libraries.shim, folders, node.driver_env, self._softgpu_state)
        given = NodeSide(self._accept_of, self._answers, self._note_pods, self._ledger.is_used, self._saw_holders)
        if self._softgpu_state is not None:
            given = replace(given, minors=self._softgpu_numbers)
        return KubeletNode(settings, self._settings.runtime.slots, parts, given)

    def _softgpu_numbers(self) -> dict[str, int]:
        return {reading.facts.uuid: reading.facts.index for reading in self._monitor.readings}

    def _accept_of(self, pod: str) -> Callable[[socket.socket], None] | None:
        """Return what takes the connections of the kernel whose grant names this pod."""
        found = self._reservations.find_by_pod(pod)
        return None if found is None else found.accept

    def _note_pods(self, pods: Collection[str]) -> None:
        self._reservations.note_pods(pods)

    def _answers(self) -> bool:
        """Return whether a device of the node can be used."""
        return any(not self._ledger.is_lost(device.uuid) for device in self._ledger.devices)

    def _promised_bytes(self, readings: Sequence[DeviceReading]) -> int:
        """Return the host memory that software GPUs have not taken yet."""
        if self._node.driver.kind != "softgpu":
            return 0
        return sum(max(0, reading.facts.memory_bytes - reading.used_bytes) for reading in readings)

    def _claim_late(self, readings: Sequence[DeviceReading]) -> None:
        """Claim devices that came later. The agent ends where one is another account's agent's."""
        try:
            self._claims.claim(reading.facts.uuid for reading in readings)
        except DeviceClaimedError as error:
            log.error("event=device_claimed reason=%r", str(error))
            self._end.set()

    def _learn_contexts(self) -> None:
        """Learn contexts once from each audit.

        A slow audit leaves the findings of the look before it.
        """
        found = self._auditor.findings
        if found is not self._learned:
            self._learned = found
            self._ledger.contexts.note_seen(found.least_contexts, found.context_pids)

    def _follow_departures(self, readings: Sequence[DeviceReading], on_devices: Mapping[str, int]) -> None:
        """Lend the memory that the driver took back, and look again soon at the rest."""
        departures, now = self._leases.room.departures, time.monotonic()
        if departures.look(readings, self._monitor.began, now, on_devices):
            self._leases.notify_room()
        if (pause := departures.next_look(now)) is not None:
            self._monitor.look_within(pause)

    def _processes_changed(self) -> None:
        """Note that processes of a kernel came or went.

        Their last GPU time can still be read, and new limits have to be set.
        """
        self._monitor.notify()
        self._enforcement.notify()
        self._notices.tell()

    def _moved(self) -> None:
        """Note that a kernel begins to move to another device, or has."""
        self._processes_changed()
        self._tell_change()

    def _host_room(self) -> int | None:
        """Return the bytes that host copies may still take, warm segments included.

        None: spill files limit them.
        """
        use = self._arena.use
        if self._settings.swap.spill_dir is not None:
            return None
        return use.budget_bytes - use.used_bytes + use.warm_bytes

    def _tell_lease(self, kernel_id: str) -> None:
        self._lease_operations.tell(kernel_id)
        self._notices.tell()

    def _drop_connection(self, connection: int) -> None:
        self._lease_operations.drop_connection(connection)
        self._notices.drop(connection)
        self._trims.drop_connection(connection)
        self._guests.drop_connection(connection)
        self._reservations.drop_connection(connection)

    def _idle_since(self, kernel_id: str) -> float | None:
        record = self._leases.record(kernel_id)
        return None if record is None else record.idle_since

    def _checked(self, moves: Mapping[str, str]) -> None:
        """Take the outcome of the self-check of swapping, by device."""
        if self._overcommit.note_checks(moves):
            self._tell_change()

    def _tell_change(self) -> None:
        self._control.tell_change()
        self._notices.tell()

    def _is_idle(self) -> bool:
        return not self._control.connections and not len(self._reservations)


def _dial(gateway: GatewayAddress, node: str, control_socket: Path) -> Coroutine[Any, Any, None]:
    """Return the work of keeping the connection to a gateway on another machine."""
    # An agent without --gateway has no use for tornado, whose import takes memory and time.
    from jupyter_aliquot.gpu_hook.agent.dialing.dialer import GatewayDialer

    return GatewayDialer(gateway, node, control_socket).run()


def run_agent(
    settings: AgentSettings,
    open_source: OpenSource = NvmlSource,
    find_driver: FindDriver = choose_driver,
    enforcers: FindEnforcers = find_enforcers,
    controllers: Controllers = CONTROLLERS,
) -> int:
    """Run an agent in the foreground until it ends; return the exit code.

    A failure to start is one line on stderr. ``controllers`` are the names that
    ``settings.compute.control`` may have; benchmarks add those of other systems.
    """
    try:
        log_to(settings.log_file)
        prepare_runtime_dir(settings.runtime, is_service=settings.exit_when_idle_seconds is None)
        driver = find_driver(settings.driver)
        lock = AgentLock(settings.runtime)
    except (PathError, StartError) as error:
        return _fail(str(error))
    try:
        native = native_dir()
        libraries = installed(native) if settings.library_dir is None else publish(native, settings.library_dir)
        return _run_locked(settings, driver, libraries, Makers(open_source, enforcers, controllers))
    except PathError as error:
        return _fail(str(error))
    finally:
        lock.close()


def _run_locked(settings: AgentSettings, driver: Driver, libraries: Libraries, makers: Makers) -> int:
    """Run the agent while its lock is held. Raises PathError."""
    driver_env: dict[str, str] = {}
    state = softgpu_state_path(settings.runtime)
    if driver.kind == "softgpu":
        prepare(state, settings.runtime)  # stays open until this process ends
        remove_abandoned(state)
        driver_env = softgpu_environment(state, settings.softgpu.within(machine_memory_bytes()), settings.node)
        os.environ.update(driver_env)  # the library in this process reads it
    driver = libraries.driver(driver)
    may_be_shut_down = settings.exit_when_idle_seconds is not None
    name, residency = settings.node or platform.node() or "localhost", settings.leases.residency
    try:
        raise_descriptor_limit()
        chosen = choose_candidates(settings.enforcer, settings.actuators, driver, makers.enforcers)
        found = {"--driver": driver.kind, "--enforcer": chosen.limits.enforcer.name}
        options = {**settings.options, **found}
        node = Node(name, driver, driver_env, libraries, may_be_shut_down, residency, options)
        asyncio.run(_run(settings, node, chosen, makers))
    except (ActuatorError, DeviceClaimedError, DriverError, EnforcerError, StartError) as error:
        return _fail(str(error))
    finally:
        if driver.kind == "softgpu" and not settings.runtime.kernel_folders():
            remove(state)
    return 0


async def _run(settings: AgentSettings, node: Node, chosen: Chosen, makers: Makers) -> None:
    make_controller = makers.controllers[settings.compute.control]
    source = LateSource(partial(makers.open_source, node.driver))
    agent = Agent(settings, node, source, chosen, make_controller)
    gc.freeze()  # a full collection over constant objects would only be a pause
    try:
        await agent.serve()
    finally:
        await agent.close()


def _fail(message: str) -> int:
    log.error("event=not_started reason=%r", message)
    print(f"aliquot agent: {message}", file=sys.stderr)
    return 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the agent of a command line; return the exit code.

    Called by ``python -m jupyter_aliquot.gpu_hook.agent`` and by ``aliquot agent``.
    """
    return run_agent(read_arguments(arguments))
