"""Devices, as the REST API has them: each with what all kernels have of it, and the asker's of that. Pure.

One pass over the kernels for all devices; nobody learns here whose the others' are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aliquot.gateway.compute_view import control_report
from aliquot.gpu_hook.agent_reports import DeviceStatus, KernelDeviceStatus, NodeStatus

Report = dict[str, Any]


@dataclass
class _Sums:
    """Of one device, in bytes."""

    swapped: int = 0
    elastic: int = 0
    mine: int = 0
    mine_reserved: int = 0
    mine_swapped: int = 0

    def add(self, part: KernelDeviceStatus, *, is_mine: bool) -> None:
        """One kernel's part of the device."""
        guarantee = part.quota_bytes if part.guarantee_bytes is None else part.guarantee_bytes
        self.swapped += part.swapped_bytes
        self.elastic += max(0, part.charged_bytes - part.swapped_bytes - guarantee)
        if is_mine:
            self.mine += part.charged_bytes
            self.mine_reserved += guarantee
            self.mine_swapped += part.swapped_bytes


def device_reports(status: NodeStatus, name: str) -> list[Report]:
    """All devices of the node. ``name``: the user whose kernels are "mine"."""
    sums: dict[str, _Sums] = {device.uuid: _Sums() for device in status.devices}
    for kernel in status.kernels:
        for part in kernel.devices:
            if part.uuid in sums:
                sums[part.uuid].add(part, is_mine=kernel.owner == name)
    return [_device(device, sums) for device in status.devices]


def _device(device: DeviceStatus, sums: Mapping[str, _Sums]) -> Report:
    of_kernels = sums[device.uuid]
    return {
        "index": device.index,
        "uuid": device.uuid,
        "name": device.name,
        "memory_bytes": device.memory_bytes,
        "reserved_bytes": device.reserved_bytes,
        "reserved_gpus": device.reserved_hundredths / 100,
        "used_bytes": device.used_bytes,
        "mine_bytes": of_kernels.mine,
        "mine_reserved_bytes": of_kernels.mine_reserved,
        "swapped_bytes": of_kernels.swapped,
        "mine_swapped_bytes": of_kernels.mine_swapped,
        "elastic_bytes": of_kernels.elastic,
        "utilization_percent": device.utilization_percent,
        "temperature_celsius": device.temperature_celsius,
        "power_watts": device.power_watts,
        "lost": device.lost,
        "compute_control": control_report(device.compute_control),
    }
