"""Moves of kernels from one device of this node to another.

A gateway decides who moves. This module carries that out: the new part is reserved first, the kernel
is swapped out and checkpointed, and its contexts are restored on the new device, by a map of GPUs.
The old part stays reserved until then, so that a move that fails leaves the kernel where it was.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from jupyter_aliquot.gpu_hook.agent.ledger.ledger import Ledger, LedgerError
from jupyter_aliquot.gpu_hook.agent.scheduling.keeper import LeaseKeeper
from jupyter_aliquot.gpu_hook.agent.scheduling.records import LeaseRecord, read_moment
from jupyter_aliquot.gpu_hook.agent.swap.facts import ResidencyFacts
from jupyter_aliquot.gpu_hook.agent.swap.table import LEASE_HELD, KernelState
from jupyter_aliquot.gpu_hook.placement.placement import NO_ROOM, Part

from .kernel import Kernel
from .reservations import Refused, Reservations

log = logging.getLogger(__name__)

# A kernel that has not left its device by then stays there.
PATIENCE_SECONDS = 120.0  # from its last step
RETRY_SECONDS = 1.0
_MOST_OUTCOMES = 256
UNHOOKED = "a process of it uses the GPU without the hook"
MOVING, DONE, FAILED = "moving", "done", "failed"
_TEMPORARY = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # the agent, or its machine, has too much open


@dataclass
class _Relocation:
    """A move under way.

    ``is_coming``: its contexts are saved, and restored on the new device next.
    """

    kernel: Kernel
    target: Part
    began: float
    was_resident: bool
    is_coming: bool = False
    entrance_error: str = ""  # of the last look at the kernel's entrance


class Relocations:
    """The moves between devices of this node.

    ``libraries`` names those of this agent: a process with others does not notice its new device.
    ``changed`` is called when parts became free, or taken. ``has_unhooked`` returns whether a kernel has a process
    on its devices that the hook does not see.
    """

    def __init__(
        self,
        reservations: Reservations,
        ledger: Ledger,
        leases: LeaseKeeper,
        libraries: str,
        changed: Callable[[], None],
        has_unhooked: Callable[[str], bool],
    ) -> None:
        self._has_unhooked = has_unhooked
        self._reservations = reservations
        self._ledger = ledger
        self._leases = leases
        self._libraries = libraries
        self._changed = changed
        self._moving: dict[str, _Relocation] = {}
        self._failed: dict[str, str] = {}  # kernel -> why its last move failed
        # The processes of each kernel that are in no container.
        self._free: WeakKeyDictionary[Kernel, set[int]] = WeakKeyDictionary()

    def why_not(self, kernel: Kernel, facts: ResidencyFacts) -> str:
        """Return why a kernel cannot move to another device now; empty: it can, to one of its model."""
        record = self._leases.record(kernel.kernel_id)
        if record is None or kernel.is_ending:
            return "it ends"
        return (
            _why_called_off(kernel, record)
            or self._why_never(kernel)
            or _why_busy(kernel, record)
            or kernel.residency.why_immovable(facts)
        )

    def _why_never(self, kernel: Kernel) -> str:
        """Return why a kernel stays, whatever it does; empty: it need not."""
        processes, pids = len(kernel.processes_on_devices), kernel.pids
        found = {
            "it is on more than one GPU": len(kernel.reservation.parts) != 1,
            "its processes have not come back to the node agent yet": kernel.is_expecting,
            "its process has not started": not pids,
            "it runs with libraries of another version": not set(kernel.libraries) <= {self._libraries},
            f"{processes} of its processes use the GPU": processes > 1,
            UNHOOKED: self._has_unhooked(kernel.kernel_id),
        }
        why = next((why for why, is_so in found.items() if is_so), "")
        return why or ("its container has its own GPU alone" if self._is_contained(kernel, pids) else "")

    def _is_contained(self, kernel: Kernel, pids: Sequence[int]) -> bool:
        """Return whether a kernel is in a container. Each status asks: only new processes are looked at."""
        if kernel.reservation.pod is not None:
            return True
        known = self._free.setdefault(kernel, set())
        known.update(pid for pid in pids if pid not in known and _sees_our_devices(pid))
        known.intersection_update(pids)
        return len(known) < len(pids)

    def begin(self, kernel_id: str, uuid: str) -> None:
        """Have a kernel move to another device. Raises Refused for one that cannot, or finds no room there."""
        kernel, record = self._reservations.find(kernel_id), self._leases.record(kernel_id)
        if kernel is None or record is None or kernel.is_ending:
            raise Refused("not_found", f"no kernel {kernel_id} is reserved here")
        if self._ledger.is_moving(kernel_id):
            raise Refused("conflict", f"kernel {kernel_id} is being moved already")
        record.view(read_moment())
        if why := self.why_not(kernel, record.facts):
            raise Refused("conflict", f"kernel {kernel_id} cannot be moved: {why}")
        target = self._target(kernel, uuid)
        try:
            self._ledger.hold_beside(kernel_id, target)
        except LedgerError as error:
            raise Refused(NO_ROOM, str(error)) from error
        try:
            kernel.entrance.close()
        except OSError as error:
            self._ledger.drop_beside(kernel_id)
            why = _why_untold(kernel, error, is_moving=False)
            raise Refused("internal", f"kernel {kernel_id} cannot be moved: {why}") from error
        self._failed.pop(kernel_id, None)
        now, state = read_moment().monotonic, kernel.residency.state
        log.info("event=move_asked kernel=%s to=%s state=%s", kernel_id, uuid, state.value)
        self._moving[kernel_id] = _Relocation(kernel, target, now, state in LEASE_HELD)
        record.forget_refused_checkpoint()
        record.is_relocating = True
        self._changed()
        self.look(kernel_id)
        self._leases.notify()

    def _target(self, kernel: Kernel, uuid: str) -> Part:
        """Return the kernel's part, on another device of its node. Raises Refused."""
        (part,) = kernel.reservation.parts
        devices = {device.uuid: device for device in self._ledger.devices}
        source, target = devices.get(part.uuid), devices.get(uuid)
        if target is None or source is None or self._ledger.is_lost(uuid) or self._ledger.is_lost(part.uuid):
            raise Refused("device_lost", f"Requested a move to device {uuid}, which is gone from this node. Plan again")
        if target is source:
            raise Refused("conflict", f"kernel {kernel.kernel_id} is on device {uuid} already")
        if (source.name, source.memory_bytes) != (target.name, target.memory_bytes):
            told = f"{source.name} to {target.name}"
            raise Refused("conflict", f"kernel {kernel.kernel_id} cannot be moved: {told} is another model of GPU")
        return replace(part, uuid=uuid, index=target.index)

    def outcome(self, kernel_id: str, uuid: str) -> tuple[str, str]:
        """Return how a move to a device went: moving, done or failed, and why it failed."""
        if kernel_id in self._moving:
            return MOVING, ""
        kernel = self._reservations.find(kernel_id)
        if kernel is not None and [part.uuid for part in kernel.reservation.parts] == [uuid]:
            return DONE, ""
        return FAILED, self._failed.get(kernel_id) or ("it ended" if kernel is None else "the node agent ended")

    def places(self) -> list[dict[str, str]]:
        """Return the devices of the kernels that were moved: a gateway that ended meanwhile has the ones before."""
        moved = (kernel for kernel in self._reservations.kernels if kernel.was_moved and not kernel.is_ending)
        return [{"kernel_id": kernel.kernel_id, "device": kernel.reservation.parts[0].uuid} for kernel in moved]

    def resume(self) -> None:
        """Go on with the moves that an earlier agent had begun to restore; its others have ended."""
        for kernel in self._reservations.kernels:
            record = self._leases.record(kernel.kernel_id)
            if not self._ledger.is_moving(kernel.kernel_id):
                self._let_in(kernel)
            elif record is not None:
                (account,), now = kernel.accounts, read_moment().monotonic
                self._moving[kernel.kernel_id] = _Relocation(kernel, account.part, now, True, is_coming=True)
                # is_relocating: until its process is back, which alone can be restored
                record.is_relocating = record.is_arriving = True
                _keep_out(kernel)  # an agent of the release before has marked the move in another way

    def look(self, kernel_id: str) -> None:
        """Take the next step of a move. Called after each change of a kernel's lease, and every second."""
        move, record = self._moving.get(kernel_id), self._leases.record(kernel_id)
        if move is None:
            return
        if record is None:
            del self._moving[kernel_id]
        elif move.kernel.reservation.parts[0].uuid == move.target.uuid:
            self._finish(move, record)
        elif move.is_coming:
            self._look_at_coming(move, record)
        else:
            self._look_at_leaving(move, record)

    def _look_at_leaving(self, move: _Relocation, record: LeaseRecord) -> None:
        state = move.kernel.residency.state
        is_empty = state is KernelState.STARTING and not move.kernel.processes_on_devices
        if record.is_beginning is not None and not is_empty:
            return
        entering, why_untold = _find_entering(move)
        why_gone = self._why_lost(move) or self._why_unhooked(move)
        if why := why_gone or why_untold or _why_it_stays(move, record, entering):
            self._fail(move, record, why)
        elif entering:
            pass  # on the device that it leaves; others wait until the move ended
        elif is_empty:
            self._ledger.change_sides(move.kernel.kernel_id)
            move.kernel.arrive()  # it has nothing on a device
            move.kernel.write_journal()
            self._finish(move, record)
        elif state is KernelState.CHECKPOINTED:
            self._cross(move, record)

    def _cross(self, move: _Relocation, record: LeaseRecord) -> None:
        kernel, source = move.kernel, move.kernel.reservation.parts[0].uuid
        self._ledger.change_sides(kernel.kernel_id)
        kernel.residency.cross(source, move.target.uuid)
        kernel.write_journal()
        move.is_coming = record.is_arriving = True
        self._bring_in(record)

    def _look_at_coming(self, move: _Relocation, record: LeaseRecord) -> None:
        kernel, facts = move.kernel, move.kernel.residency.facts()
        if record.is_relocating and not kernel.is_expecting:
            self._bring_in(record)
        if facts.state is KernelState.STARTING:
            self._return(move, record, "its process ended")
        elif facts.state is KernelState.CHECKPOINTED and record.is_beginning is None:
            if not kernel.residency.may_return:
                return kernel.residency.find_place()
            if why := self._why_lost(move) or ("it is evicted" if kernel.is_evicted else ""):
                self._return(move, record, why)
            elif facts.refusal is not None and facts.refusal.at >= move.began:
                self._return(move, record, facts.refusal.text)
            elif is_overdue(move.began, facts.since, read_moment().monotonic) and not kernel.is_expecting:
                self._return(move, record, f"its new GPU had no room for {PATIENCE_SECONDS:.0f} s")

    def _why_lost(self, move: _Relocation) -> str:
        """Return why a kernel cannot go on to the device that it moves to; empty: that is still there."""
        uuid = move.target.uuid
        return f"device {uuid}, to which it moved, is gone from this node" if self._ledger.is_lost(uuid) else ""

    def _why_unhooked(self, move: _Relocation) -> str:
        return UNHOOKED if self._has_unhooked(move.kernel.kernel_id) else ""

    def _return(self, move: _Relocation, record: LeaseRecord, why: str) -> None:
        """Have a kernel be restored where it was."""
        kernel = move.kernel
        self._ledger.change_sides(kernel.kernel_id)
        record.is_arriving = False
        if kernel.residency.crossing is not None:
            kernel.residency.cross(move.target.uuid, kernel.reservation.parts[0].uuid)
        self._fail(move, record, why)

    def _fail(self, move: _Relocation, record: LeaseRecord, why: str) -> None:
        kernel_id = move.kernel.kernel_id
        log.warning("event=move_failed kernel=%s to=%s reason=%r", kernel_id, move.target.uuid, why)
        if len(self._failed) >= _MOST_OUTCOMES:
            self._failed.pop(next(iter(self._failed)))
        self._failed[kernel_id] = why
        self._ledger.drop_beside(kernel_id)
        move.kernel.write_journal()
        if move.was_resident:
            self._bring_in(record)
        self._finish(move, record)

    def _finish(self, move: _Relocation, record: LeaseRecord) -> None:
        del self._moving[move.kernel.kernel_id]
        self._let_in(move.kernel)
        record.is_relocating = record.is_arriving = False
        if move.kernel.is_evicted:
            self._leases.evict(move.kernel.kernel_id)
        self._changed()
        self._leases.notify()

    def _let_in(self, kernel: Kernel, known_error: str = "") -> None:
        """Let processes of a kernel begin CUDA: it is where it stays. What keeps them out is tried again."""
        try:
            kernel.entrance.open()
        except OSError as error:
            if str(error) != known_error:
                log.error("event=entrance_closed kernel=%s error=%r", kernel.kernel_id, str(error))
            if kernel.folder.exists():
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._let_in_again, kernel, str(error))

    def _let_in_again(self, kernel: Kernel, known_error: str) -> None:
        if kernel.kernel_id not in self._moving and not kernel.is_ending:
            self._let_in(kernel, known_error)

    def _bring_in(self, record: LeaseRecord) -> None:
        record.is_relocating, record.is_asked_in = False, not record.is_resident
        self._leases.notify()


def _why_busy(kernel: Kernel, record: LeaseRecord) -> str:
    """Return what a kernel is busy with; empty: it is idle. A cell that makes no call is work, too."""
    if kernel.activity is not None and kernel.activity.work:
        return "it is busy: a cell runs"
    return f"it is busy: {record.idle_reason}" if record.idle_since is None else ""


def _why_called_off(kernel: Kernel, record: LeaseRecord) -> str:
    """Return why a kernel is to leave its device in another way; empty: it is not."""
    if kernel.is_evicted:
        return "it is evicted"
    return "normal-priority work needs the time of its GPU" if record.is_kept_out else ""


def is_overdue(began: float, step: float, now: float) -> bool:
    """Return whether a move that began at a time has made no step for too long. *step*: when the last one was."""
    return now - max(began, step) >= PATIENCE_SECONDS


def _find_entering(move: _Relocation) -> tuple[str, str]:
    """Return what a move waits for at the entrance, and why it cannot wait; both empty: no process begins CUDA.

    A look for which the agent lacks a descriptor is made again. A file that is gone ends the move.
    """
    try:
        pid = move.kernel.entrance.find_inside()
    except OSError as error:
        is_new, move.entrance_error = str(error) != move.entrance_error, str(error)
        if error.errno not in _TEMPORARY:
            return "", _why_untold(move.kernel, error, is_moving=True)
        if is_new:
            log.error("event=entrance_unusable kernel=%s error=%r", move.kernel.kernel_id, str(error))
        return _untold(move.kernel, error), ""
    return "" if pid is None else f"process {pid} of it begins CUDA", ""


def _untold(kernel: Kernel, error: OSError) -> str:
    told = f"{error.strerror}: {kernel.entrance.path}"
    return f"the node agent cannot tell whether a process of it begins CUDA: {told}"


def _why_untold(kernel: Kernel, error: OSError, *, is_moving: bool) -> str:
    """Return why the agent cannot tell whether processes begin CUDA, and make the entrance again where it is gone.

    Processes may be inside without a lock: they are through before the next move. Others wait for the end of a
    move under way.
    """
    log.error("event=entrance_unusable kernel=%s error=%r", kernel.kernel_id, str(error))
    why = _untold(kernel, error)
    if not isinstance(error, FileNotFoundError):
        return why
    try:
        kernel.entrance.make(is_closed=is_moving)
    except OSError:
        return why
    return f"{why}. It has made that file again: try once more"


def _keep_out(kernel: Kernel) -> None:
    """Have processes of a kernel that is being restored on its new device wait before they begin CUDA."""
    try:
        kernel.entrance.close()
    except OSError as error:
        log.error("event=entrance_open kernel=%s error=%r", kernel.kernel_id, str(error))


def _why_it_stays(move: _Relocation, record: LeaseRecord, entering: str) -> str:
    """Return why a kernel does not leave its device; empty: it may yet. *entering*: what its entrance waits for."""
    facts, processes = move.kernel.residency.facts(), len(move.kernel.processes_on_devices)
    if why := _why_called_off(move.kernel, record):
        return why
    if processes > 1:
        return f"{processes} of its processes use the GPU"
    if facts.state in LEASE_HELD and record.idle_since is None:
        return f"it became busy: {record.idle_reason}"
    if record.not_saved_because:
        return record.not_saved_because
    if facts.refusal is not None and facts.refusal.at >= move.began:
        return facts.refusal.text
    if facts.mode_reason:
        return facts.mode_reason
    if not is_overdue(move.began, facts.since, read_moment().monotonic):
        return ""
    if entering:
        return f"it waited {PATIENCE_SECONDS:.0f} s: {entering}"
    return f"it did not leave its GPU within {PATIENCE_SECONDS:.0f} s"


def _sees_our_devices(pid: int) -> bool:
    """Return whether a process is in no container: only there all devices of the node can be opened."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid")
    except OSError:
        return False
