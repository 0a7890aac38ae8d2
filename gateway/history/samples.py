"""The figures that the history keeps of devices and kernels, from two readings of the node.

A figure is None, and never zero, if the agent did not report it, or if its counter cannot be right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jupyter_aliquot.gateway.base.gil import unhurried
from jupyter_aliquot.gpu_hook.client.reports import DeviceStatus, KernelStatus, NodeStatus

from .counters import Figure, KernelCounters

KERNEL_FIGURES = (
    "busy_gpus",
    "own_gpus",
    "share_entitled",
    "share_used",
    "used_bytes",
    "quota_bytes",
    "swapped_bytes",
)
DEVICE_FIGURES = ("utilization_percent", "used_bytes", "temperature_celsius", "power_watts")
# A step's mean of these, times the known seconds of the step, is the GPU time that was counted.
AMOUNTS = ("busy_gpus", "own_gpus")
FIGURES = tuple(dict.fromkeys((*KERNEL_FIGURES, *DEVICE_FIGURES)))

# Figures in the order of FIGURES.
Values = tuple[Figure, ...]
Key = tuple[str, str, str]

# The largest drift of the wall clock against the monotonic one: beyond it, the clock was set, or
# the machine slept.
_LARGEST_DRIFT_SECONDS = 2.0


@dataclass(frozen=True)
class Reading:
    """The node at one moment. ``status`` None: the agent did not answer."""

    wall: float
    monotonic: float
    status: NodeStatus | None


@dataclass(frozen=True)
class Subject:
    """A kernel or a device, with the facts that its history needs after it is gone.

    Another user may reuse an id after its kernel ended, so the owner is a part of the key.
    """

    kind: str
    id: str
    owner: str = ""
    label: str = ""
    kernelspec: str = ""
    gpus: float | None = None
    memory_limit_bytes: int | None = None
    workload_class: str = ""
    device_index: int | None = None

    @property
    def key(self) -> Key:
        return (self.kind, self.id, self.owner)


@dataclass(frozen=True)
class Sample:
    """One subject over the time between two readings."""

    subject: Subject
    values: Values


def has_jumped(before: Reading, after: Reading) -> bool:
    """Return whether the wall clock and the monotonic clock drifted apart."""
    return abs((after.wall - before.wall) - (after.monotonic - before.monotonic)) > _LARGEST_DRIFT_SECONDS


def is_gap(before: Reading, after: Reading, longest_seconds: float) -> bool:
    """Return whether nothing is known about the time between the two readings."""
    seconds = after.monotonic - before.monotonic
    return not 0 < seconds <= longest_seconds or has_jumped(before, after)


def samples(before: Reading, after: Reading, counters: KernelCounters) -> Iterator[Sample]:
    """Yield a sample of each device that is in both readings, and of each kernel that was there between them.

    Gauges are the later reading's. The caller has checked ``is_gap``.
    """
    if before.status is None or after.status is None:
        counters.skip(after.status)
        return
    seconds = after.monotonic - before.monotonic
    devices = {device.uuid for device in before.status.devices}
    for device in after.status.devices:
        if device.uuid in devices and not device.lost:
            yield Sample(_device(device), _device_values(device))
    counters.start(after.status)
    for kernel in unhurried(after.status.kernels):
        used = counters.take(kernel, after.wall, seconds)
        if used is not None:
            yield Sample(_kernel(kernel), _kernel_values(kernel, *used))


def _device(device: DeviceStatus) -> Subject:
    return Subject("device", device.uuid, label=device.name, device_index=device.index)


def _kernel(kernel: KernelStatus) -> Subject:
    return Subject(
        kind="kernel",
        id=_writable(kernel.kernel_id),
        owner=_writable(kernel.owner),
        label=_writable(kernel.label),
        kernelspec=_writable(dict(kernel.attributes).get("kernelspec", "")),
        gpus=kernel.hundredths / 100,
        memory_limit_bytes=kernel.memory_limit,
        workload_class=kernel.workload_class,
    )


def _writable(text: str) -> str:
    """Return the text with unpaired surrogates spelled out.

    No file holds half a character of two, and one such name would keep all from being written.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _device_values(device: DeviceStatus) -> Values:
    return _values(
        utilization_percent=device.utilization_percent,
        used_bytes=device.used_bytes,
        temperature_celsius=device.temperature_celsius,
        power_watts=device.power_watts,
    )


def _kernel_values(kernel: KernelStatus, busy_gpus: Figure, own_gpus: Figure) -> Values:
    compute = [device.compute for device in kernel.devices]
    return _values(
        busy_gpus=busy_gpus,
        own_gpus=own_gpus,
        share_entitled=_sum([None if one is None else one.share_entitled for one in compute]),
        share_used=_sum([None if one is None else one.share_used for one in compute]),
        used_bytes=sum(device.charged_bytes for device in kernel.devices),
        quota_bytes=sum(device.quota_bytes for device in kernel.devices),
        swapped_bytes=None if kernel.residency is None else kernel.residency.swapped_bytes,
    )


def _values(**known: Figure) -> Values:
    return tuple(known.get(name) for name in FIGURES)


def _sum(parts: list[Figure]) -> Figure:
    """Return the sum of the known parts; None if none is known."""
    known = [part for part in parts if part is not None]
    return sum(known) if known else None
