"""The agent's work for the kubelet of its node, put together. Made where --kubelet is given."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .allocation import HeldGpu, NodeParts, allocation, device_minors, driver_files, hook_allocation
from .messages import ContainerAllocateResponse
from .plugin import AllocationError, DevicePlugin
from .pods import PodResourcesClient, PodsUnknownError, SlotOwners, claimed_gpus, held_gpus
from .settings import KubeletSettings
from .slots import FindKernel, Slots

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class NodeSide:
    """The agent's side of this work.

    ``find`` gives what takes the connections of a pod's kernel. ``is_healthy`` tells whether a device
    of the node can be used. ``told`` is called with the kernel pods that the kubelet runs. ``in_use``
    tells whether kernels of an earlier agent are on a GPU. ``held`` is called when other GPUs are held than
    before. ``minors`` returns the GPUs' numbers by UUID.
    """

    find: FindKernel
    is_healthy: Callable[[], bool]
    told: Callable[[Collection[str]], None]
    in_use: Callable[[str], bool]
    held: Callable[[], None]
    minors: Callable[[], Mapping[str, int]] = device_minors


class KubeletNode:
    """The device plugin with its slots, and the GPUs that holders hold."""

    def __init__(self, settings: KubeletSettings, slots_dir: Path, parts: NodeParts, agent: NodeSide) -> None:
        self._settings = settings
        self._parts = parts
        self._agent = agent
        self._pods = PodResourcesClient(settings.pod_resources_socket)
        self._owners = SlotOwners(self._pods, settings.resource)
        self._slots = Slots(slots_dir, settings.slots, self._owners, agent.find)
        self._held: Mapping[str, str] | None = None  # holders by UUID; None: the kubelet has told nothing yet
        self._is_untold = False  # other GPUs are held than the agent has taken
        self._plugin = DevicePlugin(settings, self._slots.names, agent.is_healthy, self._allocate)
        self._problem = ""

    def is_held(self, uuid: str) -> bool:
        """Return whether a GPU is Aliquot's to use: a holder holds it, or it is a software GPU for trying.

        Until the kubelet's first answer it is one that kernels of an earlier agent are on.
        """
        if self._parts.softgpu_state is not None and not self._settings.holds_softgpu:
            return True
        return self._agent.in_use(uuid) if self._held is None else uuid in self._held

    async def run(self) -> None:
        """Serve the kubelet for as long as the agent runs."""
        self._slots.restore()
        plugin = asyncio.create_task(self._plugin.run(), name="aliquot-device-plugin")
        try:
            while True:
                try:
                    if await self.look():
                        self._agent.told(frozenset(self._owners.pods.values()))
                except Exception:
                    log.exception("event=kubelet_look_failed")
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            plugin.cancel()
            await asyncio.gather(plugin, return_exceptions=True)
            await self._plugin.close()
            await self._slots.close()

    async def look(self) -> bool:
        """Learn which pods have which devices; return whether the kubelet told.

        What it does not tell stays as it was: a kubelet that restarts ends no kernel.
        """
        try:
            pods = await self._pods.list()
        except PodsUnknownError as error:
            if str(error) != self._problem:
                log.warning("event=pods_unknown reason=%r", str(error))
            self._problem = str(error)
            return False
        self._problem = ""
        self._owners.note(pods)
        driver = self._settings.claims_driver
        found = (
            claimed_gpus(pods, driver, self._agent.minors()) if driver else held_gpus(pods, self._settings.gpu_resource)
        )
        before, self._held = self._held, found
        if before != found:
            log.info("event=gpus_held holders=%s", found)
            self._is_untold = True
        if self._is_untold:
            self._agent.held()
            self._is_untold = False
        return True

    def holder_of(self, uuid: str) -> str:
        """Return the pod that holds a GPU for Aliquot, as ``NAMESPACE/NAME``; empty: none does."""
        return (self._held or {}).get(uuid, "")

    async def _allocate(self, slot: str) -> ContainerAllocateResponse:
        """Return what the container with a slot gets. Raises AllocationError."""
        await self.look()
        has_cdi, is_nvidia = self._settings.has_cdi, self._parts.softgpu_state is None
        try:
            folder = self._slots.give(slot)
        except KeyError:
            raise AllocationError(f"The slot {slot!r} does not exist on this node") from None
        except OSError as error:
            raise AllocationError(f"The slot {slot!r} cannot be prepared: {error}") from error
        log.info("event=slot_given slot=%s", slot)
        if self._settings.claims_driver:
            return hook_allocation(self._parts, folder, has_cdi)  # the DRA driver gives the rest
        files = driver_files(self._parts.driver) if is_nvidia and not has_cdi else ()
        return allocation(self._parts, folder, self._held_gpus(), has_cdi, files)

    def _held_gpus(self) -> Iterable[HeldGpu]:
        held = self._held or {}
        return [HeldGpu(uuid, minor) for uuid, minor in device_minors().items() if uuid in held]
