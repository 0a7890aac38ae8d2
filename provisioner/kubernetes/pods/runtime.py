"""Run kernels as pods of a Kubernetes cluster, on the node that their grant names.

The pods are the record: a later gateway finds its kernels there. This module keeps what it learned
of their ends. A gateway that merely cannot see a pod takes no kernel for ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from kubernetes.client import Configuration

from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.gpu_hook.waiting import end_task
from jupyter_aliquot.provisioner.containers.plan import ContainerLimits
from jupyter_aliquot.provisioner.errors import (
    EngineError,
    GrantLostError,
    LaunchError,
    RelayError,
    RelayRefusedError,
    StateError,
    WithdrawnError,
)
from jupyter_aliquot.provisioner.kubernetes.adoption import FoundKernel, find_kernels
from jupyter_aliquot.provisioner.kubernetes.client import ClusterClient, ClusterError, Object, find_configuration
from jupyter_aliquot.provisioner.kubernetes.kernel_pod import kernel_pod_name
from jupyter_aliquot.provisioner.kubernetes.settings import PodSettings, RelayKeys
from jupyter_aliquot.provisioner.kubernetes.states import PodPhase, PodState, pod_state, refusal_text
from jupyter_aliquot.provisioner.kubernetes.tunnel.gateway import KernelTunnel
from jupyter_aliquot.provisioner.kubernetes.tunnel.keys import make_keys, read_keys
from jupyter_aliquot.provisioner.relay.client.control import ensure_relay_host, start_relay
from jupyter_aliquot.provisioner.relay.wire.files import (
    RelayRecord,
    RelayRequest,
    UnreadableRecordError,
    read_relay_record,
)
from jupyter_aliquot.provisioner.resources import KernelProcess
from jupyter_aliquot.provisioner.runtime.base import FoundContainer, Launch, exit_status
from jupyter_aliquot.provisioner.runtime.stdio import PipeEnds
from jupyter_aliquot.provisioner.terminations import ProcessEnd

from .plans import pod_plan, pod_record, relay_annotation
from .starting import DELETED, OVER, StartingPod
from .store import PodStore, has_sidecar, relay_request

_LOOK_SECONDS = 5.0
_REVIVE_SECONDS = 300.0
_REMEMBERED_ENDS = 1000


class PodRuntime:
    """The kernels of one gateway in one namespace. *gateway* is the identity that its records name."""

    def __init__(
        self,
        settings: PodSettings,
        runtime: RuntimeDir,
        log: logging.Logger,
        configuration: Callable[[], Configuration] = find_configuration,
    ) -> None:
        self._settings = settings
        self._runtime = runtime
        self._log = log
        self._configuration = configuration
        self._opened: PodStore | None = None
        self._watching: asyncio.Task[None] | None = None
        self._tunnels: dict[str, KernelTunnel] = {}  # by pod's name
        self._led: dict[str, str] = {}  # by pod's name: the uid of the pod that its tunnel leads to
        self._ends: dict[str, ProcessEnd] = {}  # by container
        self._signals: dict[str, int] = {}  # sent to end a container
        self._waiting: dict[str, str] = {}  # by kernel: why its start waits
        self._starts: dict[str, asyncio.Future[KernelProcess]] = {}  # by kernel
        self._withdrawn: set[asyncio.Future[KernelProcess]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    # ---- the start

    async def create(self, launch: Launch) -> KernelProcess:
        kernel_id = launch.spec.kernel_id
        starting = self._starts[kernel_id] = asyncio.ensure_future(self._create(launch))
        try:
            return await starting
        except asyncio.CancelledError:
            if starting not in self._withdrawn:
                raise
            raise WithdrawnError("the kernel was ended while the cluster had not started its pod") from None
        finally:
            self._withdrawn.discard(starting)
            if self._starts.get(kernel_id) is starting:
                del self._starts[kernel_id]

    def withdraw(self, kernel_id: str) -> bool:
        """Give up a start, whose pod is then deleted; return whether it was under way."""
        starting = self._starts.get(kernel_id)
        if starting is None or starting.done():
            return False
        self._withdrawn.add(starting)
        starting.cancel()
        return True

    async def _create(self, launch: Launch) -> KernelProcess:
        plan, grant, relay = launch.container, launch.grant, launch.relay
        kernel_id = launch.spec.kernel_id
        if plan is None:
            raise LaunchError(f"Requested to start the kernel {kernel_id} as a pod, but it is no image. Choose one")
        record = pod_record(launch, self._settings.cluster.gateway, time.time())
        assert grant is not None  # pod_record refuses a start without a grant, and one without a relay
        assert relay is not None
        keys = make_keys(str(relay.front["key"]), str(relay.front.get("curve_secretkey", "")))
        made = pod_plan(launch, plan, grant, self._settings)
        store, until = self._store(), time.monotonic() + self._settings.start_seconds
        note = partial(self._note, kernel_id)
        try:
            pod = await store.submit(record, made, keys, relay_annotation(launch), until, note)
            try:
                await launch.until_relay()  # it starts while the pod does
                waits = StartingPod(store, pod["metadata"], grant.node, until, self._settings.start_seconds, note)
                pod = await waits.until_running()
                await self._stop_tunnel(pod["metadata"]["name"])  # of its last run
            except BaseException:
                store.delete_later(pod["metadata"]["name"], pod["metadata"]["uid"], 0)
                raise
        except ClusterError as error:
            raise LaunchError(refusal_text(error)) from error
        except GrantLostError:
            self._settings.node_lost(grant.node)
            raise
        finally:
            self._waiting.pop(kernel_id, None)
        self._tunnel(kernel_id, pod, partial(_known, keys))
        self._log.info("kernel=%s pod=%s node=%s start=done", kernel_id, pod["metadata"]["name"], grant.node)
        return _process(kernel_id, pod["metadata"])

    def _note(self, kernel_id: str, why: str) -> None:
        if why and self._waiting.get(kernel_id) != why:
            self._log.info("kernel=%s waits reason=%s", kernel_id, why)
            self._waiting[kernel_id] = why

    def serves(self, node: str) -> bool:
        """Return whether a node is one of the cluster's: all are whose agents dial in."""
        return bool(node)

    def waiting_reason(self, kernel_id: str) -> str | None:
        """Return what a start waits for, such as its image; None if it does not wait."""
        return self._waiting.get(kernel_id)

    async def ensure_relay_host(self, runtime: RuntimeDir) -> None:
        """Do nothing: relays stand beside the gateway, and their host starts with the first."""

    def _tunnel(self, kernel_id: str, pod: Object, keys: Callable[[], Awaitable[RelayKeys]]) -> None:
        address = str(pod["status"]["podIP"]), self._settings.cluster.relay_port
        folder, name = self._runtime.relay(kernel_id) / "k", pod["metadata"]["name"]
        tunnel = KernelTunnel(kernel_id, address, keys, folder, self._log, is_kept=has_sidecar(pod))
        self._tunnels[name], self._led[name] = tunnel, pod["metadata"]["uid"]
        tunnel.start()

    async def _stop_tunnel(self, name: str) -> None:
        tunnel = self._tunnels.pop(name, None)
        self._led.pop(name, None)
        if tunnel is not None:
            await tunnel.close()

    # ---- the kernel

    async def signal(self, process: KernelProcess, signal_number: int) -> None:
        """Interrupt the kernel by a message; end its pod for any signal that ends processes."""
        name, uid = _of(process)
        if await self.poll(process) is not None or signal_number == 0:
            return
        if signal_number == signal.SIGINT:
            tunnel = self._tunnels.get(name)
            if tunnel is not None:
                await tunnel.interrupt()
            return
        grace = 0 if signal_number == signal.SIGKILL else None
        await self._store().delete(name, uid, grace)
        self._signals[process.container] = signal_number

    async def poll(self, process: KernelProcess) -> int | None:
        end = self._look(process)
        return None if end is None else exit_status(end)

    async def wait(self, process: KernelProcess) -> int:
        while True:
            changed = self._store().next_change()
            if (status := await self.poll(process)) is not None:
                return status
            await asyncio.wait({changed}, timeout=_LOOK_SECONDS)

    async def ending(self, process: KernelProcess) -> ProcessEnd | None:
        return self._look(process)

    async def resize(self, process: KernelProcess, limits: ContainerLimits) -> str:
        """Change CPU and memory of the pod. Returns in words what could not be changed."""
        name, uid = _of(process)
        try:
            await self._store().resize(name, uid, limits)
        except ClusterError as error:
            why = refusal_text(error, "the resize of the kernel's pod")
            return f"CPU and RAM of its pod stay as they are until its next start. {why}"
        return ""

    async def remove(self, process: KernelProcess) -> None:
        """Delete the pod. While the API does not answer, that is tried again in the background."""
        name, uid = _of(process)
        await self._stop_tunnel(name)
        store = self._store()
        try:
            await store.delete(name, uid, 0)
        except EngineError:
            store.delete_later(name, uid, 0)
            raise
        self._signals.setdefault(process.container, signal.SIGKILL)

    def pipes(self, process: KernelProcess) -> PipeEnds:
        """Return no pipes: the cluster keeps what a pod writes."""
        return PipeEnds(process.pid)

    # ---- the record

    async def list(self) -> tuple[KernelProcess, ...]:
        return tuple(found.process for found in await self.find() if found.is_running)

    async def find(self, labels: Mapping[str, str] | None = None) -> tuple[FoundContainer, ...]:
        """Return the pods of this gateway's kernels that run or have ended. Raises EngineError.

        Pods that were only starting are left out: their kernels are started again. While the API is away
        or busy the answer waits: a gateway that cannot see its pods knows no kernel.
        """
        pods = await self._open().list()
        self._store()  # from here on its pods are watched
        found = find_kernels(pods, self._settings.cluster.gateway)
        for problem in found.problems:
            self._log.error("pods=unreadable reason=%s", problem)
        by_uid = {pod["metadata"]["uid"]: pod for pod in pods}
        listed = [self._found(kernel, by_uid[kernel.uid]) for kernel in found.kernels.values()]
        return tuple(one for one in listed if one is not None)

    def _found(self, kernel: FoundKernel, pod: Object) -> FoundContainer | None:
        process = _process(kernel.record.kernel_id, pod["metadata"])
        if kernel.state.phase in OVER:
            self._remember(process, _end_of(kernel.state))
            return FoundContainer(process, pod["metadata"]["labels"], False)
        if kernel.state.phase is not PodPhase.RUNNING:
            return None
        if kernel.pod not in self._tunnels:
            self._tunnel(kernel.record.kernel_id, pod, partial(self._keys_of, kernel.pod))
        return FoundContainer(process, pod["metadata"]["labels"], True)

    async def _keys_of(self, pod: str) -> RelayKeys:
        """Return the keys of a kernel's relay. Raises ClusterError and StateError."""
        return read_keys(await self._store().secret(pod))

    async def revive(self, found: FoundContainer) -> RelayRecord | None:
        """Start a relay for a kernel whose relay ended with its container or machine.

        None: the pod is no more, or its keys are lost. Raises EngineError and RelayError while neither is known,
        or while another replica may lead, which starts one, too.
        """
        name, uid = _of(found.process)
        self._open().check_lead()
        try:
            seen = await self._store().with_secret(name, uid, time.monotonic() + _REVIVE_SECONDS)
            if seen is None:
                return None
            request = relay_request(seen[0], read_keys(seen[1]))
        except StateError as error:
            self._log.error("kernel=%s relay=not_revived reason=%s", found.process.kernel_id, error)
            return None
        await ensure_relay_host(self._runtime)
        self._open().check_lead()  # the calls may have lasted longer than the Lease
        return await self._start_relay(request)

    async def _start_relay(self, request: RelayRequest) -> RelayRecord:
        try:
            return await start_relay(self._runtime, request)
        except RelayRefusedError as error:
            if error.code != "exists":
                raise
        # The host took it over meanwhile: it had seen that the kernel answers.
        try:
            return await asyncio.to_thread(read_relay_record, self._runtime.relay(request.kernel_id))
        except (OSError, UnreadableRecordError) as error:
            raise RelayError(f"The relay of kernel {request.kernel_id} has no readable record: {error!r}") from error

    def close(self) -> None:
        """End the watch and the tunnels; pods run on. Called in a thread."""
        loop = self._loop
        if loop is not None and loop.is_running():
            with contextlib.suppress(RuntimeError):
                asyncio.run_coroutine_threadsafe(self.stop(), loop).result(_LOOK_SECONDS)

    async def stop(self) -> None:
        """Do the same in the event loop."""
        watching, self._watching = self._watching, None
        if watching is not None:
            await end_task(watching)
        for name in list(self._tunnels):
            await self._stop_tunnel(name)
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()

    # ---- its end

    def _look(self, process: KernelProcess) -> ProcessEnd | None:
        """Return how a kernel's process ended; None while it runs, or while its pod cannot be seen."""
        if process.container in self._ends:
            return self._ends[process.container]
        store, (name, uid) = self._store(), _of(process)
        pod = store.pod(name, uid)
        number = self._signals.get(process.container)
        if pod is not None and (state := pod_state(pod)).phase in OVER:
            self._remember(process, _end_of(state) if number is None else ProcessEnd(signal=number))
        elif store.is_gone(uid):
            self._remember(
                process, _end_of_gone(store.last_state(uid)) if number is None else ProcessEnd(signal=number)
            )
        elif pod is None:
            store.look_for(name, uid)
        return self._ends.get(process.container)

    def _remember(self, process: KernelProcess, end: ProcessEnd) -> None:
        while len(self._ends) >= _REMEMBERED_ENDS:
            self._signals.pop(gone := next(iter(self._ends)), None)
            del self._ends[gone]
        self._ends[process.container] = end
        name, uid = _of(process)
        if self._led.get(name) == uid and name in self._tunnels:
            self._tunnels[name].note_end()
        self._log.info("kernel=%s pod=%s end=%s", process.kernel_id, name, exit_status(end))

    def _open(self) -> PodStore:
        if self._opened is None:
            self._loop = asyncio.get_running_loop()
            client = ClusterClient(self._configuration())
            told = self._settings
            self._opened = PodStore(client, told.cluster, asyncio.sleep, random.random, self._log, told.leads)
        return self._opened

    def _store(self) -> PodStore:
        store = self._open()
        if self._watching is None:
            self._watching = asyncio.create_task(store.watch(), name="aliquot-pods")
        return store


async def _known(keys: RelayKeys) -> RelayKeys:
    return keys


def _process(kernel_id: str, metadata: Mapping[str, Any]) -> KernelProcess:
    """Return a pod's process: it has no pid here, and its container is the pod's name and uid."""
    return KernelProcess(kernel_id, 0, 0, 0, f"{metadata['name']}/{metadata['uid']}")


def _of(process: KernelProcess) -> tuple[str, str]:
    name, _, uid = process.container.partition("/")
    return name or kernel_pod_name(process.kernel_id), uid


def _end_of_gone(last: PodState | None) -> ProcessEnd:
    return _end_of(last) if last is not None and last.phase in OVER else ProcessEnd(lost=DELETED)


def _end_of(state: PodState) -> ProcessEnd:
    code = state.exit_code
    number = None if code is None else code - 128
    is_signal = number is not None and number in set(signal.Signals)
    is_evicted = state.phase is PodPhase.EVICTED
    return ProcessEnd(
        exit_code=None if is_signal else code,
        signal=number if is_signal else None,
        last_words=state.reason if code is None and not is_evicted else "",
        lost=state.reason if is_evicted else "",
        is_out_of_memory="more host memory" in state.reason,
    )
