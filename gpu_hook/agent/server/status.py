"""The agent's status and grants as JSON objects. This module reads, and changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from jupyter_aliquot.gpu_hook.agent.compute.loop import ComputeKeeper
from jupyter_aliquot.gpu_hook.agent.devices.audit import Finding, Findings
from jupyter_aliquot.gpu_hook.agent.devices.devices import DeviceReading
from jupyter_aliquot.gpu_hook.agent.devices.libraries import Libraries, audit_is_cheap
from jupyter_aliquot.gpu_hook.agent.enforcers.enforcement import Enforcement
from jupyter_aliquot.gpu_hook.agent.kernels.kernel import Kernel, KernelReading
from jupyter_aliquot.gpu_hook.agent.ledger.journal import Reservation
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import Ledger
from jupyter_aliquot.gpu_hook.agent.swap.facts import swapped_by_device
from jupyter_aliquot.gpu_hook.agent.swap.residency import SAVED
from jupyter_aliquot.gpu_hook.paths import Driver
from jupyter_aliquot.gpu_hook.placement.overcommit import Reserved


@dataclass(frozen=True)
class DeviceUses:
    """The bytes of the devices in use: ``charged`` by the hooks, by uuid, and ``used`` of all of a device."""

    charged: Mapping[str, int]
    used: Callable[[DeviceReading], int]

    def describe(self, reading: DeviceReading) -> dict[str, int]:
        return {"used_bytes": self.used(reading), "charged_bytes": self.charged.get(reading.facts.uuid, 0)}


def describe_devices(
    ledger: Ledger,
    readings: Iterable[DeviceReading],
    uses: DeviceUses | None,
    compute: ComputeKeeper,
    overcommit_reasons: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Return one object a device.

    A device that NVML did not see this time is lost. ``uses`` is None where the answer leaves out
    the bytes in use. ``overcommit_reasons`` say why a device is not overcommitted further, by uuid.
    """
    seen = {reading.facts.uuid: reading for reading in readings}
    result = []
    for facts in ledger.devices:
        reading = seen.get(facts.uuid, DeviceReading(facts, is_lost=True))
        result.append(
            {
                "index": facts.index,
                "uuid": facts.uuid,
                "name": facts.name,
                "memory_bytes": facts.memory_bytes,
                **_describe_reserved(ledger.reserved(facts.uuid)),
                "overcommit": ledger.oversubscription.most_of(facts.uuid),
                "overcommit_reason": overcommit_reasons.get(facts.uuid, ""),
                **({} if uses is None else uses.describe(reading)),
                "context_bytes": ledger.contexts.measured(facts.uuid),
                "utilization_percent": reading.utilization_percent,
                "temperature_celsius": reading.temperature_celsius,
                "power_watts": reading.power_watts,
                "compute_mode": reading.compute_mode,
                "persistent": reading.is_persistent,
                "lost": ledger.is_lost(facts.uuid) or reading.is_lost,
                "domain": reading.domain,
                "compute_control": compute.describe_device(facts.uuid),
            }
        )
    return result


def _describe_reserved(reserved: Reserved) -> dict[str, Any]:
    return {
        "reserved_bytes": reserved.bytes,
        "reserved_hundredths": reserved.hundredths,
        "reserved_by_production": {
            "bytes": reserved.production_bytes,
            "hundredths": reserved.production_hundredths,
        },
        "reserved_kept_bytes": reserved.kept_bytes,
        "reserved_kernels": reserved.kernels,
    }


def describe_finding(finding: Finding) -> dict[str, Any]:
    """Describe a process with memory that no hook charged."""
    return asdict(finding)


def describe_lost(reservation: Reservation) -> dict[str, Any]:
    """Describe a kernel that ended with the machine."""
    return {"kernel_id": reservation.kernel_id, "owner": reservation.owner, "label": reservation.label}


def describe_kernel(
    kernel: Kernel, reading: KernelReading, found: Findings, enforcement: Enforcement, compute: ComputeKeeper
) -> dict[str, Any]:
    """Describe a kernel by one reading, except where its memory is and its wait.

    The lease keeper knows these.
    """
    reservation = kernel.reservation
    return {
        "kernel_id": reservation.kernel_id,
        "owner": reservation.owner,
        "label": reservation.label,
        "hundredths": reservation.hundredths,
        "memory_limit": reservation.memory_limit,
        "workload_class": reservation.workload_class,
        "residency_mode": reservation.residency,
        "generation": reservation.generation,
        "attributes": reservation.attributes,
        "created": reservation.created,
        "interception": kernel.interception,
        "absolute_paths": kernel.absolute_paths,
        "pids": kernel.pids,
        "activity": None if kernel.activity is None else asdict(kernel.activity),
        "ending": kernel.is_ending,
        "enforcement": enforcement.state_of(reservation.kernel_id),
        "limit_drifts": enforcement.drifts_of(reservation.kernel_id),
        "host_memory": _describe_host_memory(kernel),
        "unhooked_processes": [describe_finding(s) for s in found.unhooked.get(reservation.kernel_id, ())],
        "devices": _describe_parts(kernel, reading, found, compute),
    }


def _describe_parts(
    kernel: Kernel, reading: KernelReading, found: Findings, compute: ComputeKeeper
) -> list[dict[str, Any]]:
    away = swapped_by_device(reading.facts)
    # Charged memory in the host hides a context from the audit; a checkpoint takes contexts along.
    is_saved = reading.facts.state in SAVED
    return [
        {
            "uuid": account.part.uuid,
            "index": account.part.index,
            "hundredths": account.part.hundredths,
            "quota_bytes": account.part.quota_bytes,
            "guarantee_bytes": account.part.reserved_bytes,
            **use.describe(),
            "swapped_bytes": away.get(account.part.uuid, 0),
            "lent_bytes": account.lent,
            # Contexts count against the quota, so a kernel may be over it with fewer charged bytes.
            "over_bytes": max(0, use.charged_bytes + account.context_bytes - account.quota_bytes),
            "needed_bytes": needed,
            "short_at": short_at,
            "context_bytes": max(
                found.contexts.get((kernel.kernel_id, account.part.uuid), 0),
                account.context_bytes if away.get(account.part.uuid, 0) and not is_saved else 0,
            ),
            "busy_seconds": round(use.busy_seconds, 6),
            "load": None if use.load is None else vars(use.load),
            "compute": compute.describe(kernel.kernel_id, account.part.uuid),
        }
        for account, use, (needed, short_at) in zip(kernel.accounts, reading.uses, kernel.needs(), strict=True)
    ]


def _describe_host_memory(kernel: Kernel) -> dict[str, Any]:
    return {
        "quota_bytes": kernel.host_quota_bytes,
        "lent_bytes": kernel.host_account.lent,
        **kernel.report_host().describe(),
    }


def describe_grant(
    kernel: Kernel, node: str, driver: Driver, libraries: Libraries, more_env: Mapping[str, str]
) -> dict[str, Any]:
    """Return the variables of a kernel's process. CUDA numbers the devices in their order."""
    reservation = kernel.reservation
    uuids = ",".join(part.uuid for part in reservation.parts)
    return {
        "kernel_id": reservation.kernel_id,
        "owner": reservation.owner,
        "generation": reservation.generation,
        "node": node,
        "hundredths": reservation.hundredths,
        "memory_limit": reservation.memory_limit,
        "workload_class": reservation.workload_class,
        "devices": [
            {
                "uuid": part.uuid,
                "index": part.index,
                "hundredths": part.hundredths,
                "quota_bytes": part.quota_bytes,
                "guarantee_bytes": part.reserved_bytes,
            }
            for part in reservation.parts
        ],
        "kernel_dir": os.fspath(kernel.folder),
        "env": {
            "LD_LIBRARY_PATH_PREPEND": os.fspath(libraries.shim),
            **({"LD_AUDIT_PREPEND": os.fspath(libraries.audit)} if audit_is_cheap() else {}),
            "CUDA_VISIBLE_DEVICES": uuids,
            "ALIQUOT_VISIBLE_DEVICES": uuids,
            "ALIQUOT_KERNEL_DIR": os.fspath(kernel.folder),
            "ALIQUOT_REAL_CUDA": os.fspath(driver.cuda),
            "ALIQUOT_REAL_NVML": os.fspath(driver.nvml),
            **more_env,
        },
    }


def describe_oversubscription(ledger: Ledger) -> dict[str, Any]:
    """Describe the overcommit, so that a planner gets the agent's own answer.

    ``host_bytes_left`` is for reservations beyond the devices.
    """
    rule, host = ledger.oversubscription, ledger.host_room()
    return {
        "production": rule.production,
        "opportunistic": rule.opportunistic,
        "host_bytes": ledger.host_budget_bytes(),
        "host_bytes_left": None if host is None else host.left_bytes,
        "largest_kernel_bytes": ledger.largest_kernel_bytes,
        "ceilings": dict(rule.ceilings),
    }


def most_overcommitted(ledger: Ledger) -> float:
    """Return the largest ratio of a device; 1 where there is none."""
    return max((ledger.oversubscription.most_of(facts.uuid) for facts in ledger.devices), default=1.0)
