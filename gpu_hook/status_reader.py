"""Reads one status of the node after another, and what did not change only once: it is asked every second.

A kernel that the agent describes as before is the very same value as before, so that others see at a glance that it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .agent_reports import KernelStatus, NodeStatus, read_kernel, read_status


class StatusReader:
    """Of one connection. Keeps the last report of each kernel."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Mapping[str, Any], KernelStatus]] = {}

    def read(self, report: Mapping[str, Any]) -> NodeStatus:
        """As agent_reports.read_status. Raises UnreadableReportError."""
        seen: dict[str, tuple[Mapping[str, Any], KernelStatus]] = {}

        def read(kernel: Mapping[str, Any]) -> KernelStatus:
            name = kernel["kernel_id"]
            last = self._last.get(name)
            if last is None or last[0] != kernel:
                last = (kernel, read_kernel(kernel))
            seen[name] = last
            return last[1]

        status = read_status(report, read)
        self._last = seen
        return status
