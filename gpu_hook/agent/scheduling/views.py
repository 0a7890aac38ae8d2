"""The values of a decision about leases: frozen views of devices and kernels, the policy, and the decision.

The records make the views and keep the invariants of their fields; leases.py decides.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

NEVER = float("inf")  # as a time: unknown


class State(enum.IntEnum):
    """The residency of a kernel's memory, over all its processes."""

    RESIDENT = 0
    SWAPPING_OUT = 1
    SWAPPED = 2
    SWAPPING_IN = 3


class Want(enum.IntEnum):
    """Why a kernel wants to be resident, or more room. The stronger, the more it may displace."""

    NONE = 0
    HINT = 1  # a user may come soon: displaces idle kernels
    CELL = 2  # a cell arrived: displaces idle kernels, and for production opportunistic ones
    CALL = 3  # a call waits on the device: takes its turn with busy equals, too


class Reason(str, enum.Enum):
    """The reason why a kernel waits."""

    COMING = "coming"  # its memory is being copied in
    LINK = "link"  # room is there; another kernel is being copied over the same link
    MOVING = "moving"  # others are being copied out for it
    HOLD = "hold"  # others came in a moment ago, and may stay that long
    TURN = "turn"  # others are busy, and their turn is not over
    QUEUE = "queue"  # others wait for the same room, and came before
    BUSY = "busy"  # those that hold the room are busy, and it may not displace them
    HOST = "host"  # host memory for what would have to leave is full
    COMPUTE = "compute"  # production works on its device, and could not be protected while it was there
    STUCK = "stuck"  # what holds the room cannot leave, did not each time, or is silent; or the device has too little


@dataclass(frozen=True, slots=True)
class DeviceView:
    """``capacity_bytes``: what kernels may hold of it: without contexts, foreigners, and what the driver keeps.

    ``leaving_bytes`` of that are not there yet: processes that ended have them, and the driver takes them back.

    Devices with the same ``link`` share the way to the host. Rates are measured, in bytes per second.
    """

    uuid: str
    capacity_bytes: int
    link: str = ""  # empty: one of its own
    out_rate: float = 10e9
    in_rate: float = 10e9
    leaving_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Holding:
    """One kernel on one device."""

    uuid: str
    held_bytes: int  # of the device now: what is lent, or stays while it is swapped
    elastic_bytes: int = 0  # of these: what leaves with a swap-out
    away_bytes: int = 0  # on the host, or on its way in: what a swap-in takes
    wanted_bytes: int = 0  # more, that it waits for
    guarantee_bytes: int = 0


@dataclass(frozen=True, slots=True)
class KernelView:
    """One kernel. While it is swapping in, ``away_bytes`` are not yet in ``held_bytes``."""

    kernel_id: str
    holdings: tuple[Holding, ...]
    state: State = State.RESIDENT
    is_production: bool = True
    want: Want = Want.NONE
    wants_since: float = 0.0
    idle_since: float | None = None  # None: busy
    held_since: float = 0.0  # resident since
    turn_since: float = 0.0  # busy since, as far as it was resident
    moving_since: float = 0.0  # while it is swapping
    movable_at: float = 0.0  # when a swap-out may be tried at the earliest; NEVER: it cannot be swapped
    is_asked_out: bool = False  # a user asked to swap it out


@dataclass(frozen=True)
class Policy:
    """The administrator's knobs."""

    hold_seconds: float = 5.0  # a kernel that came in stays so long, except opportunistic for production
    quantum_seconds: float = 30.0  # a busy kernel's turn, when an equal waits
    quantum_moves: float = 4.0  # and at least so many times what its swap out and in take
    patience_seconds: float = 60.0  # after that, more than the guarantee is wanted as much as the guarantee
    move_seconds: float = 0.1  # of a move, beside the copy
    answer_seconds: float = 10.0  # a process that was told to move and does not answer is waited for so long
    silent_seconds: float = 60.0  # a cell that made no call for so long counts as idle; decided before, by idleness


@dataclass(frozen=True, slots=True)
class Out:
    """Swap it out. ``wanted_by``: for whom; empty when it was asked for by its user or an administrator."""

    kernel_id: str
    wanted_by: str


@dataclass(frozen=True, slots=True)
class Wait:
    """``position`` is 1 for the next; 0 while it is coming in. ``before``: who wait before it for the same devices.

    ``behind``: who holds the room. ``expected_seconds`` is None where nobody knows.
    """

    kernel_id: str
    reason: Reason
    position: int
    before: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    expected_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The actions of one decision. Room for ``ins`` and ``grown`` is there; ``look_at``: when time alone changes it."""

    outs: tuple[Out, ...] = ()
    ins: tuple[str, ...] = ()
    grown: tuple[str, ...] = ()  # resident kernels that may have all they want
    waits: tuple[Wait, ...] = ()
    look_at: float = NEVER
