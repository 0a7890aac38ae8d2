"""The report of a node's cordon, and of the kernels that leave or stay when it is drained. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from jupyter_aliquot.gateway.base.clock import iso_moment
from jupyter_aliquot.gateway.reports import status as reports
from jupyter_aliquot.gateway.scheduling.cordons import Cordon
from jupyter_aliquot.gateway.scheduling.ledger import Holding, LedgerSnapshot
from jupyter_aliquot.gpu_hook.client.reports import KernelStatus, NodeStatus

_OTHERS = "another program of that machine has it, and the gateway cannot have it leave"
_RELEASED = "it was released, but a process of it keeps memory: end that process"
_NO_COPY = "the host has no memory for its copy now; it is tried again"
_NO_LABELS: Mapping[str, str] = MappingProxyType({})
_NO_EVICTION = "the node agent is of a version that evicts no kernels"


def cordon_report(cordon: Cordon | None) -> reports.Cordon | None:
    """Return a cordon as every user sees it."""
    if cordon is None:
        return None
    return {"since": iso_moment(cordon.since), "reason": cordon.reason or None, "draining": cordon.is_draining}


def node_schedule(
    name: str,
    cordon: Cordon | None,
    status: NodeStatus | None,
    ledger: LedgerSnapshot | None,
    labels: Mapping[str, str] = _NO_LABELS,
) -> reports.NodeSchedule:
    """Return the report for administrators.

    ``status`` is the last report of the node's agent. ``ledger`` is None for a node on which the
    gateway starts no kernels. ``labels`` are the present names of notebooks by kernel id.
    """
    holdings = {} if ledger is None else _there(name, ledger)
    known = {} if status is None else {one.kernel_id: one for one in status.kernels}
    own = [_own(ledger, one, known, labels) for one in holdings.values() if ledger is not None]
    ending = {} if ledger is None else ledger.ending
    others = [_other(one, one.kernel_id in ending) for one in known.values() if one.kernel_id not in holdings]
    return {
        "name": name,
        "cordon": cordon_report(cordon),
        "cordoned_by": None if cordon is None else cordon.by or None,
        "kernels": sorted([*own, *others], key=lambda one: (_ORDER[one["state"]], one["owner"], one["kernel_id"])),
    }


def device_schedule(
    uuid: str,
    cordon: Cordon | None,
    status: NodeStatus | None,
    ledger: LedgerSnapshot,
    labels: Mapping[str, str] = _NO_LABELS,
) -> reports.NodeSchedule:
    """Return the report of one device: its cordon, and the kernels that have a part of it."""
    held = {one for one, holding in ledger.holdings.items() if any(q.uuid == uuid for q in holding.grant.quotas)}
    listed = () if status is None else status.kernels
    told = {one.kernel_id for one in listed if any(device.uuid == uuid for device in one.devices)}
    node = next((one.name for one in ledger.others if any(d.uuid == uuid for d in one.devices)), ledger.node.name)
    found = node_schedule(node, cordon, status, ledger, labels)
    found["name"], found["kernels"] = uuid, [one for one in found["kernels"] if one["kernel_id"] in held | told]
    return found


# First those that an administrator has to look at.
_ORDER: Mapping[str, int] = {"stays": 0, "leaving": 1, "runs": 2, "evicted": 3}


def _there(name: str, ledger: LedgerSnapshot) -> Mapping[str, Holding]:
    """Return the grants on a node."""
    others = {one.name for one in ledger.others}
    if name in others:
        return {one: held for one, held in ledger.holdings.items() if held.grant.node == name}
    return {one: held for one, held in ledger.holdings.items() if held.grant.node not in others}


def _own(
    ledger: LedgerSnapshot, holding: Holding, known: Mapping[str, KernelStatus], labels: Mapping[str, str]
) -> reports.NodeKernel:
    state, reason = _state(ledger, holding)
    kernel_id = holding.grant.kernel_id
    at_agent = known[kernel_id].label if kernel_id in known else ""
    label = labels.get(kernel_id) or holding.requester.label or at_agent
    return _kernel(kernel_id, holding.grant.owner, label, state, reason)


def _state(ledger: LedgerSnapshot, holding: Holding) -> tuple[str, str]:
    if holding.is_evicted:
        return "evicted", ""
    if holding.is_leaving:
        leaving = (ledger.node_of(holding.grant).leaving or {}).get(holding.grant.kernel_id)
        return "leaving", "" if leaving is None else leaving.refusal
    if holding.stays_because or holding.is_spared:
        return "stays", holding.stays_because or _NO_COPY
    node = ledger.node_of(holding.grant)
    cordon = ledger.cordon_of(node)
    is_going = not ledger.leaving_devices.isdisjoint(quota.uuid for quota in holding.grant.quotas)
    if (is_going or (cordon is not None and cordon.is_draining)) and not node.can_evict:
        return "stays", _NO_EVICTION
    return "runs", ""


def _other(kernel: KernelStatus, is_released: bool) -> reports.NodeKernel:
    """Return the row of a kernel that the gateway's ledger has not, or no more."""
    reason = _RELEASED if is_released or kernel.ending else _OTHERS
    return _kernel(kernel.kernel_id, kernel.owner, kernel.label, "stays", reason)


def _kernel(kernel_id: str, owner: str, label: str, state: str, reason: str) -> reports.NodeKernel:
    return {"kernel_id": kernel_id, "owner": owner, "label": label, "state": state, "reason": reason or None}


def known_nodes(local: str, others: Iterable[str], cordoned: Iterable[str]) -> list[str]:
    """Return the names of nodes that can be cordoned: those there are, and those that are cordoned already."""
    return sorted({local, *others, *cordoned} - {""})
