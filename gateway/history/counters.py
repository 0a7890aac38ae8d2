"""The agent's counters of kernels' GPU time, and how much of them is in samples.

The GPU time of a kernel's samples adds up to its counter, as in the accounting: what was reported
late counts in the next sample, and a new kernel's counters began with it.
"""

from __future__ import annotations

from typing import NamedTuple

from jupyter_aliquot.gateway.base.gil import unhurried
from jupyter_aliquot.gpu_hook.client.reports import KernelDeviceStatus, KernelStatus, NodeStatus

# GPU time may be reported by so much later than it was used: the driver tells it about once a second.
_LATE_SECONDS = 2.0
# The wall clock, by which a kernel's age is known, was set by at most so much.
_SLACK_SECONDS = 2.0

Figure = float | None
# A kernel of an owner on one device.
_Place = tuple[str, str, str]


class _Counted(NamedTuple):
    """The values of a device's counters that are in samples; ``own`` None: the agent does not report it."""

    busy: float
    own: Figure


_NOTHING = _Counted(0.0, None)


class KernelCounters:
    """The counted values of all kernels of the last reading. One thread uses them."""

    def __init__(self) -> None:
        self._before: dict[_Place, _Counted] = {}
        self._counted: dict[_Place, _Counted] = {}
        self._began = 0.0

    def skip(self, status: NodeStatus | None) -> None:
        """Leave out the time before this reading: it is a gap."""
        kernels = () if status is None else status.kernels
        self._counted = {
            _place(kernel, part): _Counted(part.busy_seconds, _own(part))
            for kernel in unhurried(kernels)
            for part in kernel.devices
        }
        self._began = 0.0 if status is None else status.began

    def start(self, status: NodeStatus) -> None:
        """Begin a reading, whose kernels `take` gets. The agent's own counters begin with its run."""
        self._before, self._counted = self._counted, {}
        if status.began != self._began:
            self._before = {place: _Counted(one.busy, 0.0) for place, one in self._before.items()}
            self._began = status.began

    def take(self, kernel: KernelStatus, wall: float, seconds: float) -> tuple[Figure, Figure] | None:
        """Return the GPUs in use over the last *seconds*: all that the kernel's work took, and its own time.

        A figure is None where the agent does not report it, or its counter cannot be right. The whole is
        None for a kernel that is older than these seconds and was not in the last reading.
        """
        places = [_place(kernel, part) for part in kernel.devices]
        is_new = wall - kernel.created <= seconds + _SLACK_SECONDS
        if not is_new and not any(place in self._before for place in places):
            for place, part in zip(places, kernel.devices, strict=True):
                self._counted[place] = _Counted(part.busy_seconds, _own(part))
            return None
        busy, own = list[Figure](), list[Figure]()
        for place, part in zip(places, kernel.devices, strict=True):
            before, now = self._before.get(place, _NOTHING), _own(part)
            used, counted = _used(before.busy, part.busy_seconds, seconds)
            used_own, counted_own = (None, None) if now is None else _own_used(before.own, now, seconds)
            busy.append(used)
            own.append(used_own)
            self._counted[place] = _Counted(counted, counted_own)
        return _rate(busy, seconds), _rate(own, seconds)


def _place(kernel: KernelStatus, part: KernelDeviceStatus) -> _Place:
    return (kernel.kernel_id, kernel.owner, part.uuid)


def _own(part: KernelDeviceStatus) -> Figure:
    return None if part.compute is None else part.compute.own_seconds


def _own_used(before: Figure, now: float, seconds: float) -> tuple[Figure, float]:
    """Return what `_used` does; a counter that fell, or was not there before, has counted from zero."""
    counted = 0.0 if before is None or now < before else before
    return _used(counted, now, seconds)


def _used(before: float, now: float, seconds: float) -> tuple[Figure, float]:
    """Return the GPU time used, at most all of the time, and the counter up to which it is counted.

    A kernel writes its own counters: one that ran ahead of the time by more than reports are late is
    not known, as is one that fell.
    """
    used = now - before
    if not 0 <= used <= seconds + _LATE_SECONDS:
        return None, now
    counted = min(used, seconds)
    return counted, before + counted


def _rate(used: list[Figure], seconds: float) -> Figure:
    """Return the GPUs in use by the known parts; None if none is known."""
    known = [one for one in used if one is not None]
    return sum(known) / seconds if known else None
