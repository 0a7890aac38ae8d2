"""The accounting of a gateway without an agent of its own: nodes come with agents that dial in, and end."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace
from pathlib import Path

from jupyter_aliquot.gateway.accounting.database import UsageFile
from jupyter_aliquot.gateway.accounting.recorder import AccountingSources, UsageAccounting
from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gateway.nodes.remote_node import RemoteNodeView
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gpu_hook.client.reports import KernelDeviceStatus, KernelStatus, NodeStatus

from .life import HOUR, NOON, settings

LOG = logging.getLogger("accounting")


class Hands(SystemClock):
    """A clock that the test advances, in seconds."""

    seconds = 500.0

    def now(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return NOON / 1000 + self.seconds


@dataclass
class Cluster:
    """The nodes whose agents have dialed in, and the accounting that looks at them."""

    path: Path
    clock: Hands = field(default_factory=Hands)
    nodes: dict[str, RemoteNodeView] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sources = AccountingSources(
            admission=lambda: AdmissionSnapshot("ok", "", ()),
            quotas=lambda: None,
            boot="boot 1",
            nodes=lambda: tuple(self.nodes.values()),
        )
        self.accounting = UsageAccounting(settings(self.path), sources, self.clock, LOG)

    def connect(self, name: str, *kernels: str) -> None:
        created = self.clock.wall()
        part = KernelDeviceStatus(f"GPU-{name}", 0, 25, 1 << 30, 0, 0, 0, 0.0, 0)
        held = [
            KernelStatus(one, "alice", "", 25, None, "production", 1, (), created, "holds", (1,), False, (part,))
            for one in kernels
        ]
        self.nodes[name] = RemoteNodeView(
            name, is_connected=True, status=NodeStatus(name, "softgpu", "hook", (), held, 1)
        )

    def lose(self, name: str) -> None:
        self.nodes[name] = replace(self.nodes[name], is_connected=False)

    def look(self, seconds: float = 0.0) -> None:
        self.clock.seconds += seconds
        self.accounting.record(NodeView())

    async def marked(self) -> set[str]:
        """Stop, and return the kernels that have a mark in the file."""
        await self.accounting.stop()
        file = UsageFile(self.path, 64 << 20, LOG)
        try:
            return {mark.part.key.kernel_id for mark in file.marks()}
        finally:
            file.close()


def test_marks_of_a_node_that_the_gateway_has_forgotten_go(tmp_path: Path) -> None:
    async def live() -> set[str]:
        cluster = Cluster(tmp_path / "accounting.sqlite")
        cluster.connect("stays", "k-stays")
        for day in range(3):
            cluster.connect(f"holder-{day}", f"k-{day}")
            cluster.look(60)
            cluster.lose(f"holder-{day}")
            cluster.look(60)
        del cluster.nodes["holder-0"], cluster.nodes["holder-1"]
        cluster.look(60)
        cluster.look(HOUR / 1000)
        return await cluster.marked()

    assert asyncio.run(live()) == {"k-stays", "k-2"}, "the last node is away, and may come back with its kernel"
