"""All nodes as one view, for the parts that look at kernels wherever they run. Keeps the last one alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gpu_hook.client.reports import NodeStatus

from .remote_node import RemoteNodeView


class WholeView:
    """The view of the gateway's own node with the kernels and devices of the others.

    *nodes* returns these. A node without a connection is left out: of its kernels nothing is known.
    """

    def __init__(self, nodes: Callable[[], Sequence[RemoteNodeView]]) -> None:
        self._nodes = nodes
        self._causes: tuple[NodeStatus | None, ...] = ()
        self._status: NodeStatus | None = None

    def of(self, own: NodeView) -> NodeView:
        """Return the whole view; *own* itself where there is no other node."""
        others = [node.status for node in self._nodes() if node.is_connected and node.status is not None]
        if not others:
            return own
        causes = (own.status, *others)
        if [*map(id, causes)] != [*map(id, self._causes)]:
            self._causes, self._status = causes, _joined(own.status, others)
        return replace(own, status=self._status)


def _joined(own: NodeStatus | None, others: Sequence[NodeStatus]) -> NodeStatus:
    all_of_them = others if own is None else (own, *others)
    return replace(
        all_of_them[0],
        devices=tuple(device for status in all_of_them for device in status.devices),
        kernels=tuple(kernel for status in all_of_them for kernel in status.kernels),
    )
