"""Compute a kernel's part of its host in proportion to its GPUs. Pure: node totals are arguments.

Philly gave each job CPU and memory in proportion to its GPUs, so that no job strands GPUs by taking
all of the host.
"""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_aliquot.provisioner.errors import RequestError
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare

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
class LimitRules:
    """The administrator's rules. ``fixed_…`` win over the proportion; 0 means that none is set.

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

    def __post_init__(self) -> None:
        for what, fraction in (("memory_fraction", self.memory_fraction), ("cpu_fraction", self.cpu_fraction)):
            if not 0 < fraction <= 1:
                raise RequestError(
                    f"{what} is {fraction:g}, which is not a part of the node. Use a number above 0 and at most 1"
                )


def limits_for(share: GpuShare | None, node: NodeTotals, rules: LimitRules) -> ContainerLimits:
    """Return the limits of a kernel with ``share`` of the node's GPUs; without GPUs, the floor.

    Raises RequestError for a node on which no kernel could run.
    """
    part = 0.0 if share is None else min(1.0, float(share) / max(1, node.gpus))
    memory = rules.fixed_memory or max(rules.floor_memory, Bytes(node.memory * rules.memory_fraction * part))
    cpus = rules.fixed_cpus or max(rules.floor_cpus, node.cpus * rules.cpu_fraction * part)
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
