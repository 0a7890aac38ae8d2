"""Read one status of the node after another, and unchanged parts only once.

The status is read every second. A kernel whose description did not change is the same object as
before, so that callers can compare by identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .reports import (
    DeviceStatus,
    KernelStatus,
    NodeStatus,
    UnreadableReportError,
    read_device,
    read_kernel,
    read_status,
)

_CHANGING = {"id", "seen", "kernel_ids", "devices", "kernels"}


class StatusReader:
    """The reader of one connection.

    ``seen`` is the number for the next request: the agent then reports only kernels that changed
    since.
    """

    def __init__(self) -> None:
        self.seen = 0
        self._kernels: dict[str, KernelStatus] = {}
        # The kernels' descriptions from an agent that always sends all.
        self._said: dict[str, Mapping[str, Any]] = {}
        # The last status, and all that its report said beside devices and kernels.
        self._status: NodeStatus | None = None
        self._rest: Mapping[str, Any] = {}
        # The devices' descriptions, and what was read of them.
        self._devices: dict[int, tuple[Mapping[str, Any], DeviceStatus]] = {}

    def read(self, report: Mapping[str, Any]) -> NodeStatus:
        """Return the status of all kernels, as agent_reports.read_status does.

        Raises UnreadableReportError.
        """
        said: dict[str, Mapping[str, Any]] = {}

        def read(kernel: Mapping[str, Any]) -> KernelStatus:
            name = kernel["kernel_id"]
            is_known = name in self._kernels and self._said.get(name) == kernel
            said[name] = kernel
            return self._kernels[name] if is_known else read_kernel(kernel)

        rest = {name: value for name, value in report.items() if name not in _CHANGING}
        if self._status is not None and rest == self._rest:
            status = self._with_parts(self._status, report, read)
        else:
            status = read_status(report, read, self._device)
        self._status, self._rest = status, rest
        told = {kernel.kernel_id: kernel for kernel in status.kernels}
        if "seen" in report:
            told, self.seen = self._joined(report, told)
        else:
            self._said = said
        self._kernels = told
        return replace(status, kernels=tuple(told.values()))

    def _with_parts(
        self, status: NodeStatus, report: Mapping[str, Any], read: Callable[[Mapping[str, Any]], KernelStatus]
    ) -> NodeStatus:
        """Return the status with what its report says of devices and kernels."""
        try:
            devices = tuple(self._device(place, device) for place, device in enumerate(report["devices"]))
            return replace(status, devices=devices, kernels=tuple(read(kernel) for kernel in report["kernels"]))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise UnreadableReportError(f"the agent sent a status that cannot be read: {error!r}") from error

    def _device(self, place: int, device: Mapping[str, Any]) -> DeviceStatus:
        said, known = self._devices.get(place, (None, None))
        if known is None or said != device:
            known = read_device(device)
            self._devices[place] = device, known
        return known

    def _joined(
        self, report: Mapping[str, Any], told: Mapping[str, KernelStatus]
    ) -> tuple[dict[str, KernelStatus], int]:
        """Return all kernels: the changed ones among the unchanged."""
        try:
            known = {**self._kernels, **told}
            return {name: known[name] for name in report["kernel_ids"]}, int(report["seen"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise UnreadableReportError(f"the agent tells what changed of its kernels, but not {error}") from error
