"""The values of a decision about leases: frozen views, the policy and the decision.

The views show devices and kernels; the records make them and keep the invariants of their fields.
leases.py decides.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

NEVER = float("inf")  # as a time: unknown
HINT_SECONDS = 30.0  # so long a kernel is wanted after a hint
# so long a user's request to swap a kernel out is tried: longer than a cell that uses no device counts as busy
ASKED_OUT_SECONDS = 120.0


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
    CELL = 2  # a cell arrived: displaces idle kernels; for production, opportunistic ones, too
    CALL = 3  # a call waits on the device: takes turns with busy equals, too


class Reason(str, enum.Enum):
    """The reason why a kernel waits."""

    COMING = "coming"  # its memory is being copied in
    LINK = "link"  # room is there; another kernel is being copied over the same link
    MOVING = "moving"  # other kernels are being copied out for it
    HOLD = "hold"  # other kernels came in a moment ago, and may stay that long
    TURN = "turn"  # other kernels are busy, and their turn is not over
    QUEUE = "queue"  # other kernels wait for the same room, and came before
    BUSY = "busy"  # the kernels that hold the room are busy, and it may not displace them
    HOST = "host"  # host memory for the kernels that would have to leave is full
    COMPUTE = "compute"  # production works on its device, and could not be protected beside it
    EVICTED = "evicted"  # the gateway evicted it from its parts
    RELOCATING = "relocating"  # it is being moved to another device
    REFUSED = "refused"  # its memory or its contexts could not come back, and are tried again
    LOST = "lost"  # its contexts never come back
    # the room is held by a kernel that cannot leave, never does, or is silent; or the device is too
    # small
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class DeviceView:
    """One device.

    ``capacity_bytes`` is what kernels may hold of it, without contexts, untracked processes and the
    driver's own memory. ``leaving_bytes`` of that are not there yet: ended processes have them, and
    the driver takes them back.

    Devices with the same ``link`` share the way to the host. Rates are measured, in bytes per
    second.
    """

    uuid: str
    capacity_bytes: int
    link: str = ""  # empty: a link of its own
    out_rate: float = 10e9
    in_rate: float = 10e9
    leaving_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Holding:
    """One kernel on one device."""

    uuid: str
    held_bytes: int  # bytes of the device now: lent, or staying while it is swapped
    swappable_bytes: int = 0  # the part of these that leaves with a swap-out
    away_bytes: int = 0  # bytes on the host, or on their way in: a swap-in needs room for them
    wanted_bytes: int = 0  # further bytes that it waits for
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
    turn_since: float = 0.0  # when it became busy, as far as it was resident
    ran_seconds: float = 0.0  # for so long the running cell has had the devices, in all its turns
    # the length of the turn that the running cell lost last; NEVER: it lost none
    last_turn_seconds: float = NEVER
    # how much longer its cell, or its pause, goes on, as learned of it; None: unknown
    expected_rest_seconds: float | None = None
    moving_since: float = 0.0  # while it is swapping
    movable_at: float = 0.0  # the earliest time for a swap-out; NEVER: it cannot be swapped
    is_asked_out: bool = False  # a user asked to swap it out


@dataclass(frozen=True)
class Policy:
    """The administrator's knobs."""

    # a kernel that came in stays so long, save an opportunistic one that production displaces
    hold_seconds: float = 5.0
    quantum_seconds: float = 30.0  # a busy kernel's turn, when an equal waits
    quantum_moves: float = 4.0  # and at least so many times the duration of its swap out and in
    # after that, memory beyond the guarantee is wanted as much as the guarantee
    patience_seconds: float = 60.0
    move_seconds: float = 0.1  # duration of a move beside the copy
    answer_seconds: float = 10.0  # wait so long for a process that does not answer an order to move
    # a cell without calls for so long counts as idle; idleness.py decides this earlier
    silent_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Out:
    """An order to swap a kernel out.

    ``wanted_by`` is the kernel that needs the room; empty when a user or an administrator asked.
    """

    kernel_id: str
    wanted_by: str


@dataclass(frozen=True, slots=True)
class Wait:
    """A kernel's wait.

    ``position`` is 1 for the next; 0 while it is coming in. ``before`` are the kernels that wait
    before it for the same devices; ``behind`` are the kernels that hold the room.
    ``expected_seconds`` is None where it is unknown.
    """

    kernel_id: str
    reason: Reason
    position: int
    before: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    expected_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The actions of one decision.

    Room for ``ins`` and ``grown`` is there. ``look_at`` is when time alone changes the decision.
    """

    outs: tuple[Out, ...] = ()
    ins: tuple[str, ...] = ()
    grown: tuple[str, ...] = ()  # resident kernels that may have all the memory they want
    waits: tuple[Wait, ...] = ()
    # kernels that a user asked to swap out and that stay for now: LINK or HOST
    kept: tuple[tuple[str, Reason], ...] = ()
    look_at: float = NEVER
