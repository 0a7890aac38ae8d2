"""The last gear of one kernel: the contexts of its processes leave the devices, too, and come back before its memory.

Keeps what they take there, for a restore that finds too little room ends the kernel. Knows no lease and no state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from .checkpoint_helper import CheckpointError
from .checkpoint_refusals import Circumstances, why_not
from .facts import DeviceBytes, Move, MoveResult, ResidencyFacts
from .table import Event

End = tuple[Event, Move]


class Checkpointer(Protocol):
    """Raises CheckpointError; all processes, or none."""

    async def save(self, pids: Sequence[int], lock_milliseconds: int) -> None: ...

    async def restore(self, pids: Sequence[int]) -> None: ...


@dataclass(frozen=True)
class CheckpointTools:
    """``bytes_of``: what processes have on each device, contexts included, as the driver sees it now."""

    checkpointer: Checkpointer
    here: Callable[[], Circumstances]
    bytes_of: Callable[[Sequence[int]], Mapping[str, int]]


class KernelCheckpoint:
    """``saved_bytes``: what a restore takes of each device; empty: nothing is saved. ``journal`` writes it down."""

    def __init__(
        self,
        tools: CheckpointTools | None,
        lock_milliseconds: int,
        journal: Callable[[], None],
        saved_bytes: Mapping[str, int],
    ) -> None:
        self.saved_bytes = dict(saved_bytes)
        self._tools = tools
        self._lock_milliseconds = lock_milliseconds
        self._journal = journal

    def why_not(self, facts: ResidencyFacts) -> str:
        """Empty: it may be saved."""
        return "this agent has no checkpoints" if self._tools is None else why_not(facts, self._tools.here())

    async def save(self, pids: Sequence[int]) -> End:
        """What it is about to save is written down before: an agent that ends in between finds what to restore."""
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

    async def restore(self, pids: Sequence[int]) -> End:
        """Its room is reserved. One that fails may be tried again, unless the driver has given the process up."""
        if self._tools is None:
            return Event.FAILED, Move(MoveResult.REFUSED, "this agent has no checkpoints")
        try:
            await self._tools.checkpointer.restore(pids)
        except CheckpointError as error:
            lost = "; its device state is lost: restart the kernel" if error.is_fatal else ""
            return Event.FAILED, Move(MoveResult.FAILED, f"{error}{lost}")
        self._forget()
        return Event.DONE, Move(MoveResult.DONE)

    def amend(self, devices: Sequence[DeviceBytes]) -> tuple[DeviceBytes, ...]:
        """As they are while it is saved: nothing is there, and more is to come back than was swapped."""
        return tuple(
            replace(
                device,
                staying_bytes=0,
                on_device_bytes=0,
                swapped_bytes=device.swapped_bytes + self.saved_bytes.get(device.uuid, 0),
            )
            for device in devices
        )

    def forget(self) -> None:
        """None of its processes is left."""
        if self.saved_bytes:
            self._forget()

    def _forget(self) -> None:
        self.saved_bytes = {}
        self._journal()
