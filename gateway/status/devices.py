"""Device reports of the REST API: the sums of all kernels and of the user's own. Pure.

One pass over the kernels serves all devices. A report names no other user.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jupyter_aliquot.gateway.planning.colocation import Interference, Profile
from jupyter_aliquot.gateway.reports.status import Device, PredictedSpeed
from jupyter_aliquot.gateway.scheduling.ledger import LedgerSnapshot
from jupyter_aliquot.gateway.state.load_memory import profile_of
from jupyter_aliquot.gpu_hook.client.reports import DeviceStatus, KernelDeviceStatus, KernelStatus, NodeStatus

from .compute import control_report

# Begins the reason of a device's overcommit that a team lowers. The agent knows no teams.
A_TEAM_THERE = "a team whose kernels are there"
NOTHING_KNOWN = LedgerSnapshot()


@dataclass
class _Sums:
    """Sums over the kernels of one device, in bytes; how many parts they have, and the kernels' loads."""

    parts: int = 0
    charged: int = 0
    reserved: int = 0
    swapped: int = 0
    burstable: int = 0
    profiles: dict[str, Profile] = field(default_factory=dict)
    # The predicted speed, and the model that it was made by: each two kernels of the device are compared for it.
    predicted: tuple[Interference, PredictedSpeed | None] | None = None

    def add(self, part: KernelDeviceStatus, times: int) -> None:
        """Add one kernel's part of the device once, or take it off (-1 times)."""
        guarantee = part.quota_bytes if part.guarantee_bytes is None else part.guarantee_bytes
        self.parts += times
        self.charged += times * part.charged_bytes
        self.reserved += times * guarantee
        self.swapped += times * part.swapped_bytes
        self.burstable += times * max(0, part.charged_bytes - part.swapped_bytes - guarantee)


class DeviceSums:
    """The sums over all kernels of one status, and over each owner's.

    They are computed once, for any number of users, and from one status to the next only for kernels that changed.
    """

    def __init__(self, status: NodeStatus) -> None:
        self.status = status
        self._kernels: Mapping[str, KernelStatus] = {}
        self._all: dict[str, _Sums] = {}
        self._owners: dict[tuple[str, str], _Sums] = {}
        self.follow(status)

    def follow(self, status: NodeStatus) -> None:
        """Sum up the next status."""
        self.status = status
        kernels = {kernel.kernel_id: kernel for kernel in status.kernels}
        uuids = [device.uuid for device in status.devices]
        if uuids != [*self._all]:
            self._kernels, self._all, self._owners = {}, {uuid: _Sums() for uuid in uuids}, {}
        before, self._kernels = self._kernels, kernels
        for kernel_id, kernel in before.items():
            if kernels.get(kernel_id) is not kernel:
                self._add(kernel, -1)
        for kernel_id, kernel in kernels.items():
            if before.get(kernel_id) is not kernel:
                self._add(kernel, 1)

    def _add(self, kernel: KernelStatus, times: int) -> None:
        for part in kernel.devices:
            if part.uuid in self._all:
                self._all[part.uuid].add(part, times)
                self._note_load(kernel.kernel_id, part, times)
                mine = self._owners.setdefault((kernel.owner, part.uuid), _Sums())
                mine.add(part, times)
                if not mine.parts:
                    del self._owners[kernel.owner, part.uuid]

    def _note_load(self, kernel_id: str, part: KernelDeviceStatus, times: int) -> None:
        sums, profile = self._all[part.uuid], profile_of((part,))
        if profile is not None:
            sums.predicted = None
            if times > 0:
                sums.profiles[kernel_id] = profile
            else:
                sums.profiles.pop(kernel_id, None)

    def reports(self, name: str, ledger: LedgerSnapshot = NOTHING_KNOWN) -> list[Device]:
        """Return all devices of the node.

        ``name``: the user whose kernels count as "mine". ``ledger``: the overcommit that teams lower,
        and the model of kernels that share a device.
        """
        nothing, of_node = _Sums(), self.status.oversubscription
        found = []
        for device in self.status.devices:
            mine = self._owners.get((name, device.uuid), nothing)
            report = _device(device, of_node, self._all[device.uuid], mine, ledger.loads.model)
            _lower(report, ledger.team_overcommit.get(device.uuid))
            found.append(report)
        return found


def _lower(report: Device, of_team: float | None) -> None:
    """Lower a device's overcommit to what a team allows, and say so."""
    if of_team is not None and of_team < report["overcommit"]:
        report["overcommit"] = of_team
        report["overcommit_reason"] = f"{A_TEAM_THERE} has overcommit {of_team:g} in the quota file"


def _predicted(of_kernels: _Sums, model: Interference) -> PredictedSpeed | None:
    if of_kernels.predicted is None or of_kernels.predicted[0] is not model:
        speed = model.slowest([*of_kernels.profiles.values()])
        told: PredictedSpeed | None = (
            None if speed is None else {"mean": speed.mean, "low": speed.low, "high": speed.high}
        )
        of_kernels.predicted = model, told
    return of_kernels.predicted[1]


def _device(device: DeviceStatus, of_node: float, of_kernels: _Sums, mine: _Sums, model: Interference) -> Device:
    return {
        "index": device.index,
        "uuid": device.uuid,
        "name": device.name,
        "memory_bytes": device.memory_bytes,
        "reserved_bytes": device.reserved_bytes,
        "reserved_gpus": device.reserved_hundredths / 100,
        "used_bytes": device.used_bytes,
        "mine_bytes": mine.charged,
        "mine_reserved_bytes": mine.reserved,
        "swapped_bytes": of_kernels.swapped,
        "mine_swapped_bytes": mine.swapped,
        "burstable_bytes": of_kernels.burstable,
        "utilization_percent": device.utilization_percent,
        "temperature_celsius": device.temperature_celsius,
        "power_watts": device.power_watts,
        "lost": device.lost,
        "overcommit": of_node if device.overcommit is None else device.overcommit,
        "overcommit_reason": device.overcommit_reason or None,
        "compute_control": control_report(device.compute_control),
        "predicted_speed": _predicted(of_kernels, model),
    }
