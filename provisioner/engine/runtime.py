"""Run kernels in containers through an engine's Docker API, and find them again by their labels.

The engine is the record. This module keeps what it learned of the containers' ends.
`containers.spec` decides what a container may do, and `client` calls the engine.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.containers.cdi import device_names, edits_for, load_specs
from jupyter_aliquot.provisioner.containers.plan import ContainerLimits, ContainerPlan
from jupyter_aliquot.provisioner.containers.spec import (
    GATEWAY_LABEL,
    KERNEL_LABEL,
    KERNELSPEC_LABEL,
    OWNER_LABEL,
    RUNTIME_DIR_LABEL,
    ContainerLaunch,
    ContainerSpec,
    Devices,
    container_spec,
    container_user,
)
from jupyter_aliquot.provisioner.errors import AliquotError, EngineError, FolderError, LaunchError
from jupyter_aliquot.provisioner.relay.wire.proc import start_time_ticks
from jupyter_aliquot.provisioner.resources import Grant, KernelProcess
from jupyter_aliquot.provisioner.runtime.base import FoundContainer, Launch, exit_status
from jupyter_aliquot.provisioner.runtime.process import is_running, wait_for_exit
from jupyter_aliquot.provisioner.runtime.stdio import PipeEnds
from jupyter_aliquot.provisioner.terminations import ProcessEnd, container_end

from .client import ContainerEngine, EngineFacts, has_ended, remove_container
from .oom_watch import MemoryWatch, judge_memory
from .relay_host import ensure_relay_container
from .settings import ContainerSettings
from .start import check_sources, create_and_start, is_in, last_words
from .update import resize_container

_LISTING_SECONDS = 1.0
_SETTLE_SECONDS = 0.02
_REMEMBERED_ENDS = 1000


class ContainerRuntime:
    """The kernels of one engine.

    A gateway makes one: all kernels share its listing and its watch of memory.
    """

    def __init__(
        self,
        settings: ContainerSettings | None = None,
        log: logging.Logger | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings or ContainerSettings()
        self._log = log or logging.getLogger(__name__)
        self._monotonic = monotonic
        self._engine = ContainerEngine(self._settings.engine)
        self._memory = MemoryWatch()
        self._ended: dict[str, ProcessEnd] = {}
        self._waiting: dict[str, str] = {}  # by kernel: the reason why its start waits
        self._is_silent = False
        self._states: dict[str, str] = {}
        self._states_at = -_LISTING_SECONDS

    # ---- the start

    async def create(self, launch: Launch) -> KernelProcess:
        plan = launch.container
        if plan is None:
            raise LaunchError(
                f"Requested to start the kernel {launch.spec.kernel_id} in a container, but it has no "
                "plan of one. Start it through the gateway"
            )
        try:
            return await self._create(launch, plan)
        except EngineError as error:
            raise LaunchError(str(error)) from error
        finally:
            self._waiting.pop(launch.spec.kernel_id, None)

    async def _create(self, launch: Launch, plan: ContainerPlan) -> KernelProcess:
        """Start the kernel with its folders; once more without others' folders if one of all went meanwhile."""
        try:
            return await self._start(await self._spec(launch, plan), plan)
        except FolderError as error:
            needed = plan.without_optional()
            if needed.mounts == plan.mounts:
                raise
            self._log.warning("kernel=%s invited_folders=left_out reason=%s", launch.spec.kernel_id, error)
        return await self._start(await self._spec(launch, needed), needed)

    def serves(self, node: str) -> bool:
        """Return whether a node is this machine: the engine runs here alone."""
        return not node

    def waiting_reason(self, kernel_id: str) -> str | None:
        """Return what a start waits for, such as its image; None if it does not wait."""
        return self._waiting.get(kernel_id)

    def withdraw(self, kernel_id: str) -> bool:
        """Give up nothing: a fetch of an image goes on, for other kernels, too."""
        return False

    async def _spec(self, launch: Launch, plan: ContainerPlan) -> ContainerSpec:
        kernel_id = launch.spec.kernel_id
        is_rootless = os.geteuid() != 0 and (await self._engine.facts()).is_rootless
        user = container_user(plan.user, (os.geteuid(), os.getegid()), is_rootless)
        check_sources(plan)
        image = await self._engine.image(
            plan.image, plan.pull, lambda text: self._progress(kernel_id, plan.image, text)
        )
        devices = Devices() if launch.grant is None else self._devices(launch.grant, await self._engine.facts())
        return container_spec(_container_launch(launch, user), plan, image, launch.grant, devices)

    def _devices(self, grant: Grant, engine: EngineFacts) -> Devices:
        settings = self._settings
        names = device_names(grant, settings.hook)
        if settings.devices == "cdi" or (settings.devices == "auto" and engine.has_cdi):
            # Docker puts a device's mounts before ours: they become read-only with the root (the
            # software GPU's state, too), and hidden below a tmpfs. The same mounts made by us do
            # not.
            specs = load_specs(settings.cdi_dirs)
            ours = [name for name in names if any(spec.kind == name.partition("=")[0] for spec in specs)]
            return Devices(cdi_names=names, edits=edits_for(ours, specs, settings.cdi_dirs))
        return Devices(edits=edits_for(names, load_specs(settings.cdi_dirs), settings.cdi_dirs))

    async def _start(self, spec: ContainerSpec, plan: ContainerPlan) -> KernelProcess:
        """Start a container. A caller that gives up meanwhile leaves no container behind."""
        starting = asyncio.ensure_future(self._engine.call(lambda client: create_and_start(client, spec, plan.mounts)))
        try:
            found = await asyncio.shield(starting)
        except asyncio.CancelledError:
            await self._undo(starting)
            raise
        process = _process(spec.kernel_id, found)
        self._memory.start(process.container, process.pid)
        self._log.info("kernel=%s container=%s pid=%d start=done", spec.kernel_id, process.container[:12], process.pid)
        return process

    async def _undo(self, starting: asyncio.Future[dict[str, Any]]) -> None:
        try:
            container = (await starting)["Id"]
        except AliquotError:
            return  # it removed the container that it had made
        await self._engine.call(lambda client: remove_container(client, container))

    def _progress(self, kernel_id: str, image: str, text: str) -> None:
        if kernel_id not in self._waiting:
            self._log.info("kernel=%s image=%s pull=begun", kernel_id, image)
        self._waiting[kernel_id] = f"fetching the image {image}: {text}"

    async def ensure_relay_host(self, runtime: RuntimeDir) -> None:
        """Make sure that the relay host runs in a container, if the configuration says so.

        Raises LaunchError, EngineError.
        """
        if self._settings.relay_image:
            await ensure_relay_container(self._engine, self._settings.relay_image, runtime)

    # ---- the kernel

    async def signal(self, process: KernelProcess, signal_number: int) -> None:
        """Send a signal to the engine's init process, which passes it to the kernel."""
        if await self.poll(process) is not None:
            return
        try:
            await self._engine.call(lambda client: client.kill(process.container, signal=signal_number))
        except EngineError as error:
            # The kernel may have ended in this very moment.
            state = await self._engine.inspect(process.container)
            if state is not None and state["State"]["Running"]:
                raise EngineError(
                    f"Signal {signal_number} cannot be sent to the container {process.container[:12]}: {error}"
                ) from error

    async def poll(self, process: KernelProcess) -> int | None:
        """Return the exit status; None while the kernel runs.

        The process table tells if it shows the container's process, else a listing that all kernels
        share.
        """
        end = self._ended.get(process.container)
        if end is None and process.start_time_ticks and is_running(process):
            self._memory.start(process.container, process.pid)  # also one that another gateway started
            return None
        if end is None and not process.start_time_ticks and await self._is_listed_running(process.container):
            return None
        end = end or await self._look_for_end(process)
        return None if end is None else exit_status(end)

    async def wait(self, process: KernelProcess) -> int:
        pause = _SETTLE_SECONDS if process.start_time_ticks else _LISTING_SECONDS
        while (status := await self.poll(process)) is None:
            if process.start_time_ticks and is_running(process):
                await wait_for_exit(process.pid)
            else:
                # The process is gone, and the engine has not recorded it yet; or this machine does
                # not show it.
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LISTING_SECONDS)
        return status

    async def ending(self, process: KernelProcess) -> ProcessEnd | None:
        if process.container not in self._ended and await self.poll(process) is None:
            return None
        return self._ended.get(process.container) or ProcessEnd()

    async def resize(self, process: KernelProcess, limits: ContainerLimits) -> str:
        """Change the limits. Memory is never set below what the kernel uses. Raises EngineError."""
        left = await self._engine.call(lambda client: resize_container(client, process.container, limits))
        self._log.info("kernel=%s container=%s resize=done left=%r", process.kernel_id, process.container[:12], left)
        return left

    async def remove(self, process: KernelProcess) -> None:
        if await self.poll(process) is None:
            await self.signal(process, signal.SIGKILL)
            await self.wait(process)
        await self._engine.call(lambda client: remove_container(client, process.container))
        self._memory.stop(process.container)

    def pipes(self, process: KernelProcess) -> PipeEnds:
        """Return no pipes: the engine keeps what a container writes."""
        return PipeEnds(process.pid)

    # ---- the record

    async def list(self) -> tuple[KernelProcess, ...]:
        return tuple(found.process for found in await self.find() if found.is_running)

    async def find(self, labels: Mapping[str, str] | None = None) -> tuple[FoundContainer, ...]:
        """Return all kernels' containers with these labels, ended ones too, of all gateways.

        Raises EngineError.
        """
        wanted = [KERNEL_LABEL, *(f"{name}={value}" for name, value in (labels or {}).items())]
        listed = await self._engine.call(lambda client: client.containers(all=True, filters={"label": wanted}))
        states = await asyncio.gather(*(self._engine.inspect(each["Id"]) for each in listed))
        return tuple(_found(state) for state in states if state is not None)

    async def revive(self, found: FoundContainer) -> None:
        """Start no relay: a kernel whose sockets had one is joined by the host's next one alone."""

    def close(self) -> None:
        """End threads and connections; containers run on."""
        self._memory.close()
        self._engine.close()

    # ---- its end

    async def _is_listed_running(self, container: str) -> bool:
        if self._monotonic() - self._states_at >= _LISTING_SECONDS:
            self._states_at = self._monotonic()  # before the answer: concurrent callers use the old listing
            try:
                listed = await self._engine.call(
                    lambda client: client.containers(all=True, filters={"label": [KERNEL_LABEL]})
                )
            except EngineError as error:
                self._note_silence(error)
                return True  # the engine did not answer, which says nothing about its containers
            self._states = {each["Id"]: each["State"] for each in listed}
        # A container that is not listed is then looked at by itself.
        return not has_ended(self._states.get(container, "gone"))

    def _note_silence(self, reason: EngineError) -> None:
        """Log the engine's silence once, however many callers meet it."""
        if not self._is_silent:
            self._log.warning("engine=silent its kernels count as running reason=%s", reason)
        self._is_silent = True

    async def _look_for_end(self, process: KernelProcess) -> ProcessEnd | None:
        """Return how a process ended, by its engine; None while the engine says that it runs."""
        container = process.container
        try:
            found = await self._engine.inspect(container)
            if found is not None and not has_ended(found["State"]["Status"]):
                return None
            words = "" if found is None else await self._engine.call(lambda client: last_words(client, found))
        except EngineError as error:
            self._note_silence(error)
            return None
        self._is_silent = False
        limit = None if found is None else found["HostConfig"].get("Memory") or None
        end = ProcessEnd() if found is None else container_end(found["State"], limit=limit, last_words=words)
        end = judge_memory(end, self._memory.facts(container))
        self._memory.stop(container)
        while len(self._ended) >= _REMEMBERED_ENDS:
            del self._ended[next(iter(self._ended))]
        self._ended[container] = end
        self._log.info("kernel=%s container=%s end=%s", process.kernel_id, container[:12], exit_status(end))
        return end


def _container_launch(launch: Launch, user: str) -> ContainerLaunch:
    spec, grant, relay = launch.spec, launch.grant, launch.relay
    facts: Mapping[str, Any] = {} if relay is None else relay.facts
    labels = {
        GATEWAY_LABEL: str((relay and relay.gateway) or ""),
        OWNER_LABEL: str(facts.get("owner") or ("" if grant is None else grant.owner)),
        KERNELSPEC_LABEL: str(facts.get("kernelspec") or ""),
        RUNTIME_DIR_LABEL: "" if relay is None else str(relay.folder.parent.parent),
    }
    return ContainerLaunch(
        kernel_id=spec.kernel_id,
        argv=spec.argv,
        env=spec.env,
        program=spec.program,
        cwd=spec.cwd,
        inherited=dict(os.environ),
        folder="" if relay is None else str(relay.kernel_folder),
        labels={name: value for name, value in labels.items() if value},
        user=user,
    )


def _process(kernel_id: str, found: Mapping[str, Any]) -> KernelProcess:
    """Return a container's process.

    ``start_time_ticks`` is 0 if this machine's process table does not show it.
    """
    pid, container = int(found["State"]["Pid"]), str(found["Id"])
    ticks = (start_time_ticks(pid) or 0) if pid and is_in(pid, container) else 0
    return KernelProcess(kernel_id, pid, ticks, pid, container)


def _found(state: Mapping[str, Any]) -> FoundContainer:
    labels = dict(state["Config"].get("Labels") or {})
    return FoundContainer(
        _process(labels.get(KERNEL_LABEL, ""), state), labels, not has_ended(state["State"]["Status"])
    )
