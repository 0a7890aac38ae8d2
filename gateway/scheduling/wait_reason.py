"""Why a request waits: a value with its numbers, and the one sentence that people read. Pure.

Only this module decides what is lacking, and only it words that; the queue, dry runs and refusals
use its value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from jupyter_aliquot.gateway.base.lead import CUT_OFF
from jupyter_aliquot.gateway.planning.colocation import Neighbor
from jupyter_aliquot.gateway.reports import kernel as reports
from jupyter_aliquot.gateway.sizes.wish import NO_WISH, Wish
from jupyter_aliquot.gpu_hook.placement.host_memory import HostShortage
from jupyter_aliquot.gpu_hook.placement.placement import WHOLE, DeviceState, Part, format_bytes, format_gpus
from jupyter_aliquot.provisioner.resources import Request

from .capacity import Capacity, Held


class WaitCode(str, Enum):
    """The limit that a request waits for. The words are those of the REST API."""

    NOT_PLANNED = "not_planned"  # no cycle has looked at it yet
    AHEAD = "ahead"  # it would fit; requests ahead of it come first
    GPU = "gpu"
    GPU_MEMORY = "gpu_memory"
    HOST_MEMORY = "host_memory"
    REPLACED_KERNEL = "replaced_kernel"  # it gets the room of a kernel that has not ended yet
    LOCALITY = "locality"  # enough is free, but not in one NVLink or PCIe domain
    NEIGHBORS = "neighbors"  # enough is free, but kernels there and it would slow each other too much
    TEAM_QUOTA = "team_quota"  # its team may take no more now
    EVICTING = "evicting"  # kernels leave their GPU for it
    EVICTED = "evicted"  # it runs, left its GPU for another request, and waits to return
    CORDONED = "cordoned"  # nothing starts on the node, or it is drained
    AGENT_REFUSED = "agent_refused"  # another gateway of this node was faster
    AGENT_UNAVAILABLE = "agent_unavailable"


_DEVICE_LACKS = (WaitCode.GPU, WaitCode.GPU_MEMORY)
# No device has room, whatever else a request lacks.
FULL = (*_DEVICE_LACKS, WaitCode.HOST_MEMORY)


@dataclass(frozen=True)
class WaitReason:
    """The need of a request, the room that is free, and the limit.

    ``detail``: the node agent's own words. ``models``: the GPU models that it takes, as text.

    ``gpus`` and ``memory_bytes`` are what it needs, of a running kernel beyond what that holds
    (``is_growth``). ``free_gpus`` and ``free_memory_bytes`` are those of ``device``, the GPU with
    the most room; for several GPUs they count whole free GPUs, of ``node_gpus``, and their free
    memory. Shares are in hundredths.
    """

    code: WaitCode
    gpus: int = 0
    memory_limit: int | None = None
    memory_bytes: int | None = None
    free_gpus: int | None = None
    free_memory_bytes: int | None = None
    device: int | None = None
    node_gpus: int | None = None
    host: HostShortage | None = None
    is_growth: bool = False
    detail: str = ""
    models: str = ""

    @property
    def sentence(self) -> str:
        """The reason as one sentence without a full stop; it tells no place in the queue."""
        if self.code is WaitCode.NOT_PLANNED:
            return f"Needs {self._needed()}; the gateway has not looked for room yet"
        if self.code is WaitCode.AHEAD:
            return f"Needs {self._needed()}; enough is free, but requests ahead of it come first"
        if self.code is WaitCode.REPLACED_KERNEL:
            return "Starts when the kernel that it replaces has ended"
        if self.code is WaitCode.EVICTING:
            return f"Needs {self._needed()}; kernels that have it on loan are leaving their GPU"
        if self.code is WaitCode.EVICTED:
            return f"Evicted; needs {self._needed()} on its own device again"
        if self.code in (WaitCode.TEAM_QUOTA, WaitCode.CORDONED, WaitCode.LOCALITY, WaitCode.NEIGHBORS):
            return f"Needs {self._needed()}; {self.detail}"
        if self.code is WaitCode.AGENT_UNAVAILABLE:
            what = self.detail if self.detail == CUT_OFF else f"the node agent does not answer: {self.detail}"
            return f"{what[0].upper()}{what[1:]}. The gateway tries again"
        if self.code is WaitCode.AGENT_REFUSED:
            return f"Needs {self._needed()}; the node agent has no room: {self.detail}"
        return f"Needs {self._needed()}; {self._free()}{self.detail}"

    @property
    def clause(self) -> str:
        """The same within another sentence."""
        return self.sentence[:1].lower() + self.sentence[1:]

    def report(self) -> reports.WaitReason:
        """The reason as the REST API gives it."""
        return {
            "code": self.code.value,
            "requested": {"gpus": self.gpus / WHOLE, "memory_bytes": self.memory_bytes},
            "free": {
                "gpus": None if self.free_gpus is None else self.free_gpus / WHOLE,
                "memory_bytes": self.free_memory_bytes,
                "device": self.device,
            },
            "host_memory": None
            if self.host is None
            else {"required_bytes": self.host.needs_bytes, "budget_bytes": self.host.budget_bytes},
        }

    def _needed(self) -> str:
        more = " more" if self.is_growth else ""
        if self.code is WaitCode.GPU_MEMORY and self.memory_bytes is not None:
            return f"{format_bytes(self.memory_bytes)}{more} of GPU memory"
        if self.is_growth and not self.gpus:
            return f"{format_bytes(self.memory_bytes or 0)} more of GPU memory"
        models = f" of the model {self.models}" if self.models else ""
        limit = "" if self.memory_limit is None or self.is_growth else f" with {format_bytes(self.memory_limit)}"
        return f"{format_gpus(self.gpus)}{more}{limit}{models}"

    def _free(self) -> str:
        if self.code is WaitCode.HOST_MEMORY and self.host is not None:
            return (
                f"copies of swapped-out kernels may then need {format_bytes(self.host.needs_bytes)} of host memory, "
                f"and {format_bytes(self.host.budget_bytes)} is set aside for them"
            )
        if self.code is WaitCode.GPU_MEMORY:
            where = f"gpu{self.device}" if self.device is not None else f"{(self.free_gpus or 0) // WHOLE} free GPUs"
            return f"{format_bytes(self.free_memory_bytes or 0)} is free on {where}"
        if self.node_gpus is not None:
            count = (self.free_gpus or 0) // WHOLE
            return f"{count} of {self.node_gpus} {'GPU' if self.node_gpus == 1 else 'GPUs'} {_is(count)} free"
        if not self.free_gpus:
            return "none is free" if self.device is None or not self.is_growth else f"none is free on gpu{self.device}"
        return f"{format_gpus(self.free_gpus)} is free on gpu{self.device}"


def not_planned(request: Request) -> WaitReason:
    """The reason of a request that no cycle has looked at."""
    return _asked(WaitCode.NOT_PLANNED, request)


def agent_refused(request: Request, detail: str) -> WaitReason:
    """The reason of a request that the gateway placed and the node agent did not."""
    return replace(_asked(WaitCode.AGENT_REFUSED, request), detail=detail)


def agent_unavailable(request: Request, detail: str) -> WaitReason:
    """The reason of all requests while the node agent does not answer."""
    return replace(_asked(WaitCode.AGENT_UNAVAILABLE, request), detail=detail)


def team_quota(request: Request, detail: str) -> WaitReason:
    """The reason of a request whose team may take no more now."""
    return replace(_asked(WaitCode.TEAM_QUOTA, request), detail=detail)


def full_and_over_quota(lacks: WaitReason, clause: str, *, is_limited: bool) -> WaitReason:
    """The reason of a request that lacks room on devices, and is beyond its team's quota.

    ``is_limited``: its team may not borrow so much, so that room on a device would not help.
    """
    detail = f"{lacks.detail}, and {clause}"
    if is_limited:
        return replace(lacks, code=WaitCode.TEAM_QUOTA, detail=f"{lacks._free()}{detail}")
    return replace(lacks, detail=detail)


def apart(request: Request, seconds: float) -> WaitReason:
    """The reason of a request that would fit, and waits for devices of one domain for so long."""
    detail = f"enough is free, but not in one NVLink or PCIe domain, for which it waits {seconds:g} s"
    return replace(_asked(WaitCode.LOCALITY, request), detail=detail)


def neighbors(request: Request, floor: float) -> WaitReason:
    """The reason of a request that would fit, and that kernels of normal priority refuse as a neighbor."""
    detail = (
        f"enough is free, but beside the kernels there one of normal priority would run below {floor:g} of its speed "
        "alone (neighborFloor)"
    )
    return replace(_asked(WaitCode.NEIGHBORS, request), detail=detail)


def cordoned(request: Request, detail: str) -> WaitReason:
    """The reason of a request that gets nothing on a cordoned node."""
    return replace(_asked(WaitCode.CORDONED, request), detail=detail)


def evicting(request: Request) -> WaitReason:
    """The reason of a request for which kernels leave their GPU."""
    return _asked(WaitCode.EVICTING, request)


def evicted(request: Request) -> WaitReason:
    """The reason of an evicted kernel whose devices others have."""
    return _asked(WaitCode.EVICTED, request)


def replaced_kernel(request: Request) -> WaitReason:
    """The reason of a request that is certain of the room of a kernel which it replaces."""
    return _asked(WaitCode.REPLACED_KERNEL, request)


def lacking(
    capacity: Capacity,
    request: Request,
    held: Held | None = None,
    wish: Wish = NO_WISH,
    newcomer: Neighbor | None = None,
) -> WaitReason:
    """Return what of *capacity* is too little for *request*.

    ``held``: what a running kernel has already. ``newcomer``: its load.
    """
    whole = replace(capacity, closed=frozenset()) if capacity.closed else capacity
    capacity, counts = whole.by_kind() if held is None else (whole, {})
    refusal = capacity.place(request, held, wish.models, newcomer=newcomer)
    is_refused = held is None and not isinstance(refusal, tuple)
    if is_refused and newcomer is not None and isinstance(capacity.place(request, models=wish.models), tuple):
        return neighbors(request, capacity.floor)
    if is_refused and capacity.shut and isinstance(capacity.open().place(request, models=wish.models), tuple):
        return cordoned(request, "the GPUs that have room are cordoned")
    if isinstance(refusal, tuple):
        code = WaitCode.AHEAD
    elif refusal.host is not None:
        code = WaitCode.HOST_MEMORY
    elif isinstance(_without_memory(capacity, held).place(request, held, wish.models), tuple):
        code = WaitCode.GPU_MEMORY
    else:
        code = WaitCode.GPU
    alone = whole.place_alone(request, held, wish.models)
    reason = _needs(_asked(code, request), alone if isinstance(alone, tuple) else (), held)
    reason = reason if isinstance(refusal, tuple) else replace(reason, host=refusal.host)
    if (
        capacity.is_lowered
        and code in _DEVICE_LACKS
        and isinstance(capacity.shared_freely().place(request, held, wish.models), tuple)
    ):
        reason = replace(reason, detail="; a team's quota lets no more kernels share a GPU's memory")
    states = _usable(capacity, request, held, wish)
    if held is None and request.gpus.hundredths > WHOLE:
        return _with_whole(reason, [(state, counts[capacity.node_of_device(state.uuid)]) for state in states])
    return _with_free(reason, states)


def _usable(capacity: Capacity, request: Request, held: Held | None, wish: Wish) -> list[DeviceState]:
    """Return the devices that a request may have parts of: those that it holds, or those of its models."""
    own = None if held is None else {part.uuid for part in held.parts}
    wished = capacity.of_models(wish.models) if own is None else own
    return [
        state
        for state in capacity.states(request.workload_class)
        if not state.lost and state.uuid in wished and (own is not None or state.uuid not in capacity.shut)
    ]


def _asked(code: WaitCode, request: Request) -> WaitReason:
    limit = None if request.memory_limit is None else int(request.memory_limit)
    return WaitReason(code, request.gpus.hundredths, limit, limit)


def _needs(reason: WaitReason, parts: Iterable[Part], held: Held | None) -> WaitReason:
    """The reason with what these parts reserve beyond what is held."""
    needs = tuple(parts)
    had = () if held is None else held.parts
    memory = sum(part.reserved_bytes for part in needs) - sum(part.reserved_bytes for part in had)
    gpus = reason.gpus - sum(part.hundredths for part in had)
    return replace(reason, gpus=max(0, gpus), memory_bytes=max(0, memory), is_growth=held is not None)


def _with_whole(reason: WaitReason, states: Sequence[tuple[DeviceState, int]]) -> WaitReason:
    """The reason with the whole devices that are free. *states*: each with the number of devices that are like it."""
    free = [(state, count) for state, count in states if state.free_hundredths >= WHOLE]
    memory = sum(count * state.free_bytes for state, count in free)
    gpus, there = WHOLE * sum(count for _, count in free), sum(count for _, count in states)
    return replace(reason, free_gpus=gpus, free_memory_bytes=memory, node_gpus=there)


def _with_free(reason: WaitReason, states: Sequence[DeviceState]) -> WaitReason:
    """The reason with the device that has the most room."""
    if not states:
        return replace(reason, free_gpus=0, free_memory_bytes=0)
    if reason.code is WaitCode.GPU_MEMORY:
        best = max(states, key=lambda d: (d.free_hundredths >= min(reason.gpus, WHOLE), d.free_bytes, -d.index))
    else:
        best = max(states, key=lambda d: (d.free_hundredths, d.free_bytes, -d.index))
    return replace(reason, free_gpus=best.free_hundredths, free_memory_bytes=best.free_bytes, device=best.index)


def _without_memory(capacity: Capacity, held: Held | None) -> Capacity:
    """The room with the same shares reserved, and of memory no more than what is held."""
    own = {} if held is None else {part.uuid: part.reserved_bytes for part in held.parts}
    reserved = {
        uuid: replace(
            one,
            bytes=own.get(uuid, 0),
            production_bytes=min(own.get(uuid, 0), one.production_bytes),
            kept_bytes=0,
        )
        for uuid in (device.uuid for device in capacity.devices)
        if (one := capacity.reserved.get(uuid)) is not None
    }
    return replace(capacity.without_host_limit(), reserved=reserved)


def _is(count: int) -> str:
    return "is" if count == 1 else "are"
