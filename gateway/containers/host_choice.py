"""The CPUs, the memory and the folders of the host that a user may choose for a kernel, their check, and their report.

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jupyter_aliquot.gateway.reports.status import ChosenOptions, SessionOptions
from jupyter_aliquot.gateway.sizes.grammar import CPU_STEP, SizedName, size_name
from jupyter_aliquot.provisioner.containers.limits import CpuChoice, MemoryChoice
from jupyter_aliquot.provisioner.errors import RequestError
from jupyter_aliquot.provisioner.grants.codec import parse_host_part
from jupyter_aliquot.provisioner.resources import Bytes, HostPart

CHOSEN = ("cpus", "ram", "folders")  # parameters of the query
_GIB = 1 << 30
_NOT_OFFERED = "The administrator lets users choose none for this kernel."


@dataclass(frozen=True)
class HostOffer:
    """The choices of a user for a kernel of one size. None: nothing can be chosen.

    ``reason`` says why this server can limit no such kernel; empty where it can.
    """

    cpus: CpuChoice | None
    memory: MemoryChoice | None
    folders: tuple[str, ...] | None = None
    reason: str = ""

    @property
    def steps_of_cpus(self) -> range:
        """The CPUs that a kernelspec's name can request here, in its steps; empty where it can request none."""
        return range(0) if self.cpus is None else _steps(self.cpus.least, self.cpus.most, CPU_STEP)

    @property
    def steps_of_memory(self) -> range:
        """The memory that a kernelspec's name can request here, in GiB; empty where it can request none."""
        return range(0) if self.memory is None else _steps(self.memory.least, self.memory.most, _GIB)

    def check(self, host: HostPart) -> None:
        """Refuse a choice that this offer does not have. Raises RequestError."""
        if host.cpus is not None:
            if self.cpus is None:
                raise RequestError(self._none(f"{host.cpus:g} CPUs"))
            if not self.cpus.least <= host.cpus <= self.cpus.most:
                between = f"{self.cpus.least:g} to {self.cpus.most:g} CPUs"
                raise RequestError(_outside(f"{host.cpus:g} CPUs", between))
        if host.memory is not None:
            if self.memory is None:
                raise RequestError(self._none(f"{host.memory} of host memory"))
            if not self.memory.least <= host.memory <= self.memory.most:
                raise RequestError(
                    _outside(f"{host.memory} of host memory", f"{self.memory.least} to {self.memory.most}")
                )
        self._check_folders(host.folders or ())

    def problem(self, host: HostPart) -> str:
        """Return why this offer does not have a choice; empty where it has."""
        try:
            self.check(host)
        except RequestError as error:
            return str(error)
        return ""

    def nearest(self, host: HostPart) -> HostPart:
        """Return the choice of this offer that is nearest to another, in the steps of a kernelspec's name."""
        cpus = memory = None
        if self.steps_of_cpus and host.cpus is not None:
            cpus = _nearest(host.cpus, self.steps_of_cpus, CPU_STEP)
        if self.steps_of_memory and host.memory is not None:
            memory = Bytes(_nearest(host.memory, self.steps_of_memory, _GIB))
        if self.folders is None or host.folders is None:
            return HostPart(cpus, memory)
        return HostPart(cpus, memory, tuple(name for name in host.folders if name in self.folders))

    def _check_folders(self, names: tuple[str, ...]) -> None:
        if names and self.folders is None:
            raise RequestError(f"Requested {_list(names)}, but only kernels in containers get folders. Choose an image")
        if lacking := [name for name in names if name not in (self.folders or ())]:
            shared = _list(self.folders or ()) or "no folder"
            raise RequestError(f"Requested {_list(lacking)}, but {shared} can be chosen here. Choose one of these")

    def _none(self, asked: str) -> str:
        return (
            f"Requested {asked}, which cannot be chosen here. {self.reason or _NOT_OFFERED} Choose the size without it"
        )


def _steps(least: float, most: float, step: float) -> range:
    """Return the numbers of whole steps between two amounts, from one step on."""
    return range(max(1, math.ceil(least / step)), math.floor(most / step) + 1)


def _nearest(wanted: float, steps: range, step: float) -> float:
    """Return the amount of whole steps that is nearest to the wanted one. There is a step."""
    return max(steps[0], min(steps[-1], round(wanted / step))) * step


def _list(names: Sequence[str]) -> str:
    return f"the {'folder' if len(names) == 1 else 'folders'} {', '.join(names)}" if names else ""


def _outside(asked: str, between: str) -> str:
    return f"Requested {asked}, but a kernel of this size may have {between} here. Choose one of these"


def options_report(
    sized: SizedName, wanted: HostPart, offer: HostOffer, display_name: str, image: str | None
) -> SessionOptions:
    """Return the report: the offer, and the nearest choice that it has with the name that asks for it."""
    nearest = offer.nearest(wanted)
    cpus, memory = offer.cpus, offer.memory
    return {
        "name": size_name(sized.base, sized.request, nearest),
        "kernelspec": sized.base,
        "display_name": display_name,
        "image": image,
        "cpus": None
        if cpus is None or not offer.steps_of_cpus
        else {"least": cpus.least, "most": cpus.most, "by_default": cpus.by_default, "step": CPU_STEP},
        "ram_bytes": None
        if memory is None or not offer.steps_of_memory
        else {"least": int(memory.least), "most": int(memory.most), "by_default": int(memory.by_default)},
        "folders": None if offer.folders is None else list(offer.folders),
        "reason": offer.reason or None,
        "chosen": _chosen(nearest),
        "problem": offer.problem(wanted) or None,
    }


def _chosen(host: HostPart) -> ChosenOptions:
    return {
        "cpus": host.cpus,
        "ram_bytes": None if host.memory is None else int(host.memory),
        "folders": None if host.folders is None else list(host.folders),
    }


def wanted_part(named: HostPart, asked: Mapping[str, str]) -> HostPart:
    """Return the choice of the query; the name's own for what the query leaves out. Raises RequestError."""
    given = parse_host_part(asked.get("cpus", ""), asked.get("ram", ""), asked.get("folders", ""))
    return HostPart(
        given.cpus if "cpus" in asked else named.cpus,
        given.memory if "ram" in asked else named.memory,
        given.folders if "folders" in asked else named.folders,
    )
