"""Compute a kernel's part of its host in proportion to its GPUs. Pure: node totals are arguments.

Philly gave each job CPU and memory in proportion to its GPUs, so that no job strands GPUs by taking
all of the host.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from jupyter_aliquot.provisioner.errors import RequestError
from jupyter_aliquot.provisioner.resources import NO_HOST_PART, Bytes, GpuShare, HostPart

from .plan import SMALLEST_MEMORY, ContainerLimits

_MIB = 1 << 20
_GIB = Bytes(1 << 30)
_DEFAULT_SHM = Bytes(64 << 20)
_NOT_SET = Bytes(0)


@dataclass(frozen=True)
class NodeTotals:
    """The CPUs, memory and GPUs of the whole node."""

    memory: Bytes
    cpus: int
    gpus: int


@dataclass(frozen=True)
class SizeRules:
    """The rules of one size: what its kernels get, and the most that users may choose. 0: as for all sizes."""

    cpus: float = 0.0
    memory: Bytes = _NOT_SET
    most_cpus: float = 0.0
    most_memory: Bytes = _NOT_SET


_AS_FOR_ALL = SizeRules()


@dataclass(frozen=True)
class CpuChoice:
    """The CPUs that a user may choose for a kernel; ``by_default`` without a choice."""

    least: float
    most: float
    by_default: float


@dataclass(frozen=True)
class MemoryChoice:
    """The memory of the host that a user may choose for a kernel; ``by_default`` without a choice."""

    least: Bytes
    most: Bytes
    by_default: Bytes


@dataclass(frozen=True)
class LimitRules:
    """The administrator's rules. ``fixed_…`` win over the proportion; 0 means that none is set.

    ``most_…`` are the most that users may choose; 0: they choose none. ``sizes`` are rules of single
    sizes, by hundredths of a GPU.

    ``memory_fraction`` and ``cpu_fraction`` are the parts that all kernels of the node may have
    together when its GPUs are handed out in full. The rest belongs to the system, the gateway, and
    the agent's copies of swapped memory.
    """

    memory_fraction: float = 0.8
    cpu_fraction: float = 0.9
    floor_memory: Bytes = _GIB
    floor_cpus: float = 0.5
    fixed_memory: Bytes = _NOT_SET
    fixed_cpus: float = 0.0
    pids: int = 1024
    shm: Bytes = _DEFAULT_SHM
    most_cpus: float = 0.0
    most_memory: Bytes = _NOT_SET
    sizes: tuple[tuple[int, SizeRules], ...] = ()

    def of_size(self, share: GpuShare | None) -> SizeRules:
        """Return the rules of this size alone."""
        return _AS_FOR_ALL if share is None else dict(self.sizes).get(share.hundredths, _AS_FOR_ALL)

    def __post_init__(self) -> None:
        for what, fraction in (("memory_fraction", self.memory_fraction), ("cpu_fraction", self.cpu_fraction)):
            if not 0 < fraction <= 1:
                raise RequestError(
                    f"{what} is {fraction:g}, which is not a part of the node. Use a number above 0 and at most 1"
                )


def limits_for(
    share: GpuShare | None, node: NodeTotals | None, rules: LimitRules, host: HostPart = NO_HOST_PART
) -> ContainerLimits:
    """Return the limits of a kernel with ``share`` of the node's GPUs; without GPUs, the floor.

    ``node`` is None for a kernel on a machine whose totals are not known, as those of a cluster. There is no
    proportion then: it has what is fixed, else the floor where users may choose, else no limit of ours.

    ``host`` is what its user chose: the nearest that the rules allow is given, since they may have
    changed after the choice.

    Raises RequestError for a node on which no kernel could run.
    """
    limits = _size_limits(share, node, rules)
    memory, cpus = memory_choice(share, node, rules), cpu_choice(share, node, rules)
    if host.memory is not None and memory is not None:
        limits = replace(limits, memory=min(max(host.memory, memory.least), memory.most))
    if host.cpus is not None and cpus is not None:
        limits = replace(limits, cpus=min(max(host.cpus, cpus.least), cpus.most))
    return limits


def cpu_choice(share: GpuShare | None, node: NodeTotals | None, rules: LimitRules) -> CpuChoice | None:
    """Return the CPUs that a kernel of this size may have; None where its user chooses none."""
    by_default = _size_limits(share, node, rules).cpus or 0.0
    most = rules.of_size(share).most_cpus or rules.most_cpus
    if not most:
        return None
    least = min(rules.floor_cpus, by_default)
    return CpuChoice(least, max(most if node is None else min(most, float(node.cpus)), by_default), by_default)


def memory_choice(share: GpuShare | None, node: NodeTotals | None, rules: LimitRules) -> MemoryChoice | None:
    """Return the memory of the host that a kernel of this size may have; None where its user chooses none."""
    by_default = _size_limits(share, node, rules).memory or _NOT_SET
    most = rules.of_size(share).most_memory or rules.most_memory
    if not most:
        return None
    least = min(rules.floor_memory, by_default)
    return MemoryChoice(least, max(most if node is None else min(most, node.memory), by_default), by_default)


def _limits_anywhere(share: GpuShare | None, rules: LimitRules) -> ContainerLimits:
    own = rules.of_size(share)
    memory = own.memory or rules.fixed_memory or (rules.floor_memory if own.most_memory or rules.most_memory else None)
    cpus = own.cpus or rules.fixed_cpus or (rules.floor_cpus if own.most_cpus or rules.most_cpus else None)
    return ContainerLimits(memory, cpus)


def _size_limits(share: GpuShare | None, node: NodeTotals | None, rules: LimitRules) -> ContainerLimits:
    if node is None:
        return _limits_anywhere(share, rules)
    part = 0.0 if share is None else min(1.0, float(share) / max(1, node.gpus))
    own = rules.of_size(share)
    fixed_memory, fixed_cpus = own.memory or rules.fixed_memory, own.cpus or rules.fixed_cpus
    memory = fixed_memory or max(rules.floor_memory, Bytes(node.memory * rules.memory_fraction * part))
    cpus = fixed_cpus or max(rules.floor_cpus, node.cpus * rules.cpu_fraction * part)
    if node.memory < SMALLEST_MEMORY or node.cpus < 1:
        raise RequestError(
            f"Requested limits on a node of {node.memory} and {node.cpus} CPUs, which is too small "
            "for any kernel. Use a larger node"
        )
    memory = min(memory, node.memory)
    return ContainerLimits(
        memory=Bytes(memory // _MIB * _MIB),
        cpus=round(min(cpus, float(node.cpus)), 2),
        pids=rules.pids,
        shm=rules.shm,
    )
