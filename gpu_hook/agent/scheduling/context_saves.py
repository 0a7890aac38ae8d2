"""Choose the kernels whose contexts leave a device, where a waiting kernel does not fit beside them.

A kernel that fills a GPU does not come back beside the context of another kernel, however little memory
that one has. Pure, for one kernel that waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .views import NEVER, DeviceView, KernelView, State


@dataclass(frozen=True, slots=True)
class Contexts:
    """One kernel's contexts, in bytes by device.

    ``leaving`` may leave; of a kernel that is resident, after its memory. ``busy`` may leave when it is idle.
    ``left`` did leave, and the looks at the devices may not show it yet.
    """

    kernel_id: str
    leaving: Mapping[str, int] = field(default_factory=dict)
    busy: Mapping[str, int] = field(default_factory=dict)
    left: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Saves:
    """The kernels whose contexts leave for one that waits.

    ``is_enough``: then it fits. ``is_later``: it fits when those of busy kernels have left, too.
    """

    kernels: tuple[str, ...] = ()
    is_enough: bool = False
    is_later: bool = False


def choose(
    wanter: KernelView, devices: Sequence[DeviceView], kernels: Sequence[KernelView], contexts: Sequence[Contexts]
) -> Saves:
    """Return the kernels whose contexts leave for the wanter, those idle for longest first; none where that is vain."""
    short = _shortage(wanter, devices, kernels)
    others = [one for one in contexts if one.kernel_id != wanter.kernel_id]
    for one in others:
        _take(short, one.left)
    known = {view.kernel_id: view for view in kernels}
    chosen: list[Contexts] = []
    for one in sorted(others, key=lambda one: _worth(known[one.kernel_id])):
        if any(short.get(uuid, 0) > 0 for uuid in one.leaving):
            _take(short, one.leaving)
            chosen.append(one)
    if _is_covered(short):
        return Saves(tuple(one.kernel_id for one in _without_needless(chosen, short)), is_enough=True)
    for one in others:
        _take(short, one.busy)
    for kernel in kernels:  # busy ones leave later
        if kernel.idle_since is None and kernel is not wanter and kernel.movable_at < NEVER:
            _take(short, {h.uuid: h.swappable_bytes for h in kernel.holdings})
    return Saves(is_later=_is_covered(short))


def _without_needless(chosen: Sequence[Contexts], short: dict[str, int]) -> list[Contexts]:
    """Spare the kernels that the others make unnecessary, the most valuable first. ``short`` is at most 0."""
    kept = []
    for one in reversed(chosen):
        amounts = {uuid: amount for uuid, amount in one.leaving.items() if uuid in short}
        if all(short[uuid] + amount <= 0 for uuid, amount in amounts.items()):
            _take(short, {uuid: -amount for uuid, amount in amounts.items()})
        else:
            kept.append(one)
    return kept[::-1]


def _is_covered(short: Mapping[str, int]) -> bool:
    return all(amount <= 0 for amount in short.values())


def _shortage(wanter: KernelView, devices: Sequence[DeviceView], kernels: Sequence[KernelView]) -> dict[str, int]:
    """Return the bytes of each device that the wanter lacks when all memory of idle kernels has left that can.

    A lost device lacks all: no context there helps.
    """
    capacity = {device.uuid: device.capacity_bytes or -(1 << 60) for device in devices}
    need = {h.uuid: h.held_bytes + h.away_bytes + h.wanted_bytes for h in wanter.holdings}
    short = {uuid: amount - capacity.get(uuid, 0) for uuid, amount in need.items() if amount}
    for kernel in kernels:
        if kernel is not wanter:
            leaves = kernel.movable_at < NEVER and kernel.idle_since is not None
            _take(short, {h.uuid: (h.swappable_bytes if leaves else 0) - h.held_bytes for h in kernel.holdings})
    return short


def _take(short: dict[str, int], amounts: Mapping[str, int]) -> None:
    for uuid, amount in amounts.items():
        if uuid in short:
            short[uuid] -= amount


def _worth(kernel: KernelView) -> tuple[bool, float, str]:
    """Return the sort key of a kernel whose contexts may leave: swapped out first, then idle for longest."""
    return (kernel.state is State.RESIDENT, kernel.idle_since or 0.0, kernel.kernel_id)
