"""Reads one status of the node after another, and what did not change only once: it is asked every second.

A kernel that the agent describes as before is the very same value as before, so that others see at a glance that it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .reports import KernelStatus, NodeStatus, UnreadableReportError, read_kernel, read_status


class StatusReader:
    """Of one connection. ``seen`` is what to ask with: the agent then tells only of kernels that changed since."""

    def __init__(self) -> None:
        self.seen = 0
        self._kernels: dict[str, KernelStatus] = {}
        # Of an agent that tells all: what it said of each.
        self._said: dict[str, Mapping[str, Any]] = {}

    def read(self, report: Mapping[str, Any]) -> NodeStatus:
        """As agent_reports.read_status, of all kernels that there are. Raises UnreadableReportError."""
        said: dict[str, Mapping[str, Any]] = {}

        def read(kernel: Mapping[str, Any]) -> KernelStatus:
            name = kernel["kernel_id"]
            is_known = name in self._kernels and self._said.get(name) == kernel
            said[name] = kernel
            return self._kernels[name] if is_known else read_kernel(kernel)

        status = read_status(report, read)
        told = {kernel.kernel_id: kernel for kernel in status.kernels}
        if "seen" in report:
            told, self.seen = self._joined(report, told)
        else:
            self._said = said
        self._kernels = told
        return replace(status, kernels=tuple(told.values()))

    def _joined(
        self, report: Mapping[str, Any], told: Mapping[str, KernelStatus]
    ) -> tuple[dict[str, KernelStatus], int]:
        """Those that changed among those that did not."""
        try:
            known = {**self._kernels, **told}
            return {name: known[name] for name in report["kernel_ids"]}, int(report["seen"])
        except (KeyError, TypeError, ValueError) as error:
            raise UnreadableReportError(f"the agent tells what changed of its kernels, but not {error}") from error
