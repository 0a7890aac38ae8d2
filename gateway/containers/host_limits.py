"""The settings of a kernel's part of its host: memory and CPUs in proportion to the GPU share.

``provisioner.containers.limits`` computes a kernel's limits from them.
"""

from __future__ import annotations

import os
from typing import Any

from traitlets import Bool, Dict, Float, Int, TraitError, Unicode, validate
from traitlets.config import Configurable

from jupyter_aliquot.gateway.base.fields import Entry
from jupyter_aliquot.provisioner.containers.limits import LimitRules, NodeTotals, SizeRules
from jupyter_aliquot.provisioner.containers.plan import SMALLEST_MEMORY
from jupyter_aliquot.provisioner.errors import RequestError
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare


class HostLimits(Configurable):
    """The limits on their host of kernels in containers and of owners' kernels.

    An image's entry may set others. Kernels on other nodes, as pods, have no part in proportion: they get
    `fixed_memory` and `fixed_cpus`, or those of their size; else the floors where users may choose; else no
    limit but the namespace's.
    """

    memory_fraction = Float(
        0.8, help="Part of the host's memory that kernels have together when all GPUs are handed out; each its share."
    ).tag(config=True)
    cpu_fraction = Float(0.9, help="The same for the host's CPUs.").tag(config=True)
    floor_memory = Unicode("1GiB", help="The least memory of a kernel, and what one without a GPU gets.").tag(
        config=True
    )
    floor_cpus = Float(0.5, help="The least number of CPUs, and what one without a GPU gets.").tag(config=True)
    fixed_memory = Unicode(
        "",
        help="Memory of every kernel, whatever its share; empty for the proportion. Pods have no proportion: without "
        "this they get the floor where users may choose, else no limit but their namespace's; so with CPUs.",
    ).tag(config=True)
    fixed_cpus = Float(0.0, help="CPUs of every kernel, whatever its share; 0 for the proportion.").tag(config=True)
    most_cpus = Float(
        0.0, help="The most CPUs that users may choose for a kernel, from floor_cpus on; 0: they choose none."
    ).tag(config=True)
    most_memory = Unicode(
        "",
        help="The most memory that users may choose for a kernel, from floor_memory on, such as 64GiB; empty: they "
        "choose none.",
    ).tag(config=True)
    sizes = Dict(
        help="Other values for single sizes: {'0.25': {'cpus': 2, 'memory': '8GiB', 'most_cpus': 4, 'most_memory': "
        "'16GiB'}}. cpus and memory are what a kernel of the size gets unless its user chooses."
    ).tag(config=True)
    pids = Int(1024, help="How many processes and threads a kernel may have.").tag(config=True)
    shm = Unicode("64MiB", help="Size of /dev/shm of a kernel.").tag(config=True)

    processes = Bool(
        True,
        help="Whether kernels that run as their owners have a control group, too: their memory is bounded so, and CPUs "
        "are shared in this proportion while kernels compete for them.",
    ).tag(config=True)

    def rules(self) -> LimitRules:
        """Return the settings as one value."""
        return LimitRules(
            memory_fraction=self.memory_fraction,
            cpu_fraction=self.cpu_fraction,
            floor_memory=Bytes.parse(self.floor_memory),
            floor_cpus=self.floor_cpus,
            fixed_memory=Bytes.parse(self.fixed_memory) if self.fixed_memory else Bytes(0),
            fixed_cpus=self.fixed_cpus,
            pids=self.pids,
            shm=Bytes.parse(self.shm),
            most_cpus=self.most_cpus,
            most_memory=Bytes.parse(self.most_memory) if self.most_memory else Bytes(0),
            sizes=tuple(sorted((_share(size), _size_rules(size, rules)) for size, rules in self.sizes.items())),
        )

    @validate("memory_fraction", "cpu_fraction")
    def _is_a_fraction(self, proposal: dict[str, Any]) -> float:
        if not 0 < proposal["value"] <= 1:
            raise _refused(proposal, "a number above 0 and at most 1")
        return float(proposal["value"])

    @validate("sizes")
    def _are_sizes(self, proposal: dict[str, Any]) -> dict[str, Any]:
        for size, rules in proposal["value"].items():
            try:
                _share(size)
                _size_rules(size, rules)
            except (RequestError, ValueError) as error:
                raise TraitError(f"c.HostLimits.sizes: {error}") from None
        return dict(proposal["value"])

    @validate("floor_memory", "fixed_memory", "most_memory", "shm")
    def _is_an_amount(self, proposal: dict[str, Any]) -> str:
        name, text = proposal["trait"].name, str(proposal["value"])
        least = Bytes(1 << 20) if name == "shm" else SMALLEST_MEMORY
        try:
            enough = (name in ("fixed_memory", "most_memory") and not text) or Bytes.parse(text) >= least
        except ValueError:
            enough = False
        if not enough:
            raise _refused(proposal, f"an amount of memory of {least} or more, such as 4GiB")
        return text

    @validate("floor_cpus", "fixed_cpus", "most_cpus")
    def _are_cpus(self, proposal: dict[str, Any]) -> float:
        none_is_right = proposal["trait"].name != "floor_cpus" and proposal["value"] == 0
        if not none_is_right and not 0.01 <= proposal["value"] < 100_000:
            raise _refused(proposal, "a number of CPUs of 0.01 or more")
        return float(proposal["value"])

    @validate("pids")
    def _are_processes(self, proposal: dict[str, Any]) -> int:
        if proposal["value"] < 16:
            raise _refused(proposal, "16 or more: a kernel alone has about 10 threads")
        return int(proposal["value"])


def node_totals(gpus: int) -> NodeTotals:
    """Return the memory and CPUs of this machine, with the agent's number of GPUs."""
    memory = Bytes(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return NodeTotals(memory, os.cpu_count() or 1, gpus)


def _share(size: object) -> int:
    """Return a size's hundredths of a GPU. Raises ValueError."""
    return GpuShare.parse(str(size)).hundredths


def _size_rules(size: object, rules: object) -> SizeRules:
    """Return the entry of one size in `sizes`. Raises RequestError."""
    entry = Entry(f"the size {size!r}", rules)
    found = SizeRules(
        cpus=entry.number("cpus") or 0.0,
        memory=entry.amount("memory") or Bytes(0),
        most_cpus=entry.number("most_cpus") or 0.0,
        most_memory=entry.amount("most_memory") or Bytes(0),
    )
    entry.finish()
    if not all(value == 0 or 0.01 <= value < 100_000 for value in (found.cpus, found.most_cpus)):
        raise RequestError(f"The size {size!r} has CPUs below 0.01, or 100000 or more. Choose another number")
    if not all(value == 0 or value >= SMALLEST_MEMORY for value in (found.memory, found.most_memory)):
        raise RequestError(f"The size {size!r} has less memory than {SMALLEST_MEMORY}. Choose more")
    return found


def _refused(proposal: dict[str, Any], wanted: str) -> TraitError:
    return TraitError(f"c.HostLimits.{proposal['trait'].name}: {proposal['value']!r} is not valid. Use {wanted}")
