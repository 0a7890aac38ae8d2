"""All kernels of this node: reserve, bind and release them, and end those that no connection holds.

This is the one place that makes and ends kernels, and the only caller of ``Ledger.reserve`` and
``release``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from jupyter_aliquot.gpu_hook.agent.activity.idleness import Activity
from jupyter_aliquot.gpu_hook.agent.base.processes import read_boot_id
from jupyter_aliquot.gpu_hook.agent.compute.loop import ComputeKeeper
from jupyter_aliquot.gpu_hook.agent.devices.audit import KernelProcesses
from jupyter_aliquot.gpu_hook.agent.devices.devices import DeviceReading
from jupyter_aliquot.gpu_hook.agent.devices.host_memory import HostMemoryRule
from jupyter_aliquot.gpu_hook.agent.ledger.journal import (
    Entry,
    JournalError,
    Reservation,
    Tally,
    read_entry,
    remove_folder,
)
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import Ledger, LedgerError
from jupyter_aliquot.gpu_hook.agent.scheduling.keeper import LeaseKeeper
from jupyter_aliquot.gpu_hook.agent.swap.residency import SwapTools
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, is_shared
from jupyter_aliquot.gpu_hook.placement.placement import NEVER_FITS, Part, Refusal, over_limit, place, resize

from .kernel import Kernel

log = logging.getLogger(__name__)


class Refused(Exception):
    """A refused request. ``code`` is one of docs/reference/agent-protocol.md."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class KernelSettings(Protocol):
    """The agent's settings that concern kernels."""

    @property
    def runtime(self) -> RuntimeDir: ...

    @property
    def host_memory(self) -> HostMemoryRule: ...

    @property
    def recall_seconds(self) -> float: ...

    @property
    def orphan_seconds(self) -> float: ...

    @property
    def reconnect_seconds(self) -> float: ...

    @property
    def restart_grace_seconds(self) -> float: ...


class Reservations:
    """The reservations of this node.

    It calls ``changed`` when the reservable capacity changed, and ``processes_changed`` when a
    process came or left.
    """

    def __init__(
        self,
        ledger: Ledger,
        settings: KernelSettings,
        changed: Callable[[], None],
        processes_changed: Callable[[], None],
        swap: SwapTools,
        leases: LeaseKeeper,
        compute: ComputeKeeper,
    ) -> None:
        self.ledger = ledger
        self._leases = leases
        self._compute = compute
        self._swap = swap
        self._descriptors = swap.arena.descriptors  # one count for sockets and host copies
        self._settings = settings
        self._changed = changed
        self._processes_changed = processes_changed
        self._kernels: dict[str, Kernel] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}  # kernels that no connection holds
        self._ending: set[str] = set()  # released, with a process that keeps memory
        self._lost: dict[str, Reservation] = {}  # they ended with the machine, before this agent
        self._departed: dict[int, tuple[str, int]] = {}  # pid -> kernel id, looks at the devices since it left

    @property
    def kernels(self) -> Iterable[Kernel]:
        return self._kernels.values()

    @property
    def ending(self) -> Iterable[str]:
        """Return the released kernels of which a process keeps memory on its devices."""
        return self._ending

    @property
    def lost(self) -> Iterable[Reservation]:
        """Return the reservations that ended with the machine, which was started again since."""
        return self._lost.values()

    def __len__(self) -> int:
        return len(self._kernels)

    def find(self, kernel_id: str) -> Kernel | None:
        return self._kernels.get(kernel_id)

    def held_by(self, owner: str) -> int:
        """Return the hundredths of all kernels of an owner, ending ones included."""
        return sum(k.reservation.hundredths for k in self._kernels.values() if k.reservation.owner == owner)

    def reserve(
        self,
        asked: Reservation,
        placement: Mapping[str, int] | None,
        connection: int,
        owner_limit: int | None = None,
        libraries: str = "",
    ) -> Kernel:
        """Reserve for a connection, or make the connection another holder. Raises Refused.

        ``owner_limit`` is the hundredths that the owner may hold in all. It is checked here, where
        no other start comes between. ``libraries`` names those in the grant that the caller gives.
        """
        kernel = self._kernels.get(asked.kernel_id)
        if kernel is not None:
            self._check_same(kernel, asked)
            if kernel.is_ending:
                self._revive(kernel)
            kernel.connections.add(connection)
            kernel.note_libraries(libraries)
            self._stop_timer(kernel)
            return kernel
        if owner_limit is not None:
            self._check_owner(asked, owner_limit)
        parts = place(
            self.ledger.device_states(asked.workload_class),
            asked.hundredths,
            asked.memory_limit,
            placement,
            residency=asked.residency,
            host=self.ledger.host_room(),
        )
        reservation = replace(asked, parts=self._checked(parts, "refused", asked.kernel_id))
        tallies = tuple(Tally() for _ in reservation.parts)
        kernel = self._add(Entry(reservation, tallies=tallies, libraries=(libraries,) if libraries else ()))
        kernel.connections.add(connection)
        log.info("event=reserved kernel=%s owner=%r parts=%s", asked.kernel_id, asked.owner, _show(reservation))
        self._changed()
        return kernel

    def _revive(self, kernel: Kernel) -> None:
        kernel.revive()
        self._ending.discard(kernel.kernel_id)
        self._begin_grace(kernel)

    @staticmethod
    def _check_same(kernel: Kernel, asked: Reservation) -> None:
        if not kernel.reservation.is_same_request(asked):
            raise Refused(
                "conflict",
                f"kernel {asked.kernel_id} exists with another request "
                f"({kernel.reservation.hundredths / 100:g} GPU for {kernel.reservation.owner}); release it first",
            )

    def _checked(self, parts: tuple[Part, ...] | Refusal, event: str, kernel_id: str) -> tuple[Part, ...]:
        """Return the placed parts if a context fits into them, or raise Refused."""
        if not isinstance(parts, Refusal) and (why := self.ledger.contexts.why_too_small(parts)):
            parts = Refusal(NEVER_FITS, why)
        if isinstance(parts, Refusal):
            log.info("event=%s kernel=%s code=%s message=%r", event, kernel_id, parts.code, parts.message)
            raise Refused(parts.code, parts.message)
        return parts

    def _check_owner(self, asked: Reservation, limit: int) -> None:
        held = self.held_by(asked.owner)
        if held + asked.hundredths > limit:
            log.info("event=refused kernel=%s code=over_limit held=%d limit=%d", asked.kernel_id, held, limit)
            raise Refused("over_limit", over_limit(asked.owner, asked.hundredths, held, limit))

    def bind(self, kernel_id: str, pid: int, start_time_ticks: int) -> None:
        """Bind a kernel to its process. Raises Refused."""
        kernel = self._kernels.get(kernel_id)
        if kernel is None or kernel.is_ending:
            raise Refused("not_found", f"no kernel {kernel_id} is reserved here; reserve it first")
        if not kernel.bind(pid, start_time_ticks):
            raise Refused("bad_request", f"no process {pid} that started at tick {start_time_ticks} is alive here")
        self._stop_timer(kernel)
        self._processes_changed()

    def release(self, kernel_id: str) -> bool:
        """End a reservation; return whether it was there."""
        kernel = self._kernels.get(kernel_id)
        if kernel is None:
            return False
        self._cancel_timer(kernel)
        was_ending = kernel.is_ending
        if kernel.end():
            self._finish(kernel)
        else:
            self._ending.add(kernel_id)
            log.info("event=ending kernel=%s pids=%s", kernel_id, kernel.pids)
        return not was_ending

    def resize(self, kernel_id: str, hundredths: int, memory_limit: int | None, workload_class: str | None) -> Kernel:
        """Give a kernel another size or class while it runs, on the same devices. Raises Refused.

        The kernel keeps memory beyond a smaller limit until it frees it or is swapped.
        """
        kernel = self._kernels.get(kernel_id)
        if kernel is None or kernel.is_ending:
            raise Refused("not_found", f"no kernel {kernel_id} is reserved here")
        before = kernel.reservation
        asked = replace(
            before,
            hundredths=hundredths,
            memory_limit=memory_limit,
            workload_class=workload_class or before.workload_class,
        )
        if before.is_same_request(asked):
            return kernel
        if kernel.is_evicted:
            raise Refused("conflict", f"kernel {kernel_id} is evicted; try again when it has its GPU again")
        if self.ledger.is_moving(kernel_id):
            raise Refused("conflict", f"kernel {kernel_id} is being moved to another GPU; try again when it is there")
        parts = resize(
            self.ledger.device_states(asked.workload_class, without=kernel_id),
            before.parts,
            hundredths,
            memory_limit,
            residency=asked.residency,
            host=self.ledger.host_room(without=kernel_id),
        )
        parts = self._checked(parts, "resize_refused", kernel_id)
        host_quota = self._host_quota(hundredths)
        self.ledger.resize(kernel_id, parts, host_quota, is_production=asked.is_production)
        kernel.resize(replace(asked, parts=parts, generation=before.generation + 1), host_quota)
        log.info("event=resized kernel=%s parts=%s", kernel_id, _show(kernel.reservation))
        self._processes_changed()  # the enforcer is to hold the new limits, too
        self._changed()
        return kernel

    def note_activity(self, kernel_id: str, activity: Activity) -> None:
        """Keep the last report of a kernel's relay. Raises Refused."""
        kernel = self._kernels.get(kernel_id)
        if kernel is None:
            raise Refused("not_found", f"no kernel {kernel_id} is reserved here")
        kernel.activity = activity
        self._leases.note_activity(kernel_id)

    def interrupt(self, kernel_id: str) -> None:
        """Tell a kernel's processes that it is interrupted. Raises Refused."""
        kernel = self._kernels.get(kernel_id)
        if kernel is None:
            raise Refused("not_found", f"no kernel {kernel_id} is reserved here")
        kernel.credit_queues.interrupt()

    def note_pods(self, pods: Collection[str]) -> None:
        """Take the kernel pods of this node, as NAMESPACE/NAME: each holds the kernel that names it."""
        for kernel in list(self._kernels.values()):
            had_pod = kernel.has_pod
            kernel.has_pod = kernel.reservation.pod in pods
            if had_pod and not kernel.has_pod:
                self._check_holders(kernel)
            elif kernel.has_pod and not had_pod:
                self._stop_timer(kernel)

    def find_by_pod(self, pod: str) -> Kernel | None:
        """Return the kernel whose grant names this pod."""
        found = (kernel for kernel in self._kernels.values() if kernel.reservation.pod == pod)
        return next((kernel for kernel in found if not kernel.is_ending), None)

    def drop_connection(self, connection: int) -> None:
        """Drop a closed control connection: it holds nothing any more."""
        for kernel in list(self._kernels.values()):
            if connection in kernel.connections:
                kernel.connections.discard(connection)
                self._check_holders(kernel, self._settings.reconnect_seconds)

    def restore(self, has_kubelet: bool = False) -> None:
        """Restore the kernels that an earlier agent left.

        Remove records that are not whole, or do not fit. ``has_kubelet``: ``note_pods`` will tell
        which pods run; until then all do.
        """
        entries: list[tuple[Entry, Path]] = []
        boot_id = read_boot_id()
        for folder in self._settings.runtime.kernel_folders():
            if not folder.is_dir():
                continue
            try:
                entry = read_entry(folder)
            except JournalError as error:
                self._drop_folder(folder, error)
                continue
            if entry.boot_id == boot_id:
                entries.append((entry, folder))
            else:
                self._lose(folder, entry.reservation)
        targets = (entry.moves_to for entry, _ in entries if entry.moves_to is not None)
        self.ledger.add_lost((*(part for entry, _ in entries for part in entry.reservation.parts), *targets))
        for entry, folder in entries:
            try:
                kernel = self._add(entry, restored_from=folder)
            except Refused as error:
                self._drop_folder(folder, error)
                continue
            log.info("event=restored kernel=%s parts=%s", kernel.kernel_id, _show(kernel.reservation))
            if entry.is_ending:
                self.release(kernel.kernel_id)
                continue
            kernel.has_pod = has_kubelet and kernel.reservation.pod is not None
            self._begin_grace(kernel)

    def _begin_grace(self, kernel: Kernel) -> None:
        """Give the processes of an earlier agent's kernel their time to come back."""
        seconds, loop = self._settings.restart_grace_seconds, asyncio.get_running_loop()
        self._timers[kernel.kernel_id] = loop.call_later(seconds, self._end_grace, kernel)

    def _lose(self, folder: Path, reservation: Reservation) -> None:
        """Note a kernel from before the machine's restart.

        Its pids and start times belong to other processes now.
        """
        log.warning("event=node_lost kernel=%s owner=%r", reservation.kernel_id, reservation.owner)
        self._lost[reservation.kernel_id] = reservation
        remove_folder(folder)

    @staticmethod
    def _drop_folder(folder: Path, error: Exception) -> None:
        log.warning("event=not_restored folder=%s reason=%r", folder, str(error))
        remove_folder(folder)

    def sample_shared(self) -> None:
        """Read the pages of kernels with several processes.

        A single process's page is read with the devices.
        """
        for kernel in self._kernels.values():
            if kernel.is_shared:
                kernel.sample()

    def on_devices(self) -> dict[str, int]:
        """Return the bytes that processes of kernels have on each device now.

        The figure does not depend on their pages.
        """
        total: Counter[str] = Counter()
        for kernel in self._kernels.values():
            if kernel.is_in_use:  # any other has no process there
                total.update(kernel.read().on_devices)
        return total

    def processes(self) -> list[KernelProcesses]:
        """Return the processes of all kernels, for the audit.

        Called before ``book_looks`` forgets departed ones.
        """
        departed: dict[str, list[int]] = {}
        for pid, (kernel_id, _) in self._departed.items():
            departed.setdefault(kernel_id, []).append(pid)
        return [kernel.processes(departed.get(kernel_id, ())) for kernel_id, kernel in self._kernels.items()]

    def book_looks(self, readings: Iterable[DeviceReading]) -> None:
        """Book GPU time of processes on their kernels, and show it to them.

        Processes that just left are included.
        """
        owns, by_uuid = self._pids_by_kernel(), {reading.facts.uuid: reading for reading in readings}
        worked = {pid for reading in by_uuid.values() for pid, seconds in reading.busy.items() if seconds > 0}
        for kernel in self._kernels.values():
            own = owns[kernel.kernel_id]
            if not worked.isdisjoint(own):
                kernel.worked_at = time.monotonic()
            kernel.add_looks(by_uuid, own)
            if kernel.is_in_use:
                kernel.sample()
            kernel.keep_record()
        self._look_for_holders(by_uuid)
        self.ledger.begin_look()
        # The look that was under way when a process left may have missed its last work; the next
        # look does not.
        self._departed = {pid: (kernel, 1) for pid, (kernel, looks) in self._departed.items() if looks == 0}

    def _look_for_holders(self, by_uuid: Mapping[str, DeviceReading]) -> None:
        """Have released kernels of an earlier agent end whose processes are on no device any more."""
        for kernel in [self._kernels[one] for one in self._ending]:
            if kernel.is_expecting:
                places = {account.part.uuid for account in kernel.accounts}  # of a kernel that moved, not yet its parts
                places.update(part.uuid for part in kernel.reservation.parts)
                found = (by_uuid[uuid] for uuid in places if uuid in by_uuid)
                kernel.expect_listed({pid for reading in found for pid in reading.processes})
                self._check_holders(kernel)

    def _pids_by_kernel(self) -> dict[str, set[int]]:
        """Return the processes of each kernel, departed ones too."""
        owns = {kernel.kernel_id: set(kernel.pids) for kernel in self._kernels.values()}
        for pid, (kernel_id, _) in self._departed.items():
            if kernel_id in owns:
                owns[kernel_id].add(pid)
        return owns

    def close(self) -> None:
        """Close with the agent: leave held kernels to the next one."""
        for timer in self._timers.values():
            timer.cancel()
        for kernel in self._kernels.values():
            kernel.close(keep=kernel.is_held)
        self._kernels.clear()

    def _folder_of(self, reservation: Reservation) -> Path:
        """Return the place of a new kernel: a closed one for a container's, whose socket is for all accounts."""
        runtime = self._settings.runtime
        if reservation.uid is None and is_shared(runtime):
            return runtime.closed_kernels / reservation.kernel_id
        return runtime.kernel(reservation.kernel_id)

    def _add(self, entry: Entry, restored_from: Path | None = None) -> Kernel:
        """Enter a reservation and open its kernel, or do neither. Raises Refused."""
        reservation = entry.reservation
        host_quota = self._host_quota(reservation.hundredths)
        self._enter(entry, host_quota, is_restored=restored_from is not None)
        folder = restored_from or self._folder_of(reservation)
        try:
            recall_seconds = self._settings.recall_seconds
            kernel = Kernel(
                entry, folder, self.ledger, recall_seconds, self._left, host_quota, self._swap, self._descriptors
            )
        except OSError as error:
            self.ledger.release(reservation.kernel_id)
            remove_folder(folder)
            raise Refused("internal", f"cannot make the kernel's folder {folder}: {error.strerror}") from error
        self._kernels[reservation.kernel_id] = kernel
        self._lost.pop(reservation.kernel_id, None)
        self._enter_lease(kernel)
        if entry.is_aside:  # by an earlier agent
            self.ledger.set_aside(kernel.kernel_id)
            kernel.residency.is_set_aside = True
        kernel.compute = self._compute
        if restored_from is not None:
            kernel.restore(entry)
        else:
            kernel.write_journal()
        if entry.is_evicted and entry.moves_to is None:  # after it is known which processes are still to come back
            self._leases.evict(kernel.kernel_id)
        return kernel

    def _enter(self, entry: Entry, host_quota: int | None, *, is_restored: bool) -> None:
        """Enter a reservation into the ledger, or nothing of it. Raises Refused."""
        asked = entry.reservation
        words = (asked.kernel_id, asked.parts, host_quota)
        try:
            self.ledger.reserve(*words, is_production=asked.is_production, is_restored=is_restored)
        except LedgerError as error:
            raise Refused("no_room", str(error)) from error
        if entry.moves_to is None:
            return
        try:
            self.ledger.cross(asked.kernel_id, entry.moves_to)
        except LedgerError as error:
            self.ledger.release(asked.kernel_id)
            raise Refused("no_room", str(error)) from error

    def _enter_lease(self, kernel: Kernel) -> None:
        """Enter the kernel with the lease keeper.

        The keeper decides about its room and its memory.
        """
        leases, residency = self._leases, kernel.residency
        residency.wants_wake = residency.changed = lambda _: leases.notify()
        kernel.has_room = lambda device, amount: leases.has_room(
            kernel.kernel_id, kernel.reservation.parts[device].uuid, amount
        )
        kernel.made_room = lambda process, device, amount: leases.room.expect(
            kernel.accounts[device].part.uuid, (kernel.kernel_id, process), amount
        )
        leases.add(kernel, residency)

    def _host_quota(self, hundredths: int) -> int | None:
        rule = self._settings.host_memory
        return rule.quota(self.ledger.host_memory_bytes, hundredths, len(self.ledger.devices))

    def _left(self, kernel: Kernel, pid: int) -> None:
        """Note that a process of the kernel left. Called by the kernel."""
        self._departed[pid] = (kernel.kernel_id, 0)
        self._processes_changed()
        self._leases.notify_room()
        self._check_holders(kernel)

    def _check_holders(self, kernel: Kernel, seconds: float | None = None) -> None:
        """Start the kernel's end if its last holder is gone.

        *seconds* let that holder come back; None: those of a process.
        """
        if kernel.is_ending:
            if not kernel.keeps_memory:
                self._finish(kernel)
        elif not kernel.is_held and kernel.kernel_id not in self._timers:
            patience = self._settings.orphan_seconds if seconds is None else seconds
            loop = asyncio.get_running_loop()
            self._timers[kernel.kernel_id] = loop.call_later(patience, self._end_orphan, kernel)

    def _end_grace(self, kernel: Kernel) -> None:
        self._timers.pop(kernel.kernel_id, None)
        kernel.stop_expecting()
        if not kernel.is_held:
            self._end_orphan(kernel)

    def _end_orphan(self, kernel: Kernel) -> None:
        self._timers.pop(kernel.kernel_id, None)
        if not kernel.is_held:
            log.info("event=orphaned kernel=%s", kernel.kernel_id)
            self.release(kernel.kernel_id)

    def _finish(self, kernel: Kernel) -> None:
        if self._kernels.get(kernel.kernel_id) is not kernel:
            return  # the last of its sessions ended it, while we asked them to end
        self._stop_timer(kernel)
        del self._kernels[kernel.kernel_id]
        self._ending.discard(kernel.kernel_id)
        kernel.close(keep=False)
        self.ledger.release(kernel.kernel_id)
        self._leases.remove(kernel.kernel_id)
        self._compute.forget(kernel.kernel_id)
        log.info("event=released kernel=%s", kernel.kernel_id)
        self._changed()

    def _stop_timer(self, kernel: Kernel) -> None:
        """Stop the timer: a connection holds the kernel again, or it ended.

        After a restart the timer also ends the wait for holders.
        """
        if not kernel.is_expecting:
            self._cancel_timer(kernel)

    def _cancel_timer(self, kernel: Kernel) -> None:
        timer = self._timers.pop(kernel.kernel_id, None)
        if timer is not None:
            timer.cancel()


def _show(reservation: Reservation) -> str:
    return ",".join(f"gpu{part.index}:{part.hundredths}:{part.quota_bytes}" for part in reservation.parts)
