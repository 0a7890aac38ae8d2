"""The kernels with which one would share a GPU's memory, and how long its own takes to return. Pure.

A kernel shares memory where kernels reserve more of its device than the device has. Before its next
cell its own memory is copied in, and that of another kernel out before it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from jupyter_aliquot.gateway.reports.status import MemorySharing as Report
from jupyter_aliquot.gpu_hook.client.reports import DeviceStatus, KernelStatus, NodeStatus
from jupyter_aliquot.gpu_hook.placement.placement import Part


@dataclass(frozen=True)
class MemorySharing:
    """The other kernels of the devices, and the most time that a return of the memory takes."""

    idle_kernels: int
    busy_kernels: int
    restore_seconds: float | None

    def report(self) -> Report:
        return {
            "idle_kernels": self.idle_kernels,
            "busy_kernels": self.busy_kernels,
            "restore_seconds": self.restore_seconds,
        }


def memory_sharing(
    parts: Sequence[Part], status: NodeStatus | None, without: Collection[str] = ()
) -> MemorySharing | None:
    """Return how a kernel with these parts shares memory; None if it has its memory alone.

    Args:
        parts: Its parts.
        status: The agent's last status.
        without: Kernels that do not count: itself, and those that it replaces.
    """
    if status is None:
        return None
    others = [kernel for kernel in status.kernels if kernel.kernel_id not in without]
    devices = {device.uuid: device for device in status.devices}
    shared = [part for part in parts if part.uuid in devices and _is_shared(part, devices[part.uuid], others)]
    if not shared:
        return None
    uuids = {part.uuid for part in shared}
    beside = [kernel for kernel in others if any(device.uuid in uuids for device in kernel.devices)]
    busy = sum(_is_busy(kernel) for kernel in beside)
    return MemorySharing(len(beside) - busy, busy, _restore_seconds(shared, devices))


def _is_shared(part: Part, device: DeviceStatus, others: Sequence[KernelStatus]) -> bool:
    reserved = sum(
        own.quota_bytes if own.guarantee_bytes is None else own.guarantee_bytes
        for kernel in others
        for own in kernel.devices
        if own.uuid == part.uuid
    )
    return not part.is_kept and reserved + part.reserved_bytes > device.memory_bytes


def _is_busy(kernel: KernelStatus) -> bool:
    return kernel.residency is not None and kernel.residency.is_busy


def _restore_seconds(shared: Sequence[Part], devices: dict[str, DeviceStatus]) -> float | None:
    """Return the time for its memory in, and as much out; devices copy at once. None: not known."""
    seconds = []
    for part in shared:
        device = devices[part.uuid]
        if not device.copy_in_rate or not device.copy_out_rate:
            return None
        seconds.append(part.reserved_bytes / device.copy_in_rate + part.reserved_bytes / device.copy_out_rate)
    return round(max(seconds), 1)
