"""A node for tests of the history: one device, and kernels of one owner."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_aliquot.gateway.history.samples import FIGURES, Figure
from jupyter_aliquot.gpu_hook.client.compute_reports import ComputeStatus
from jupyter_aliquot.gpu_hook.client.reports import DeviceStatus, KernelDeviceStatus, KernelStatus, NodeStatus

UUID = "GPU-1"
GIB = 1 << 30


def figure(values: Sequence[Figure], name: str = "used_bytes") -> Figure:
    return values[FIGURES.index(name)]


def node(
    busy_seconds: float = 0.0,
    own_seconds: float = 0.0,
    kernels: int = 1,
    owner: str = "alice",
    used: int = GIB,
    label: str = "a.ipynb",
) -> NodeStatus:
    """Return a node's status with ``kernels`` kernels k1, k2, …, all with these figures."""
    device = DeviceStatus(0, UUID, "a device", 16 * GIB, 0, 0, 40, None, 70.0, False, used, used)
    compute = ComputeStatus(0.5, 0.25, own_seconds)
    part = KernelDeviceStatus(UUID, 0, 25, 4 * GIB, used, used, used, busy_seconds, 0, compute=compute)
    listed = tuple(
        KernelStatus(f"k{number}", owner, label, 25, None, "production", 1, (), 1000.0, "holds", (1,), False, (part,))
        for number in range(1, kernels + 1)
    )
    return NodeStatus("a node", "softgpu", "hook", (device,), listed, 1)
