"""The resources of kernels as values: a request, a grant, its usage.

The values are frozen; this module imports nothing of ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from enum import Enum

from jupyter_aliquot.gpu_hook.base.memory_text import parse_memory

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class Bytes(int):
    """A number of bytes. ``str(Bytes(3 << 30)) == "3.0 GiB"``: it prints in binary units."""

    @classmethod
    def parse(cls, text: str) -> Bytes:
        """Read ``"8g"``, ``"512 MiB"`` or ``"1073741824"``, as `parse_memory` does. Raises ValueError."""
        return cls(parse_memory(text))

    def __str__(self) -> str:
        value = float(self)
        for unit in _UNITS[:-1]:
            if abs(value) < 1024:
                return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
            value /= 1024
        return f"{value:.1f} {_UNITS[-1]}"

    __repr__ = int.__repr__


@dataclass(frozen=True, order=True)
class GpuShare:
    """A number of GPUs in steps of 0.01.

    0.25 is a quarter of one device; 2.5 are two whole ones and half of a third.
    """

    hundredths: int

    def __post_init__(self) -> None:
        if self.hundredths < 0:
            raise ValueError(f"Requested {self.hundredths / 100:g} GPUs, but a size is 0.01 or more")

    @classmethod
    def parse(cls, text: str) -> GpuShare:
        """Read ``"0.25"``.

        Raises ValueError for text that is no number, below 0, or finer than 0.01.
        """
        try:
            value = Decimal(text) * 100
        except InvalidOperation:
            raise ValueError(f"Requested {text!r} GPUs, which is not a number. Use one such as 0.25 or 2.5") from None
        if not value.is_finite() or value != value.to_integral_value():
            raise ValueError(f"Requested {text} GPUs, but a size comes in steps of 0.01")
        return cls(int(value))

    def __str__(self) -> str:
        whole, rest = divmod(self.hundredths, 100)
        return f"{whole}.{rest:02d}".rstrip("0").rstrip(".") if rest else str(whole)

    def __float__(self) -> float:
        return self.hundredths / 100


class WorkloadClass(str, Enum):
    """Production kernels are protected; opportunistic ones use idle resources."""

    PRODUCTION = "production"
    OPPORTUNISTIC = "opportunistic"

    @property
    def priority(self) -> str:
        """The users' word, in REST and on the command line: ``normal`` or ``low``."""
        return "normal" if self is WorkloadClass.PRODUCTION else "low"

    @classmethod
    def of_priority(cls, priority: str) -> WorkloadClass:
        """Return the class with this word. Raises ValueError for any other word."""
        for one in cls:
            if one.priority == priority:
                return one
        raise ValueError(f"Requested the priority {priority!r}. Choose one of: normal, low")


@dataclass(frozen=True)
class Request:
    """The resources that a kernel requests.

    ``memory_limit`` None: the share's part of each device's memory. ``residency``: how the kernel's
    memory may leave its devices (vmm, managed, off), settled at its start; empty: the node's
    default. Requests that differ only in residency are equal.
    """

    gpus: GpuShare
    memory_limit: Bytes | None = None
    workload_class: WorkloadClass = WorkloadClass.PRODUCTION
    residency: str = field(default="", compare=False)


@dataclass(frozen=True)
class HostPart:
    """The part of its host that a kernel requests beside its GPUs.

    ``cpus`` and ``memory`` None: the size's own part. ``folders``: the names of the shared folders
    that it sees; None: all of its user's.
    """

    cpus: float | None = None
    memory: Bytes | None = None
    folders: tuple[str, ...] | None = None

    def __bool__(self) -> bool:
        return self != NO_HOST_PART


NO_HOST_PART = HostPart()


@dataclass(frozen=True)
class Quota:
    """The limit in force on one device of a node.

    ``guarantee``: the reserved part; None: all of it.
    """

    uuid: str
    index: int
    share: GpuShare
    memory: Bytes
    guarantee: Bytes | None = None


@dataclass(frozen=True)
class Grant:
    """Quotas on devices, their kernel and owner, and a generation.

    Gateways and agents pass it down.
    """

    kernel_id: str
    owner: str
    request: Request
    node: str
    quotas: tuple[Quota, ...]
    kernel_dir: str
    env: tuple[tuple[str, str], ...]
    generation: int = 1

    @property
    def uuids(self) -> tuple[str, ...]:
        """Return its devices, in the kernel's order."""
        return tuple(quota.uuid for quota in self.quotas)


@dataclass(frozen=True)
class DeviceUsage:
    """A kernel's use of one device. Bytes are exact for hooked allocations; GPU time is sampled."""

    uuid: str
    charged: Bytes
    peak: Bytes
    busy_seconds: float
    refusals: int = 0


@dataclass(frozen=True)
class Usage:
    """A kernel's use of all its devices. Agents pass it up."""

    kernel_id: str
    devices: tuple[DeviceUsage, ...] = field(default=())
    processes: tuple[int, ...] = field(default=())
    interception: str = "unknown"


@dataclass(frozen=True)
class KernelProcess:
    """One kernel's process. The start time belongs to it, since a pid comes back after its end.

    ``container`` is the engine's id of its container, empty for a process of this machine. The pid
    is always the machine's own, never one within a container.
    """

    kernel_id: str
    pid: int
    start_time_ticks: int
    process_group: int
    container: str = ""
