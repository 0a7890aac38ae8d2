"""The last stage of one kernel's swap: its processes' contexts leave the devices, too.

They come back before its memory. The module keeps how much they take there, since a restore that
finds too little room ends the kernel. It knows no lease and no state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from jupyter_aliquot.gpu_hook.protocol.codec import Enforcer, PinReason, ResidencyMode

from .checkpoint_helper import CheckpointError
from .facts import DeviceBytes, Move, MoveResult, ResidencyFacts
from .table import Event

# The first driver that restores a process on another GPU, by a map of all GPUs.
_FIRST_WITH_MAP = 580
# r610.57.04: a lock crashes some processes with many threads (NVIDIA/cuda-checkpoint#58).
DENIED_DRIVERS = frozenset({"610.57.04"})
_WHY_PINNED = {
    PinReason.IPC: "it shares memory by legacy IPC",
    PinReason.EXPORTED: "it gave memory to others by a descriptor",
    PinReason.MULTICAST: "it has multicast memory",
    PinReason.MANAGED: "it has unified memory",
}


@dataclass(frozen=True)
class Circumstances:
    """The facts of the node that decide whether its driver can checkpoint a process."""

    driver_version: str = ""
    machine: str = "x86_64"
    enforcer: Enforcer = Enforcer.HOOK


def why_not(facts: ResidencyFacts, here: Circumstances) -> str:
    """Return why this kernel's processes must not be checkpointed; empty: they may be.

    The driver's checkpoints refuse some processes, and harm others. A failed restore ends a kernel,
    so in doubt the answer is no; the kernel stays swapped, which costs the memory of a context.
    """
    if here.driver_version in DENIED_DRIVERS:
        return f"driver {here.driver_version} crashes processes that it locks"
    if here.machine != "x86_64":
        return f"drivers have no checkpoints on {here.machine}"
    if here.enforcer is Enforcer.MPS:
        return "it is a client of MPS"
    if any(device.uuid.startswith("MIG-") for device in facts.devices):
        return "it is on a MIG device"
    if facts.mode is not ResidencyMode.VMM:
        return facts.mode_reason or f"its residency mode is {facts.mode.name.lower()}"
    for flag, reason in _WHY_PINNED.items():
        if flag in facts.pin_reasons:
            return reason
    if facts.silent_pids:
        return f"process {facts.silent_pids[0]} does not answer"
    if facts.refusal is not None and facts.refusal.result in (MoveResult.BUSY, MoveResult.FAILED):
        return f"its last move came to nothing: {facts.refusal.text}"
    return ""


def why_no_map(here: Circumstances) -> str:
    """Return why this node's driver restores no process on another GPU; empty: it does."""
    release = here.driver_version.split(".")[0]
    if release.isdigit() and int(release) < _FIRST_WITH_MAP:
        return f"driver {here.driver_version} restores a process on its own GPU alone; {_FIRST_WITH_MAP} was the first"
    return ""


def swapped_gpus(gpus: Iterable[str], one: str, other: str) -> dict[str, str]:
    """Return the map of all GPUs by which a process changes from one to another.

    The driver takes no other: it has to name each GPU that the driver sees, whatever the process's
    CUDA_VISIBLE_DEVICES leaves, and each once.
    """
    return {**{gpu: gpu for gpu in gpus}, one: other, other: one}


End = tuple[Event, Move]


class Checkpointer(Protocol):
    """The checkpoint calls: for all processes, or for none. Raises CheckpointError."""

    async def save(self, pids: Sequence[int], lock_milliseconds: int) -> None: ...

    async def restore(self, pids: Sequence[int], gpus: Mapping[str, str]) -> None: ...

    async def are_off(self, pids: Sequence[int]) -> bool:
        """Return whether the driver says that none of them is on a device. It raises nothing."""
        ...


@dataclass(frozen=True)
class CheckpointTools:
    """The tools for checkpoints.

    ``bytes_of`` returns the bytes of processes on each device, contexts included, as the driver
    sees them now. ``gpus`` returns all GPUs of the node, by UUID.
    """

    checkpointer: Checkpointer
    here: Callable[[], Circumstances]
    bytes_of: Callable[[Sequence[int]], Mapping[str, int]]
    gpus: Callable[[], Sequence[str]] = tuple


class KernelCheckpoint:
    """The checkpoint of one kernel.

    ``saved_bytes`` is what a restore takes of each device; empty: nothing is saved. ``journal``
    writes it down. ``crossing`` is the device that it was saved on, and the one to restore it on;
    None: the same. ``arrived`` is called once it is restored on the other. ``may_return`` says that
    it certainly is not there yet: a restore that failed may have happened all the same.
    """

    def __init__(
        self,
        tools: CheckpointTools | None,
        lock_milliseconds: int,
        journal: Callable[[], None],
        saved_bytes: Mapping[str, int],
        crossing: tuple[str, str] | None = None,
        arrived: Callable[[], None] = lambda: None,
    ) -> None:
        self.saved_bytes = dict(saved_bytes)
        self.crossing = crossing
        self.may_return = crossing is None
        self._arrived = arrived
        self._tools = tools
        self._lock_milliseconds = lock_milliseconds
        self._journal = journal

    def why_not(self, facts: ResidencyFacts) -> str:
        """Return why it may not be saved; empty: it may."""
        return "this agent has no checkpoints" if self._tools is None else why_not(facts, self._tools.here())

    async def save(self, pids: Sequence[int]) -> End:
        """Save the contexts.

        The journal has them before: if the agent ends in between, the next one finds what to
        restore.
        """
        if self._tools is None:
            return Event.FAILED, Move(MoveResult.REFUSED, "this agent has no checkpoints")
        self.saved_bytes = dict(self._tools.bytes_of(pids))
        self._journal()
        try:
            await self._tools.checkpointer.save(pids, self._lock_milliseconds)
        except CheckpointError as error:
            self._forget()
            return Event.FAILED, Move(MoveResult.FAILED, str(error))
        return Event.DONE, Move(MoveResult.DONE)

    def why_no_map(self) -> str:
        """Return why it could not be restored on another device; empty: it could."""
        return "this agent has no checkpoints" if self._tools is None else why_no_map(self._tools.here())

    def cross(self, source: str, target: str) -> None:
        """Have the next restore be on another device; or on the same again, where *target* is that one.

        The caller writes the journal.
        """
        before, self.crossing, self.may_return = self.crossing, (source, target), True
        if before is not None and before[0] == target:
            self.crossing = None
        others = {source: target, target: source}
        self.saved_bytes = {others.get(uuid, uuid): size for uuid, size in self.saved_bytes.items()}

    async def restore(self, pids: Sequence[int]) -> End:
        """Restore the contexts; their room is reserved.

        A failed restore may be tried again, unless the driver has given the process up.
        """
        if self._tools is None:
            return Event.FAILED, Move(MoveResult.REFUSED, "this agent has no checkpoints")
        try:
            gpus = {} if self.crossing is None else swapped_gpus(self._tools.gpus(), *self.crossing)
            await self._tools.checkpointer.restore(pids, gpus)
        except CheckpointError as error:
            self.may_return = await self._tools.checkpointer.are_off(pids)
            if error.is_fatal:
                return Event.FAILED, Move(MoveResult.LOST, f"its GPU memory is lost: {error}. Restart the kernel")
            return Event.FAILED, Move(MoveResult.FAILED, str(error))
        if self.crossing is not None:
            self.crossing = None
            self._arrived()
        self._forget()
        return Event.DONE, Move(MoveResult.DONE)

    async def find_place(self, pids: Sequence[int]) -> None:
        """Let it return to its device where the driver says that none of its processes is on the other one."""
        if self._tools is not None and self.crossing is not None and pids:
            self.may_return = await self._tools.checkpointer.are_off(pids)

    def amend(self, devices: Sequence[DeviceBytes]) -> tuple[DeviceBytes, ...]:
        """Return the bytes as they are while it is saved.

        Nothing is on the devices, and more is to come back than was swapped.
        """
        return tuple(
            replace(
                device,
                unswappable_bytes=0,
                on_device_bytes=0,
                swapped_bytes=device.swapped_bytes + self.saved_bytes.get(device.uuid, 0),
            )
            for device in devices
        )

    def forget(self) -> None:
        """Forget the checkpoint: none of its processes is left."""
        if self.saved_bytes:
            self._forget()

    def _forget(self) -> None:
        self.saved_bytes, self.crossing = {}, None
        self._journal()
