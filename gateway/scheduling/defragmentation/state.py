"""The nodes as the planner of moves sees them, from the ledger and the agents' status. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jupyter_aliquot.gateway.planning.moves import Gpu, NodeGpus, Resident
from jupyter_aliquot.gateway.scheduling.ledger import Device, Holding, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.resize import held_of
from jupyter_aliquot.gpu_hook.client.reports import KernelStatus, NodeStatus
from jupyter_aliquot.provisioner.resources import WorkloadClass

_OTHERS = "another program of that machine has it"
_OLD_AGENT = "its node agent is of a version that moves no kernels"
_MANY = "it is on more than one GPU"
_UNKNOWN = "its node agent has not told of it yet"


def open_nodes(ledger: LedgerSnapshot, statuses: Iterable[NodeStatus], name: str = "") -> tuple[NodeGpus, ...]:
    """Return the nodes on which kernels start now; with *name*, that one alone."""
    told = {status.node: status for status in statuses}
    nodes = (one for one in ledger.nodes if one.name and name in ("", one.name))
    return tuple(
        _node(ledger, node, told.get(node.name))
        for node in nodes
        if not node.is_away and ledger.cordon_of(node) is None
    )


def _node(ledger: LedgerSnapshot, node: Node, status: NodeStatus | None) -> NodeGpus:
    holdings = {held.grant.kernel_id: held for held in ledger.holdings.values() if ledger.node_of(held.grant) is node}
    known = {} if status is None else {kernel.kernel_id: kernel for kernel in status.kernels}
    own = [_own(held, known.get(kernel_id)) for kernel_id, held in holdings.items() if not held.is_evicted]
    others = [_other(kernel) for kernel_id, kernel in known.items() if kernel_id not in holdings]
    residents = sorted([*own, *others], key=lambda one: one.kernel_id)
    gpus = tuple(_gpu(device, ledger) for device in node.devices)
    return NodeGpus(node.name, gpus, tuple(residents), node.rule)


def _gpu(device: Device, ledger: LedgerSnapshot) -> Gpu:
    is_closed = device.is_lost or device.uuid in ledger.cordons or device.uuid in ledger.leaving_devices
    return Gpu(
        device.uuid,
        device.index,
        device.name,
        int(device.memory),
        device.all_reserved,
        int(device.context),
        is_closed,
    )


def _own(holding: Holding, kernel: KernelStatus | None) -> Resident:
    grant = holding.grant
    is_normal = grant.request.workload_class is WorkloadClass.PRODUCTION
    return Resident(grant.kernel_id, held_of(grant).parts, is_normal, _bytes(kernel), _why_it_stays(holding, kernel))


def _other(kernel: KernelStatus) -> Resident:
    """Return a kernel that this gateway did not start. The agent counts what it reserved."""
    return Resident(kernel.kernel_id, (), stays_because=_OTHERS)


def _bytes(kernel: KernelStatus | None) -> int:
    return 0 if kernel is None else sum(device.charged_bytes + device.context_bytes for device in kernel.devices)


def _why_it_stays(holding: Holding, kernel: KernelStatus | None) -> str:
    if len(holding.grant.quotas) != 1:
        return _MANY
    if holding.doubt is not None:
        return holding.doubt
    if holding.leaves_for or holding.is_ended:
        return "it leaves its GPU"
    if kernel is None:
        return _UNKNOWN
    if [device.uuid for device in kernel.devices] != [quota.uuid for quota in holding.grant.quotas]:
        return _UNKNOWN
    told = None if kernel.residency is None else kernel.residency.immovable_because
    return _OLD_AGENT if told is None else told


def owners(ledger: LedgerSnapshot, labels: Mapping[str, str]) -> Mapping[str, tuple[str, str]]:
    """Return the owner and the label of each kernel of this gateway; *labels* are the present ones of notebooks."""
    holdings = ledger.holdings.items()
    return {one: (held.grant.owner, labels.get(one) or held.requester.label) for one, held in holdings}
