"""The report of holders: one pure function from a snapshot to what administrators see.

It decides which kernels are the most idle, and counts what each user holds without use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from heapq import nlargest

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.clock import iso_moment
from jupyter_aliquot.gateway.reports.holders import HolderKernel, Holders, HolderUser, HostUse
from jupyter_aliquot.gateway.reports.kernel import Kernel
from jupyter_aliquot.gateway.scheduling.lending.team_quotas import TeamQuotas
from jupyter_aliquot.gateway.status.nodes import nodes_report
from jupyter_aliquot.gateway.status.report import StatusSnapshot, kernel_reports, node_report

MOST_IDLE = 10
# Kernels in these states have a part of a device, which others cannot have.
_HOLDING = ("starting", "on_gpu", "restoring", "swapped_out", "checkpointed")


def holders_report(snapshot: StatusSnapshot, who: User, host: Mapping[str, HostUse], now: float) -> Holders:
    """Return the answer of GET /aliquot/api/v1/holders.

    Args:
        snapshot: All that the server knows.
        who: The administrator.
        host: CPU and RAM of kernels, by id.
        now: Seconds since the epoch.
    """
    status, team_of = snapshot.node.status, _teams(snapshot)
    kernels = [
        _kernel(report, team_of.get(report["id"]), host.get(report["id"]), now)
        for report in kernel_reports(snapshot, who, 0)
        if report["state"] != "ended"
    ]
    return {
        "at": iso_moment(now),
        "node": node_report(snapshot),
        "nodes": nodes_report(snapshot.nodes, who.name, snapshot.memo, snapshot.cordons, snapshot.ledger),
        "devices": snapshot.memo.devices(status).reports(who.name, snapshot.ledger) if status else [],
        "kernels": kernels,
        "users": _users(snapshot, kernels),
        "most_idle": [kernel["id"] for kernel in most_idle(kernels)],
    }


def most_idle(kernels: Iterable[HolderKernel]) -> list[HolderKernel]:
    """Return the kernels that hold most GPU time without use: GPUs times idle seconds.

    A swapped-out kernel is one of them, for its share of a GPU is still reserved.
    """
    idle = (one for one in kernels if one["state"] in _HOLDING and one["gpus"] and one["idle_seconds"])
    return nlargest(MOST_IDLE, idle, key=lambda one: one["gpus"] * (one["idle_seconds"] or 0.0))


def _teams(snapshot: StatusSnapshot) -> dict[str, str]:
    """Return the team of the quota file by kernel id; empty where no file is in force."""
    quotas = TeamQuotas.of(snapshot.ledger)
    if quotas is None:
        return {}
    owners = {one: (held.grant.owner, held.requester.teams) for one, held in snapshot.ledger.holdings.items()}
    owners |= {one.kernel_id: (one.owner, one.teams) for one in snapshot.pending}
    found = {one: quotas.team_of(owner, groups) for one, (owner, groups) in owners.items()}
    return {one: team for one, team in found.items() if team}


def _kernel(report: Kernel, team: str | None, host: HostUse | None, now: float) -> HolderKernel:
    residency, since = report["residency"], report["idle_since"]
    return {
        "id": report["id"],
        "name": report["name"],
        "owner": report["owner"],
        "team": team,
        "label": report["label"],
        "gpus": report["gpus"],
        "priority": report["priority"],
        "state": report["state"],
        "reason": report["reason"],
        "devices": [device["index"] for device in report["devices"]],
        "gpus_used": _gpus_used(report),
        "memory_limit_bytes": report["memory_limit_bytes"],
        "used_bytes": report["used_bytes"],
        "swapped_bytes": 0 if residency is None else residency["swapped_bytes"],
        "execution_state": report["execution_state"],
        "created": report["created"],
        "idle_seconds": None
        if since is None
        else max(0.0, now - datetime.fromisoformat(f"{since[:-1]}+00:00").timestamp()),
        "host": host,
    }


def _gpus_used(report: Kernel) -> float | None:
    told = [part["compute"]["share_used"] for part in report["devices"] if part["compute"] is not None]
    return _sum(told)


def _sum(amounts: Iterable[float | None]) -> float | None:
    """Return the sum of the amounts that are known; None if none is."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def _users(snapshot: StatusSnapshot, kernels: Iterable[HolderKernel]) -> list[HolderUser]:
    owned: dict[str, list[HolderKernel]] = {}
    for kernel in kernels:
        owned.setdefault(kernel["owner"], []).append(kernel)
    queued: dict[str, float] = {}
    for one in snapshot.pending:
        held = 0 if one.held is None else sum(part.hundredths for part in one.held.parts)
        queued[one.owner] = queued.get(one.owner, 0.0) + max(0, one.request.gpus.hundredths - held) / 100
    return [_user(snapshot, name, owned[name], queued.get(name, 0.0)) for name in sorted(owned)]


def _user(snapshot: StatusSnapshot, name: str, kernels: list[HolderKernel], queued: float) -> HolderUser:
    limit = snapshot.caps.of_user(name)
    holding = [one for one in kernels if one["state"] in _HOLDING]
    held = round(sum(one["gpus"] for one in holding), 2)
    idle = round(sum(one["gpus"] for one in holding if one["idle_seconds"] is not None), 2)
    host = [one["host"] for one in kernels if one["host"] is not None]
    return {
        "name": name,
        "teams": sorted({one["team"] for one in kernels if one["team"] is not None}),
        "kernels": len(kernels),
        "gpus": held,
        "queued_gpus": round(queued, 2),
        "gpu_limit": None if limit is None else float(limit),
        "gpus_used": _sum(one["gpus_used"] for one in kernels),
        "idle_gpus": idle,
        "idle_share": min(1.0, idle / held) if held else None,
        "used_bytes": sum(one["used_bytes"] for one in kernels),
        "cpus": _sum(one["cpus"] for one in host),
        "host_memory_bytes": sum(one["memory_bytes"] for one in host) if host else None,
    }
