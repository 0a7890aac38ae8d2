"""Search for the processes of an earlier gateway.

Relays are found by their folders, containers by their labels.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from jupyter_aliquot.gateway.state.records import KernelRecord
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.containers.spec import GATEWAY_LABEL
from jupyter_aliquot.provisioner.errors import EngineError, RelayError
from jupyter_aliquot.provisioner.relay.client.control import ensure_relay_host, remove_relay, stop_relay
from jupyter_aliquot.provisioner.relay.wire.files import Ended, RelayRecord, is_anothers, read_ended, read_relay_records
from jupyter_aliquot.provisioner.resources import KernelProcess
from jupyter_aliquot.provisioner.runtime.base import Containers, FoundContainer
from jupyter_aliquot.provisioner.terminations import ProcessEnd, relay_end

from .belief import DoubtError, UnsureError, believed
from .plan import FoundProcesses

# A relay host looks for killed relays when it starts, and then every five seconds.
_RELAY_SECONDS = 7.0
# A relay waits a quarter of a second for a kernel's last messages before it records the end.
_ENDED_SECONDS = 2.0
# An engine may start at the same time as this server.
_ENGINE_SECONDS = 10.0
_ASK_AGAIN_SECONDS = 0.2
_LOOK_AGAIN_SECONDS = 0.05
_REVIVED_AT_ONCE = 8


class ProcessFinder:
    """Finds and removes what is left of the kernels of the gateway *identity*.

    *containers* is None on a server that never started one.
    """

    def __init__(
        self,
        runtime: RuntimeDir,
        identity: str,
        containers: Containers | None,
        log: logging.Logger,
        has_folder: Callable[[str, Path], bool] = lambda user, folder: True,
    ) -> None:
        """*has_folder* tells whether a relay's folder is of a user's account, or raises AccountError."""
        self._runtime = runtime
        self._identity = identity
        self._containers = containers
        self._log = log
        self._has_folder = has_folder

    async def find(
        self, records: Iterable[KernelRecord], *, has_images: bool, only: Container[str] | None = None
    ) -> Mapping[str, FoundProcesses]:
        """Return what is found, by kernel id; *only* names the kernels whose containers are looked at.

        A kernel in a container is left out while its engine does not answer. A relay of another
        account counts where *records* have its kernel; ``is_unknown`` where the gateway cannot tell.
        """
        ours, unsure = await self._find_relays({record.kernel_id: record for record in records})
        inside = {kernel_id for kernel_id, relay in ours.items() if relay.facts.get("runtime") == "container"}
        found = {kernel_id: _of_process(relay) for kernel_id, relay in ours.items() if kernel_id not in inside}
        found |= {kernel_id: FoundProcesses(is_unknown=True) for kernel_id in unsure}
        if self._containers is None or not (inside or has_images):
            return found
        try:
            boxes = await self._find_containers(self._containers, _ENGINE_SECONDS if inside else 0.0)
        except EngineError as error:
            level = logging.ERROR if inside else logging.INFO
            self._log.log(level, "containers=unknown kernels=%d left as they are reason=%s", len(inside), error)
            # A record without a relay may be of a pod, whose relay went with another machine.
            unseen = inside if self._containers.serves("") else inside | {record.kernel_id for record in records}
            return found | {kernel_id: FoundProcesses(is_unknown=True) for kernel_id in unseen - set(found)}
        missing = [kernel_id for kernel_id in inside | set(boxes) if kernel_id not in found]
        missing = [kernel_id for kernel_id in missing if only is None or kernel_id in only]
        reviving = asyncio.Semaphore(_REVIVED_AT_ONCE)
        made = (self._of_container(ours.get(one), boxes.get(one), reviving) for one in missing)
        return found | dict(zip(missing, await asyncio.gather(*made), strict=True))

    async def clear(self, kernel_id: str, found: FoundProcesses) -> None:
        """End what is left of one kernel, and remove its folder and its container."""
        if found.container is not None and self._containers is not None:
            try:
                await self._containers.remove(found.container)
            except EngineError as error:
                self._log.error("kernel=%s container=stuck reason=%s", found.container.kernel_id, error)
        try:
            if found.relay is not None:
                await stop_relay(found.relay)
            elif _is_left_by_another(folder := self._runtime.relay(kernel_id)):
                await remove_relay(folder)  # its owner forged or removed the record
        except RelayError as error:
            self._log.error("kernel=%s relay=stuck reason=%s", kernel_id, error)

    async def _find_relays(self, noted: Mapping[str, KernelRecord]) -> tuple[dict[str, RelayRecord], set[str]]:
        """Find the relays, by their kernels, and the kernels of those about which the gateway is not sure.

        Start a relay host if there are any.

        The host takes over the kernels of relays that were killed.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        give_up = began + _RELAY_SECONDS
        while True:
            relays = await asyncio.to_thread(read_relay_records, self._runtime)
            ours, doubts = self._ours(relays, noted)
            unsure = {kernel_id for kernel_id, doubt in doubts.items() if isinstance(doubt, UnsureError)}
            is_whole = not any(relay.has_living_kernel and not relay.is_alive for relay in ours.values())
            if is_whole and loop.time() < began + _ENDED_SECONDS and any(map(_is_about_to_record, ours.values())):
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)
                continue
            if is_whole or loop.time() >= give_up:
                for kernel_id, doubt in doubts.items():
                    found = "left_running" if kernel_id in unsure else "not_believed"
                    self._log.error("kernel=%s relay=%s reason=%s", kernel_id, found, doubt)
                return ours, unsure
            try:
                await ensure_relay_host(self._runtime)
            except RelayError as error:
                self._log.error("relay_host=unavailable reason=%s", error)
                return ours, unsure
            await asyncio.sleep(_ASK_AGAIN_SECONDS)

    def _ours(
        self, relays: Iterable[RelayRecord], noted: Mapping[str, KernelRecord]
    ) -> tuple[dict[str, RelayRecord], dict[str, DoubtError | UnsureError]]:
        """Return the relays of this gateway's kernels, and why others that may be are left out."""
        ours: dict[str, RelayRecord] = {}
        doubts: dict[str, DoubtError | UnsureError] = {}
        for relay in relays:
            kernel_id, is_named = relay.kernel_id, relay.gateway == self._identity
            try:
                if not is_anothers(relay.folder):
                    if is_named:
                        ours[kernel_id] = relay
                elif is_named or kernel_id in noted:
                    ours[kernel_id] = believed(relay, noted.get(kernel_id), self._has_folder)
            except (DoubtError, UnsureError) as doubt:
                doubts[kernel_id] = doubt
            except FileNotFoundError:  # its folder is gone meanwhile
                continue
        return ours, doubts

    async def _find_containers(self, containers: Containers, seconds: float) -> dict[str, FoundContainer]:
        """Return the latest container of each kernel. Raises EngineError."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + seconds
        while True:
            try:
                boxes = await containers.find({GATEWAY_LABEL: self._identity})
                break
            except EngineError:
                if loop.time() >= give_up:
                    raise
                await asyncio.sleep(_ASK_AGAIN_SECONDS)
        # A running container counts before containers that ended and were not removed yet.
        return {box.process.kernel_id: box for box in sorted(boxes, key=lambda box: box.is_running)}

    async def _of_container(
        self, relay: RelayRecord | None, box: FoundContainer | None, reviving: asyncio.Semaphore
    ) -> FoundProcesses:
        if box is None or self._containers is None:
            return FoundProcesses(relay)
        found = FoundProcesses(relay, had_process=True, container=box.process)
        if box.is_running and not found.has_relay:  # it is gone with an earlier gateway's machine or container
            try:
                async with reviving:
                    found = replace(found, relay=await self._containers.revive(box) or relay)
            except (EngineError, RelayError) as error:
                self._log.error("kernel=%s relay=none left_running reason=%s", box.process.kernel_id, error)
                return FoundProcesses(is_unknown=True, container=box.process)
        if box.is_running:
            return replace(found, process=box.process)
        return replace(found, end=await self._containers.ending(box.process))


def _is_left_by_another(folder: Path) -> bool:
    return os.path.isdir(folder) and is_anothers(folder)


def _of_process(relay: RelayRecord) -> FoundProcesses:
    kernel = relay.kernel
    if kernel is None:
        return FoundProcesses(relay)
    if relay.has_living_kernel:
        process = KernelProcess(relay.kernel_id, kernel.pid, kernel.start_time_ticks, kernel.pid)
        return FoundProcesses(relay, process, had_process=True)
    ended = _recorded_end(relay)
    return FoundProcesses(relay, end=ProcessEnd() if ended is None else relay_end(vars(ended)), had_process=True)


def _recorded_end(relay: RelayRecord) -> Ended | None:
    """Return the end of the relay's last kernel; None if the relay has not recorded it."""
    ended, kernel = read_ended(relay), relay.kernel
    if ended is None or kernel is None or (ended.pid, ended.start_time_ticks) != (kernel.pid, kernel.start_time_ticks):
        return None
    return ended


def _is_about_to_record(relay: RelayRecord) -> bool:
    """Tell whether a kernel has just ended, and its relay still waits for its last messages."""
    return relay.kernel is not None and not relay.has_living_kernel and relay.is_alive and _recorded_end(relay) is None
