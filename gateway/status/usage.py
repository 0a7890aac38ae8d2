"""A kernel's figures, as the REST API has them: pure functions from what was granted and what the agent tells.

Knows no user and no server; report.py decides who may see what it makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jupyter_aliquot.gateway.base.clock import iso
from jupyter_aliquot.gateway.node.view import needed_bytes
from jupyter_aliquot.gateway.relays.activity import Activity
from jupyter_aliquot.gpu_hook.client.reports import HostMemoryStatus, KernelStatus, UnhookedProcess
from jupyter_aliquot.provisioner.resources import Quota

from .compute import compute_report
from .residency import over_quota_bytes, residency_report

Report = dict[str, Any]


def kernel_usage(known: KernelStatus) -> Report:
    """What the agent tells of it."""
    devices = [
        {
            "uuid": device.uuid,
            "index": device.index,
            "gpus": device.hundredths / 100,
            "memory_limit_bytes": device.quota_bytes,
            "guaranteed_memory_bytes": device.quota_bytes if device.guarantee_bytes is None else device.guarantee_bytes,
            "used_bytes": device.charged_bytes,
            "peak_bytes": device.peak_bytes,
            "required_bytes": device.needed_bytes,
            "busy_seconds": device.busy_seconds,
            "context_bytes": device.context_bytes,
            "compute": compute_report(device.compute),
        }
        for device in known.devices
    ]
    return {
        **_sums(devices),
        "failed_allocations": sum(device.refusals for device in known.devices),
        "required_bytes": needed_bytes(known),
        "last_failed_allocation_at": iso(
            max((at for device in known.devices if (at := device.short_at) is not None), default=None)
        ),
        "interception": _control_state(known.interception),
        "enforcement": _control_state(known.enforcement),
        "uncontrolled_processes": [_process(process) for process in known.unhooked_processes],
        "host_memory": _host_memory(known.host_memory),
        "residency": residency_report(known.residency, iso),
        "devices": devices,
    }


def granted_usage(quotas: Sequence[Quota], needed: int | None = None) -> Report:
    """What is left to say while the agent does not answer: what was granted."""
    devices = [
        {
            "uuid": quota.uuid,
            "index": quota.index,
            "gpus": float(quota.share),
            "memory_limit_bytes": int(quota.memory),
            "guaranteed_memory_bytes": int(quota.memory),
            "used_bytes": 0,
            "peak_bytes": 0,
            "required_bytes": None,
            "busy_seconds": 0.0,
            "context_bytes": 0,
            "compute": None,
        }
        for quota in quotas
    ]
    return {
        **_sums(devices),
        "failed_allocations": 0,
        "required_bytes": needed,
        "last_failed_allocation_at": None,
        "interception": "unknown",
        "enforcement": "pending",
        "uncontrolled_processes": [],
        "host_memory": None,
        "residency": None,
        "devices": devices,
    }


def _control_state(state: str) -> str:
    """The agent's ``holds`` is ``active``; its other words stay."""
    return "active" if state == "holds" else state


def _host_memory(host: HostMemoryStatus) -> Report:
    return {
        "limit_bytes": host.quota_bytes,
        "used_bytes": host.charged_bytes,
        "peak_bytes": host.peak_bytes,
        "failed_allocations": host.refusals,
    }


def _process(process: UnhookedProcess) -> Report:
    return {
        "pid": process.pid,
        "name": process.name,
        "index": process.index,
        "used_bytes": process.used_bytes,
        "charged_bytes": process.charged_bytes,
        "why": process.why,
    }


def _sums(devices: Iterable[Mapping[str, Any]]) -> Report:
    names = (
        "memory_limit_bytes",
        "guaranteed_memory_bytes",
        "used_bytes",
        "peak_bytes",
        "busy_seconds",
        "context_bytes",
    )
    listed = list(devices)
    sums: Report = {name: sum(device[name] for device in listed) for name in names}
    return {**sums, "over_limit_bytes": over_quota_bytes(listed)}


def idle_since(activity: Activity | None, known: KernelStatus | None) -> float | None:
    """Since when nothing of it runs; None while something does, and where nobody can tell.

    ``activity``: what its relay tells this server; the agent hears the same, and adds what threads do by themselves.
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
