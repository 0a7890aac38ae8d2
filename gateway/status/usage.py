"""A kernel's figures as the REST API has them: pure, from the grant and the agent's report.

Knows no user and no server; report.py decides which users see the result.
"""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_aliquot.gateway.base.clock import iso
from jupyter_aliquot.gateway.node.view import needed_bytes
from jupyter_aliquot.gateway.relays.activity import Activity
from jupyter_aliquot.gateway.reports.kernel import HostMemory, KernelDevice, UncontrolledProcess, Usage
from jupyter_aliquot.gpu_hook.client.reports import HostMemoryStatus, KernelDeviceStatus, KernelStatus, UnhookedProcess
from jupyter_aliquot.provisioner.resources import Quota

from .compute import compute_report, load_report
from .residency import residency_report


def kernel_usage(
    known: KernelStatus | None, granted: Sequence[Quota] = (), required: int | None = None, *, runs: bool = True
) -> Usage:
    """Return a kernel's figures, from the agent's report.

    Args:
        known: The agent's report; None while it does not answer, and for a kernel that has ended.
        granted: The grant, which is reported while ``known`` is None.
        required: Of a kernel that has ended, the memory limit that would have been enough.
        runs: Its program has started.
    """
    parts = known.devices if known else tuple(map(_granted, granted))
    devices = [_device(part) for part in parts]
    return {
        "memory_limit_bytes": sum(device["memory_limit_bytes"] for device in devices),
        "guaranteed_memory_bytes": sum(device["guaranteed_memory_bytes"] for device in devices),
        "used_bytes": sum(device["used_bytes"] for device in devices),
        "over_limit_bytes": sum(part.beyond_quota_bytes for part in parts),
        "peak_bytes": sum(device["peak_bytes"] for device in devices),
        "busy_seconds": sum(device["busy_seconds"] for device in devices),
        "context_bytes": sum(device["context_bytes"] for device in devices),
        "failed_allocations": sum(part.refusals for part in parts),
        "required_bytes": needed_bytes(known) if known else required,
        "last_failed_allocation_at": iso(
            max((at for part in parts if (at := part.short_at) is not None), default=None)
        ),
        "interception": control_state(known.interception) if known else "unknown",
        "enforcement": control_state(known.enforcement) if known else "pending",
        "uncontrolled_processes": [_process(process) for process in known.unhooked_processes] if known else [],
        "host_memory": _host_memory(known.host_memory) if known else None,
        "residency": residency_report(known.residency, runs=runs) if known else None,
        "devices": devices,
    }


def _device(part: KernelDeviceStatus) -> KernelDevice:
    return {
        "uuid": part.uuid,
        "index": part.index,
        "gpus": part.hundredths / 100,
        "memory_limit_bytes": part.quota_bytes,
        "guaranteed_memory_bytes": part.quota_bytes if part.guarantee_bytes is None else part.guarantee_bytes,
        "used_bytes": part.charged_bytes,
        "peak_bytes": part.peak_bytes,
        "required_bytes": part.needed_bytes,
        "busy_seconds": part.busy_seconds,
        "context_bytes": part.context_bytes,
        "compute": compute_report(part.compute),
        "load": load_report(part.load),
    }


def _granted(quota: Quota) -> KernelDeviceStatus:
    """Return the granted part of a device, with none of it used."""
    return KernelDeviceStatus(
        uuid=quota.uuid,
        index=quota.index,
        hundredths=quota.share.hundredths,
        quota_bytes=int(quota.memory),
        charged_bytes=0,
        lent_bytes=0,
        peak_bytes=0,
        busy_seconds=0.0,
        refusals=0,
    )


def control_state(state: str) -> str:
    """Return ``active`` for the agent's ``holds``; its other words stay."""
    return "active" if state == "holds" else state


def _host_memory(host: HostMemoryStatus) -> HostMemory:
    return {
        "limit_bytes": host.quota_bytes,
        "used_bytes": host.charged_bytes,
        "peak_bytes": host.peak_bytes,
        "failed_allocations": host.refusals,
    }


def _process(process: UnhookedProcess) -> UncontrolledProcess:
    return {
        "pid": process.pid,
        "name": process.name,
        "index": process.index,
        "used_bytes": process.used_bytes,
        "charged_bytes": process.charged_bytes,
        "why": process.why,
    }


def idle_since(activity: Activity | None, known: KernelStatus | None) -> float | None:
    """Return since when the kernel is idle; None while it runs something, or if that is unknown.

    ``activity``: what its relay tells this server. The agent hears the same, and adds what threads
    do by themselves.
    """
    told = None if known is None else known.activity
    residency = None if known is None else known.residency
    if (activity is not None and activity.is_busy) or (told is not None and told.work):
        return None
    if residency is not None and residency.is_busy:
        return None
    moments = (
        None if activity is None else activity.idle_since,
        None if told is None else told.since,
        None if residency is None else residency.idle_since,
    )
    return max((moment for moment in moments if moment is not None), default=None)
