"""The figures that the history keeps of devices and kernels, from two readings of the node. Pure.

A figure is None, and never zero, if the agent did not report it, or if it cannot be known because
its counter began anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jupyter_aliquot.gateway.base.gil import unhurried
from jupyter_aliquot.gpu_hook.client.reports import DeviceStatus, KernelStatus, NodeStatus

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
FIGURES = tuple(dict.fromkeys((*KERNEL_FIGURES, *DEVICE_FIGURES)))

Figure = float | None
# Figures in the order of FIGURES.
Values = tuple[Figure, ...]
Key = tuple[str, str, str]

# The largest drift of the wall clock against the monotonic one: beyond it, the clock was set, or
# the machine slept.
_LARGEST_DRIFT_SECONDS = 2.0
# Counters of GPU time are read at another moment than the clock.
_COUNTER_SLACK = 1.1


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


def samples(before: Reading, after: Reading) -> Iterator[Sample]:
    """Yield a sample of each subject that is in both readings.

    Gauges are the later reading's. The caller has checked ``is_gap``.
    """
    if before.status is None or after.status is None:
        return
    seconds = after.monotonic - before.monotonic
    devices = {device.uuid for device in before.status.devices}
    for device in after.status.devices:
        if device.uuid in devices and not device.lost:
            yield Sample(_device(device), _device_values(device))
    kernels = {(kernel.kernel_id, kernel.owner): kernel for kernel in before.status.kernels}
    for kernel in unhurried(after.status.kernels):
        known = kernels.get((kernel.kernel_id, kernel.owner))
        if known is not None:
            yield Sample(_kernel(kernel), _kernel_values(known, kernel, seconds))


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


def _kernel_values(before: KernelStatus, after: KernelStatus, seconds: float) -> Values:
    compute = [device.compute for device in after.devices]
    return _values(
        busy_gpus=_rate(_busy_seconds(before), _busy_seconds(after), seconds, len(after.devices)),
        own_gpus=_rate(_own_seconds(before), _own_seconds(after), seconds, len(after.devices)),
        share_entitled=_sum([None if one is None else one.share_entitled for one in compute]),
        share_used=_sum([None if one is None else one.share_used for one in compute]),
        used_bytes=sum(device.charged_bytes for device in after.devices),
        quota_bytes=sum(device.quota_bytes for device in after.devices),
        swapped_bytes=None if after.residency is None else after.residency.swapped_bytes,
    )


def _values(**known: Figure) -> Values:
    return tuple(known.get(name) for name in FIGURES)


def _busy_seconds(kernel: KernelStatus) -> float:
    return sum(device.busy_seconds for device in kernel.devices)


def _own_seconds(kernel: KernelStatus) -> Figure:
    return _sum([None if device.compute is None else device.compute.own_seconds for device in kernel.devices])


def _rate(before: Figure, after: Figure, seconds: float, devices: int) -> Figure:
    """Return the GPUs in use, by a counter of seconds.

    None if the counter began anew, or counted more time than there was.
    """
    if before is None or after is None or after < before:
        return None
    rate = (after - before) / seconds
    return min(rate, float(devices)) if rate <= devices * _COUNTER_SLACK else None


def _sum(parts: list[Figure]) -> Figure:
    """Return the sum of the known parts; None if none is known."""
    known = [part for part in parts if part is not None]
    return sum(known) if known else None
