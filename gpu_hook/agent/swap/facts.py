"""The residency of one kernel as frozen values: the input of decisions, and the results of moves.

``residency`` makes them; nothing here acts. Times are seconds of CLOCK_MONOTONIC, which the event
loop and hooks share.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from jupyter_aliquot.gpu_hook.agent.activity.idleness import Moment, Telemetry
from jupyter_aliquot.gpu_hook.base.pacing import backoff_seconds
from jupyter_aliquot.gpu_hook.protocol.codec import PinReason, ResidencyMode

from .table import LEASE_HELD, KernelState

_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 2.0, 60.0
_PIN_REASON_WORDS = {
    PinReason.SMALL: "small",
    PinReason.POOL: "pool",
    PinReason.ARRAY: "array",
    PinReason.IPC: "ipc",
    PinReason.EXPORTED: "exported",
    PinReason.GRAPH: "graph",
    PinReason.MULTICAST: "multicast",
    PinReason.MANAGED: "managed",
    PinReason.NO_AGENT: "before",
    PinReason.MODE: "mode",
    PinReason.NCCL: "nccl",
}


class MoveResult(Enum):
    """The result of a move of a whole kernel. Any but DONE leaves the kernel unchanged."""

    DONE = "done"
    IGNORED = "ignored"  # there was nothing to do in its state
    BUSY = "busy"  # work kept a device for longer than the drain may take
    SILENT = "silent"  # a process did not answer
    HOST_FULL = "host_full"  # neither host memory nor a file had room for the copy
    NO_ROOM = "no_room"  # swap-in: a device had less room than was promised
    REFUSED = "refused"  # impossible: its mode is off, its hook too old, a context lost
    FAILED = "failed"  # the driver failed
    LOST = "lost"  # the driver has given a process up: it never comes back


@dataclass(frozen=True)
class Move:
    """One finished move of a kernel. The phases are those of its slowest process."""

    result: MoveResult
    text: str = ""
    moved_bytes: int = 0
    seconds: float = 0.0
    drain_seconds: float = 0.0
    copy_seconds: float = 0.0
    map_seconds: float = 0.0

    @property
    def is_done(self) -> bool:
        return self.result is MoveResult.DONE

    def within(self, seconds: float) -> Move:
        """Return the move with no phase longer than measured here, whatever a hook reports."""
        return replace(
            self,
            seconds=seconds,
            drain_seconds=min(self.drain_seconds, seconds),
            copy_seconds=min(self.copy_seconds, seconds),
            map_seconds=min(self.map_seconds, seconds),
        )


@dataclass(frozen=True)
class Moving:
    """The progress of a copy under way, in bytes."""

    done_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class MoveRefusal:
    """The reason why the last attempt failed, and the earliest time for the next one.

    ``at`` is the time of the last failure; ``since`` is the time of the first in a row.
    """

    result: MoveResult
    text: str
    retry_at: float
    attempts: int = 1
    at: float = float("inf")
    since: float = float("inf")

    @classmethod
    def after(cls, before: MoveRefusal | None, move: Move, now: float) -> MoveRefusal:
        """Return the refusal after a failed move: each attempt in a row waits twice as long."""
        attempts = 1 if before is None else before.attempts + 1
        wait = backoff_seconds(_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS, attempts)
        return cls(move.result, move.text, now + wait, attempts, now, now if before is None else before.since)


@dataclass(frozen=True)
class DeviceBytes:
    """One kernel on one device, bounded by its loan.

    ``on_device_bytes`` is what the device lacks because of it now. ``unswappable_bytes`` is what the
    device would still lack after a swap-out, or lacks since one. ``context_bytes`` stay, are in
    none of these, and belong to its guarantee.
    """

    uuid: str
    lent_bytes: int
    swappable_bytes: int
    swapped_bytes: int
    unswappable_bytes: int
    on_device_bytes: int
    context_bytes: int = 0


@dataclass(frozen=True)
class ResidencyFacts:
    """A snapshot of one kernel."""

    kernel_id: str
    state: KernelState
    mode: ResidencyMode
    mode_reason: str  # why it can never be swapped; empty: it can
    since: float  # when it came into this state
    devices: tuple[DeviceBytes, ...]
    pin_reasons: PinReason
    refusal: MoveRefusal | None
    waits_since: float | None  # since when a call waits for the lease
    telemetry: tuple[Telemetry, ...]  # one for each process
    silent_pids: tuple[int, ...]  # processes that were told to move, and have not answered yet
    last_out: Move | None = None
    last_in: Move | None = None
    swaps_out: int = 0
    swaps_in: int = 0
    waited_seconds: float = 0.0  # all waits of calls for the lease
    moving: Moving | None = None  # the progress of the copy under way
    gave_up_at: float | None = None  # when an interrupt last ended the last call's wait for the lease

    @property
    def is_swappable(self) -> bool:
        return not self.mode_reason

    @property
    def is_lost(self) -> bool:
        """Return whether its contexts never come back: the driver has given a process of it up."""
        result = None if self.refusal is None else self.refusal.result
        return self.state is KernelState.CHECKPOINTED and result is MoveResult.LOST

    @property
    def swapped_bytes(self) -> int:
        return sum(device.swapped_bytes for device in self.devices)

    @property
    def swappable_bytes(self) -> int:
        return sum(device.swappable_bytes for device in self.devices)

    @property
    def unswappable_bytes(self) -> int:
        return sum(device.unswappable_bytes for device in self.devices)


def pin_reason_words(pin_reasons: PinReason) -> list[str]:
    """Return the reasons, as the status names them."""
    return [word for flag, word in _PIN_REASON_WORDS.items() if flag in pin_reasons]


def swapped_by_device(facts: ResidencyFacts) -> dict[str, int]:
    """Return the kernel's bytes on the host instead of on each of its devices, for the status."""
    return {device.uuid: device.swapped_bytes for device in facts.devices}


def describe_residency(facts: ResidencyFacts, host_bytes: int, now: Moment) -> dict[str, Any]:
    """Describe one kernel's residency, for the status.

    ``host_bytes`` of the arena are lent to it or kept warm for it. The lease keeper adds its wait.
    """
    refusal, unswappable = facts.refusal, facts.unswappable_bytes
    return {
        "state": facts.state.value,
        "mode": facts.mode.name.lower(),
        "mode_reason": facts.mode_reason,
        # Coarse: two clocks drift apart, so finer digits would change all the time.
        "since": round(now.wall - (now.monotonic - facts.since), 1),
        "swappable_bytes": facts.swappable_bytes,
        "swapped_bytes": facts.swapped_bytes,
        # A hook reports the reasons for all unswappable bytes together, not the bytes of each reason.
        "unswappable": [{"reason": ", ".join(pin_reason_words(facts.pin_reasons)) or "plain", "bytes": unswappable}]
        if unswappable
        else [],
        "host_bytes": host_bytes,
        "lease": "held" if facts.state in LEASE_HELD else "ended",
        "swaps_out": facts.swaps_out,
        "swaps_in": facts.swaps_in,
        "waited_seconds": round(facts.waited_seconds, 3),
        "silent_pids": list(facts.silent_pids),
        "refusal": None if refusal is None else refusal.text,
        "is_lost": facts.is_lost,
        "moving": None if facts.moving is None else asdict(facts.moving),
        "last_out": _describe_move(facts.last_out),
        "last_in": _describe_move(facts.last_in),
    }


def slowest(moves: Iterable[Move]) -> Move:
    """Return one Move for all that succeeded: bytes added up, phases of the slowest."""
    moves = list(moves)
    return Move(
        MoveResult.DONE,
        moved_bytes=sum(move.moved_bytes for move in moves),
        drain_seconds=max((move.drain_seconds for move in moves), default=0.0),
        copy_seconds=max((move.copy_seconds for move in moves), default=0.0),
        map_seconds=max((move.map_seconds for move in moves), default=0.0),
    )


def _describe_move(move: Move | None) -> dict[str, Any] | None:
    if move is None:
        return None
    return {
        "moved_bytes": move.moved_bytes,
        "seconds": round(move.seconds, 6),
        "drain_seconds": round(move.drain_seconds, 6),
        "copy_seconds": round(move.copy_seconds, 6),
        "map_seconds": round(move.map_seconds, 6),
    }
