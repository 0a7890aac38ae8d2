"""Reports made before that still hold: among a thousand kernels, few change between two looks.

Owned by the maker of snapshots. It decides nothing and knows no user: the same causes give the same
report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from jupyter_aliquot.gateway.nodes.remote_node import RemoteNodeView
from jupyter_aliquot.gateway.reports import to_json
from jupyter_aliquot.gateway.reports.kernel import Kernel
from jupyter_aliquot.gpu_hook.client.reports import KernelStatus, NodeStatus

from .devices import DeviceSums

_NO_KERNELS: Mapping[str, KernelStatus] = {}
# The most unused reports: the kernels that ended last are shown for a while.
_SPARE = 64


def _is_connected(node: RemoteNodeView) -> bool:
    return node.is_connected


class Made:
    """One report, and the causes that it was made of.

    ``is_used``: whether it was requested since reports were last dropped.
    """

    __slots__ = ("_text", "causes", "is_used", "report")

    def __init__(self, causes: tuple[Any, ...], report: Kernel) -> None:
        self.causes = causes
        self.report = report
        self.is_used = True
        self._text: bytes | None = None

    def text(self) -> bytes:
        """Return the report as JSON, made at the first call."""
        if self._text is None:
            self._text = to_json(self.report).encode()
        return self._text


class ReportMemo:
    """The reports of kernels by their causes. ``made`` counts the reports that had to be made."""

    def __init__(self) -> None:
        # By view, and by kernel.
        self._reports: defaultdict[str, dict[str, Made]] = defaultdict(dict)
        self._status: NodeStatus | None = None
        self._kernels = _NO_KERNELS
        # The statuses of other machines, and the kernels of all machines then.
        self._others: tuple[NodeStatus, ...] = ()
        self._known = _NO_KERNELS
        self._owned: dict[str, dict[str, KernelStatus]] = {}
        self._devices: DeviceSums | None = None
        self._of_nodes: dict[str, DeviceSums] = {}
        self._limit = _SPARE
        self.made = 0

    def report(self, kernel_id: str, view: str, causes: tuple[Any, ...], make: Callable[..., Kernel]) -> Made:
        """Return the report that *make* makes of these causes, which callers never change.

        ``view``: which of a kernel's reports this is.
        """
        reports = self._reports[view]
        found = reports.get(kernel_id)
        if found is None or found.causes != causes:
            self.made += 1
            found = reports[kernel_id] = Made(causes, make(*causes))
        found.is_used = True
        return found

    def count(self) -> int:
        """Return how many reports are kept."""
        return sum(map(len, self._reports.values()))

    def kernels(self, status: NodeStatus | None) -> Mapping[str, KernelStatus]:
        """Return the agent's kernels by their ids."""
        if status is not self._status:
            self._status, self._others = status, ()
            before = self._kernels
            self._kernels = {kernel.kernel_id: kernel for kernel in status.kernels} if status else _NO_KERNELS
            for kernel_id in before.keys() - self._kernels.keys():
                self._forget_owned(before[kernel_id])
            for kernel_id, kernel in self._kernels.items():
                if (was := before.get(kernel_id)) is not kernel:
                    self._note_owned(kernel, was)
        return self._kernels

    def _note_owned(self, kernel: KernelStatus, was: KernelStatus | None) -> None:
        if was is not None and was.owner != kernel.owner:
            self._forget_owned(was)
        self._owned.setdefault(kernel.owner, {})[kernel.kernel_id] = kernel

    def _forget_owned(self, kernel: KernelStatus) -> None:
        mine = self._owned[kernel.owner]
        del mine[kernel.kernel_id]
        if not mine:
            del self._owned[kernel.owner]

    def known(self, status: NodeStatus | None, nodes: Sequence[RemoteNodeView]) -> Mapping[str, KernelStatus]:
        """Return the kernels of all agents by their ids.

        A node without a connection may still list a kernel that is on another by now: the others win.
        """
        own = self.kernels(status)
        told = [node.status for node in sorted(nodes, key=_is_connected) if node.status is not None]
        if not told:
            return own
        if [*map(id, told)] != [*map(id, self._others)]:
            self._others = tuple(told)
            self._known = {kernel.kernel_id: kernel for one in told for kernel in one.kernels} | dict(own)
        return self._known

    def owned(self, status: NodeStatus | None, owner: str) -> tuple[KernelStatus, ...]:
        """Return the agent's kernels of this owner, as they are now."""
        self.kernels(status)
        return tuple(self._owned.get(owner, {}).values())

    def devices(self, status: NodeStatus) -> DeviceSums:
        """Return the sums over the kernels of each device."""
        if self._devices is None:
            self._devices = DeviceSums(status)
        elif self._devices.status is not status:
            self._devices.follow(status)
        return self._devices

    def devices_of(self, node: str, status: NodeStatus) -> DeviceSums:
        """Return the sums of a node on another machine."""
        found = self._of_nodes.get(node)
        if found is None:
            found = self._of_nodes[node] = DeviceSums(status)
        elif found.status is not status:
            found.follow(status)
        return found

    def forget_nodes(self, there: Collection[str]) -> None:
        """Drop the sums of nodes that are no more. Called with the names of all nodes."""
        if len(self._of_nodes) > len(there):
            self._of_nodes = {name: sums for name, sums in self._of_nodes.items() if name in there}

    def forget_others(self, there: Callable[[], Collection[str]]) -> None:
        """Drop reports of kernels that no longer exist. Called with each snapshot.

        ``there``: returns the ids of kernels; called only after many new reports. Reports of other
        kernels, such as ended ones and those without a GPU, stay if they were requested since the
        last call.
        """
        if self.count() <= self._limit:
            return
        ids = frozenset(there())
        for view, reports in self._reports.items():
            self._reports[view] = {one: made for one, made in reports.items() if made.is_used or one in ids}
            for made in self._reports[view].values():
                made.is_used = False
        self._limit = self.count() * 17 // 16 + _SPARE
