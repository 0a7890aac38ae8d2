"""What an outlook says, in one plain sentence: who waits, for what, and what would be possible. Decides nothing."""

from __future__ import annotations

from jupyter_aliquot.gpu_hook.placement.placement import WHOLE
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Request

from .capacity import Held, Room
from .quotas import CapUse
from .room_limits import largest_share, most_memory

NOW_KERNEL = "starts at once"
NOW_SIZE = "changes at once"
SAME_SIZE = "it has this size"
CLASS = "you may have opportunistic kernels only"
_GIB = 1 << 30


def queued(position: int, why: str) -> str:
    """It waits."""
    return f"queued behind {position - 1}: {why}" if position > 1 else f"queued: {why}"


def not_now(why: str) -> str:
    """It would have to wait, and cannot: its program has asked the node agent itself."""
    return f"not now: {why}"


def over_quota(whose: str, use: CapUse) -> str:
    """More than one user, or one team together, may have."""
    quota = f"the team {use.team}'s" if use.team else whose
    return f"over {quota} quota of {gpus(use.limit or GpuShare(0))}: {use.left} is left"


def too_large(room: Room, request: Request, held: Held | None, largest: GpuShare) -> str:
    """More than there is."""
    most = min(largest, largest_share(room, request, held))
    if request.gpus > largest and not room.devices:
        most = largest  # before the agent was first heard nobody knows what there is
    if not most.hundredths:
        return "never fits: there is no GPU"
    if request.gpus > most or request.memory_limit is None:
        return f"never fits: the largest is {gpus(most)}"
    memory = most_memory(room, request, held)
    return f"never fits: the most memory for {gpus(request.gpus)} is {amount(memory)}"


def other_devices(held: Held) -> str:
    """A kernel keeps its devices for its life."""
    count = len(held.parts)
    if count == 1:
        return "it keeps its one GPU while it runs: 1 GPU is the most"
    return f"it keeps its {count} GPUs while it runs: {count - 1}.01 to {count} GPUs are possible"


def gpus(share: GpuShare) -> str:
    """``1 GPU``, ``2.5 GPUs``."""
    return f"{share} {'GPU' if share.hundredths <= WHOLE else 'GPUs'}"


def amount(memory: Bytes) -> str:
    """Rounded down, for it is a limit."""
    return f"{memory // _GIB} GiB" if memory >= _GIB else f"{memory >> 20} MiB"
