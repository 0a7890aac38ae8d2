"""The agent's answer to ``status``: reads every part of the agent, changes none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from .actuation import Actuation
from .arena import Arena
from .audit import Auditor
from .compute.loop import ComputeKeeper
from .devices import DeviceMonitor
from .enforcement import Enforcement
from .lease_keeper import LeaseKeeper
from .lease_operations import describe_lease
from .ledger import Ledger
from .operations import Node
from .reservations import Reservations
from .status import (
    charged_by_device,
    describe_devices,
    describe_kernel,
    describe_lost,
    describe_oversubscription,
    describe_sighting,
)
from .status_changes import StatusChanges
from .trimming import Trims


@dataclass(frozen=True)
class Subjects:
    """What a status tells of."""

    ledger: Ledger
    reservations: Reservations
    monitor: DeviceMonitor
    auditor: Auditor
    enforcement: Enforcement
    actuation: Actuation
    compute: ComputeKeeper
    leases: LeaseKeeper
    trims: Trims
    arena: Arena


class StatusMaker:
    """``connections`` tells how many control connections are open."""

    def __init__(self, node: Node, subjects: Subjects, connections: Callable[[], int]) -> None:
        self._node = node
        self._of = subjects
        self._connections = connections
        self._changes = StatusChanges()

    def describe(self, with_kernels: bool, since: int | None) -> dict[str, Any]:
        """Return the status; with ``since``, of the kernels that changed since that number alone."""
        of = self._of
        found = of.auditor.findings
        charged = charged_by_device(of.reservations.kernels)
        used = partial(of.leases.room.used_bytes, on_device=of.reservations.on_devices())
        kernels = [
            {
                **describe_kernel(kernel, found, of.enforcement, of.compute),
                "residency": describe_lease(of.leases, kernel.kernel_id, has_ages=since is None),
                "misfits": of.actuation.misfits(kernel.reservation, kernel.pids),
                "trimmed": of.trims.describe(kernel.kernel_id),
            }
            for kernel in (of.reservations.kernels if with_kernels else ())
        ]
        changes = self._changes.since(since, kernels) if with_kernels and since is not None else {"kernels": kernels}
        return {
            "node": self._node.name,
            "driver": self._node.driver.kind,
            "enforcer": of.enforcement.name,
            "enforcers": [asdict(report) for report in of.enforcement.reports],
            "actuators": [asdict(report) for report in of.actuation.reports],
            "devices": describe_devices(of.ledger, of.monitor.readings, charged, used, of.compute),
            "driver_problem": of.monitor.problem,
            "host_memory_bytes": of.ledger.host_memory_bytes,
            "host_copies": asdict(of.arena.use),
            "oversubscription": of.ledger.oversubscription.most,
            "oversubscription_rule": describe_oversubscription(of.ledger),
            **changes,
            "lost_kernels": [describe_lost(reservation) for reservation in of.reservations.lost],
            "foreign_processes": [describe_sighting(sighting) for sighting in found.foreign],
            "connections": self._connections(),
        }
