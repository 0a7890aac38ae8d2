"""The agent's answer to ``status``: it reads every part of the agent, and changes none."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from jupyter_aliquot.gpu_hook.agent.actuators.actuation import Actuation
from jupyter_aliquot.gpu_hook.agent.base.slices import Slices
from jupyter_aliquot.gpu_hook.agent.compute.loop import ComputeKeeper
from jupyter_aliquot.gpu_hook.agent.devices.audit import Auditor
from jupyter_aliquot.gpu_hook.agent.devices.devices import DeviceMonitor
from jupyter_aliquot.gpu_hook.agent.enforcers.enforcement import Enforcement
from jupyter_aliquot.gpu_hook.agent.host_copies.arena import Arena
from jupyter_aliquot.gpu_hook.agent.kernels.evictions import Evictions
from jupyter_aliquot.gpu_hook.agent.kernels.kernel import Kernel
from jupyter_aliquot.gpu_hook.agent.kernels.relocations import Relocations
from jupyter_aliquot.gpu_hook.agent.kernels.reservations import Reservations
from jupyter_aliquot.gpu_hook.agent.ledger.journal import Reservation
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import Ledger
from jupyter_aliquot.gpu_hook.agent.scheduling.keeper import LeaseKeeper
from jupyter_aliquot.gpu_hook.agent.scheduling.overcommit import OvercommitKeeper
from jupyter_aliquot.gpu_hook.agent.swap.facts import ResidencyFacts
from jupyter_aliquot.gpu_hook.agent.trimming.trimmer import Trims

from .lease_operations import describe_lease
from .operations import Node
from .status import (
    DeviceUses,
    describe_devices,
    describe_finding,
    describe_kernel,
    describe_lost,
    describe_oversubscription,
    most_overcommitted,
)

Description = Mapping[str, Any]


class StatusChanges:
    """The descriptions of kernels that changed since a client last asked.

    One number for all clients grows whenever a description changes; each kernel has the number of
    its last change.
    """

    def __init__(self) -> None:
        self._number = 0
        self._told: dict[str, tuple[Description, int]] = {}

    def since(self, number: int, kernels: Sequence[Description]) -> dict[str, Any]:
        """Return the answer to a client that has seen ``number`` (0: nothing).

        Args:
            number: The client's last. One that is greater than ours comes from another agent, and counts as 0.
            kernels: The descriptions of all kernels that there are now.
        """
        told: dict[str, tuple[Description, int]] = {}
        following = self._number + 1
        for kernel in kernels:
            before = self._told.get(kernel["kernel_id"])
            told[kernel["kernel_id"]] = before if before and before[0] == kernel else (kernel, following)
        if any(at == following for _, at in told.values()):
            self._number = following
        self._told = told
        seen = number if number <= self._number else 0
        return {
            "kernels": [kernel for kernel, at in told.values() if at > seen],
            "kernel_ids": list(told),
            "seen": self._number,
        }


@dataclass(frozen=True)
class Subjects:
    """The parts of the agent that a status describes."""

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
    overcommit: OvercommitKeeper
    evictions: Evictions
    relocations: Relocations


@dataclass(frozen=True)
class _Seen:
    """One kernel at the moment when the status described it."""

    reservation: Reservation
    is_ending: bool
    charged: Mapping[str, int]  # bytes by device
    resident: Mapping[str, int]
    description: Mapping[str, Any]

    def is_of(self, kernel: Kernel) -> bool:
        return self.reservation is kernel.reservation and self.is_ending == kernel.is_ending


class StatusMaker:
    """Makes the answer to ``status``.

    ``connections`` returns the number of open control connections. ``began`` is when this run
    of the agent began, in seconds since the epoch. ``holder_of`` returns the pod that holds a GPU.

    A status of many kernels is made in slices, between which the loop runs due work; one status at
    a time. The list of kernels, their reservations and the devices are those of its last moment.
    """

    def __init__(
        self,
        node: Node,
        subjects: Subjects,
        connections: Callable[[], int],
        make_slices: Callable[[], Slices] = Slices,
        began: float = 0.0,
        holder_of: Callable[[str], str] = lambda uuid: "",
    ) -> None:
        self._node = node
        self._of = subjects
        self._connections = connections
        self._make_slices = make_slices
        self._began = began
        self._holder_of = holder_of
        self._changes = StatusChanges()
        self._one_at_a_time = asyncio.Lock()

    async def describe(self, with_kernels: bool, since: int | None, with_use: bool = True) -> dict[str, Any]:
        """Return the status.

        With ``since``, return only the kernels that changed since that number. Without kernels and
        use, no kernel is looked at: the answer's cost does not depend on their number.
        """
        if not with_kernels and not with_use:
            return self._report(self._devices(None), {"kernels": []})
        async with self._one_at_a_time:
            slices, reservations = self._make_slices(), self._of.reservations
            see = partial(self._see, self._of.arena.bytes_by_kernel(), with_kernels, since)
            found: dict[str, _Seen] = {}
            for kernel in tuple(reservations.kernels):
                await slices.pause_if_due()
                if reservations.find(kernel.kernel_id) is kernel:
                    found[kernel.kernel_id] = see(kernel)
            # No pause from here on.
            seen = []
            for kernel in reservations.kernels:
                before = found.get(kernel.kernel_id)
                is_same = before is not None and before.is_of(kernel)
                seen.append(before if before and is_same else see(kernel))
            return self._join(seen, with_kernels, since)

    def _see(self, host_bytes: Mapping[str, int], with_kernels: bool, since: int | None, kernel: Kernel) -> _Seen:
        of, description, reading = self._of, dict[str, Any](), kernel.read()
        if with_kernels:
            copies = host_bytes.get(kernel.kernel_id, 0)
            description = {
                **describe_kernel(kernel, reading, of.auditor.findings, of.enforcement, of.compute),
                "residency": self._residency(kernel, reading.facts, copies, has_ages=since is None),
                "misfits": of.actuation.needs_restart(kernel.reservation, kernel.pids),
                "trimmed": of.trims.describe(kernel.kernel_id),
            }
        return _Seen(kernel.reservation, kernel.is_ending, reading.charged, reading.on_devices, description)

    def _residency(
        self, kernel: Kernel, facts: ResidencyFacts, copies: int, *, has_ages: bool
    ) -> dict[str, Any] | None:
        of = self._of
        found = describe_lease(of.leases, facts, copies, has_ages=has_ages)
        return found and {**found, "immovable_because": of.relocations.why_not(kernel, facts)}

    def _join(self, seen: Sequence[_Seen], with_kernels: bool, since: int | None) -> dict[str, Any]:
        charged: Counter[str] = Counter()
        resident: Counter[str] = Counter()
        for one in seen:
            charged.update(one.charged)
            resident.update(one.resident)
        kernels = [one.description for one in seen] if with_kernels else []
        changes = self._changes.since(since, kernels) if with_kernels and since is not None else {"kernels": kernels}
        used = partial(self._of.leases.room.used_bytes, on_device=resident)
        return self._report(self._devices(DeviceUses(charged, used)), changes)

    def _devices(self, uses: DeviceUses | None) -> list[dict[str, Any]]:
        """Describe the devices; without their use where that is None."""
        of = self._of
        devices = describe_devices(of.ledger, of.monitor.readings, uses, of.compute, of.overcommit.reasons)
        for device in devices:
            device["holder"] = self._holder_of(device["uuid"])
            device["copy_out_rate"], device["copy_in_rate"] = of.leases.room.rates(device["uuid"])
        return devices

    def _report(self, devices: list[dict[str, Any]], changes: Mapping[str, Any]) -> dict[str, Any]:
        of = self._of
        return {
            "node": self._node.name,
            "driver": self._node.driver.kind,
            "enforcer": of.enforcement.name,
            # Flat records, of which asdict would copy each field deeply.
            "enforcers": [vars(report) for report in of.enforcement.reports],
            "actuators": [vars(report) for report in of.actuation.reports],
            "devices": devices,
            "hook_problem": self._node.libraries.problem,
            "driver_problem": of.monitor.problem,
            "host_memory_bytes": of.ledger.host_memory_bytes,
            "host_copies": vars(of.arena.use),
            "oversubscription": most_overcommitted(of.ledger),
            "oversubscription_rule": describe_oversubscription(of.ledger),
            "host_memory_problem": of.overcommit.problem,
            "evicted": list(of.ledger.aside),
            "leaving": [asdict(one) for one in of.evictions.leaving()],
            "moved": of.relocations.places(),
            **changes,
            "lost_kernels": [describe_lost(reservation) for reservation in of.reservations.lost],
            "foreign_processes": [describe_finding(finding) for finding in of.auditor.findings.foreign],
            "ending_kernels": sorted(of.reservations.ending),
            "connections": self._connections(),
            "began": self._began,
        }
