"""The node agent's reports as frozen values: grants, and the status of the node.

This module reads JSON objects, and does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, TypeVar, cast

from .checks import checked
from .compute_reports import (
    ComputeControl,
    ComputeStatus,
    DeviceLoad,
    read_compute,
    read_compute_control,
    read_load,
)
from .residency_reports import (
    HostCopies,
    LeaseEvent,
    OversubscriptionStatus,
    ReservedShare,
    ResidencyStatus,
    read_host_copies,
    read_oversubscription,
    read_residency,
)

_Kind = TypeVar("_Kind")


class UnreadableReportError(Exception):
    """The agent's report is unreadable for this version."""


@dataclass(frozen=True)
class AgentHello:
    """The agent that answers."""

    version: int
    node: str
    driver: str
    pid: int
    # The options in force, by their names on the command line; empty if the agent does not report
    # them.
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DeviceGrant:
    uuid: str
    index: int
    hundredths: int
    quota_bytes: int
    # The reserved part of the quota; None: all of it.
    guarantee_bytes: int | None = None


@dataclass(frozen=True)
class KernelGrant:
    """The grant of a kernel.

    ``env`` has all variables that its process needs in addition to its own environment.
    """

    kernel_id: str
    owner: str
    generation: int
    node: str
    hundredths: int
    memory_limit: int | None
    workload_class: str
    devices: tuple[DeviceGrant, ...]
    kernel_dir: str
    env: tuple[tuple[str, str], ...]
    # The owner's total with this kernel; None if no limit was requested, or the agent knows none.
    owner_hundredths: int | None = None


@dataclass(frozen=True)
class DeviceStatus:
    """One device of the node.

    ``charged_bytes`` is what the hooks charged. ``used_bytes`` is NVML's figure, less what kernels
    gave back since it was read.
    """

    index: int
    uuid: str
    name: str
    memory_bytes: int
    reserved_bytes: int
    reserved_hundredths: int
    utilization_percent: int
    temperature_celsius: int | None
    power_watts: float | None
    lost: bool
    used_bytes: int = 0  # 0 in a status without the kernels, which leaves both out
    charged_bytes: int = 0
    # None from an earlier agent: then it is all of it.
    reserved_by_production: ReservedShare | None = None
    compute_control: ComputeControl | None = None
    context_bytes: int = 0  # of its kernel's memory, for each process's context
    reserved_kept_bytes: int = 0  # of kernels whose memory never leaves the device
    reserved_kernels: int = 0  # how many have a part of it; 0 from an earlier agent
    # How many times it may be reserved (None from an earlier agent: as the node), and why no more.
    overcommit: float | None = None
    overcommit_reason: str = ""
    # Bytes per second between it and the host, measured by swaps; 0 from an earlier agent.
    copy_out_rate: float = 0.0
    copy_in_rate: float = 0.0
    # The driver's settings: default, exclusive or prohibited; empty and None: not told.
    compute_mode: str = ""
    persistent: bool | None = None
    domain: int | None = None  # of NVLink or PCIe, as a number; None where it is not known
    holder: str = ""  # the pod that holds it for Aliquot, as NAMESPACE/NAME; empty: none does


@dataclass(frozen=True)
class UnhookedProcess:
    """A process on a device with memory that no hook charged.

    ``used_bytes`` None: the driver does not report it.
    """

    pid: int
    name: str
    uuid: str
    index: int
    used_bytes: int | None
    charged_bytes: int
    why: str


@dataclass(frozen=True)
class HostMemoryStatus:
    """Page-locked memory of one kernel. ``quota_bytes`` None: no limit."""

    quota_bytes: int | None = None
    charged_bytes: int = 0
    lent_bytes: int = 0
    peak_bytes: int = 0
    refusals: int = 0


@dataclass(frozen=True)
class KernelActivity:
    """A relay's report of the requests in a kernel.

    ``open`` counts requests, ``work`` those of them that are cells or comm messages; ``since`` is
    the time since when there is work, and ``input`` since when all of the work waits for input().
    Moments are seconds since the epoch.
    """

    open: int
    work: int
    since: float | None
    input: float | None = None


@dataclass(frozen=True)
class TrimStatus:
    """The result of a kernel's last trim; ``at`` in seconds since the epoch."""

    bytes: int
    at: float


@dataclass(frozen=True)
class EnforcerStatus:
    """One of the enforcers, and the reason why it is not in force."""

    name: str
    in_force: bool
    available: bool
    experimental: bool
    reason: str


@dataclass(frozen=True)
class KernelDeviceStatus:
    uuid: str
    index: int
    hundredths: int
    quota_bytes: int
    charged_bytes: int
    lent_bytes: int
    peak_bytes: int
    busy_seconds: float
    refusals: int
    context_bytes: int = 0
    # The reserved part of the quota; None from an agent that reserves all of it.
    guarantee_bytes: int | None = None
    # Part of the charged bytes; these are in host memory instead.
    swapped_bytes: int = 0
    # The most that it would have charged without its quota; None: no quota refused a request.
    needed_bytes: int | None = None
    # When a process last went on without refused memory, in seconds since the epoch.
    short_at: float | None = None
    compute: ComputeStatus | None = None
    load: DeviceLoad | None = None  # None until it has worked, and from an earlier agent
    # What it has beyond its quota, with the contexts that count against it; None from an earlier agent.
    over_bytes: int | None = None

    @property
    def beyond_quota_bytes(self) -> int:
        """The bytes beyond the quota, which was lowered; of an earlier agent without contexts."""
        return max(0, self.charged_bytes - self.quota_bytes) if self.over_bytes is None else self.over_bytes


@dataclass(frozen=True)
class KernelStatus:
    """A kernel that holds a part of the node.

    ``enforcement`` is ``holds``, ``pending`` or ``failed: ...``.
    """

    kernel_id: str
    owner: str
    label: str
    hundredths: int
    memory_limit: int | None
    workload_class: str
    generation: int
    attributes: tuple[tuple[str, str], ...]
    created: float
    interception: str
    pids: tuple[int, ...]
    ending: bool
    devices: tuple[KernelDeviceStatus, ...]
    absolute_paths: str = "unknown"
    enforcement: str = "holds"
    limit_drifts: int = 0
    host_memory: HostMemoryStatus = field(default_factory=HostMemoryStatus)
    unhooked_processes: tuple[UnhookedProcess, ...] = ()
    activity: KernelActivity | None = None
    residency: ResidencyStatus | None = None
    trimmed: TrimStatus | None = None
    # Settings of its running processes that differ from its grant until it is restarted.
    misfits: tuple[str, ...] = ()


@dataclass(frozen=True)
class LostKernel:
    """A kernel that ended when the machine was started again."""

    kernel_id: str
    owner: str
    label: str


@dataclass(frozen=True)
class ActuatorStatus:
    """One of the actuators: why it is not in force, and its warning while it is."""

    name: str
    in_force: bool
    available: bool
    experimental: bool
    reason: str
    warning: str


@dataclass(frozen=True)
class LeavingKernel:
    """A kernel that was told to leave its parts so many seconds ago, and has not left.

    ``stays_because`` is why it cannot; ``refusal`` is why its last move failed.
    """

    kernel_id: str
    seconds: int
    is_moving: bool
    stays_because: str
    refusal: str


@dataclass(frozen=True)
class MovedKernel:
    """A kernel that was moved since its start, and the device on which it is."""

    kernel_id: str
    device: str


@dataclass(frozen=True)
class NodeStatus:
    node: str
    driver: str
    enforcer: str
    devices: tuple[DeviceStatus, ...]
    kernels: tuple[KernelStatus, ...]
    connections: int
    enforcers: tuple[EnforcerStatus, ...] = ()
    host_memory_bytes: int = 0
    foreign_processes: tuple[UnhookedProcess, ...] = ()
    lost_kernels: tuple[LostKernel, ...] = ()
    # The factor by which the node may be overcommitted; 1: not at all.
    oversubscription: float = 1.0
    oversubscription_rule: OversubscriptionStatus = field(default_factory=OversubscriptionStatus)
    host_copies: HostCopies | None = None
    actuators: tuple[ActuatorStatus, ...] = ()
    host_memory_problem: str = ""  # why less host memory is for copies than was set aside
    # Kernels whose parts others may reserve meanwhile; None from an agent that evicts none.
    evicted: tuple[str, ...] | None = None
    # Kernels that were told to leave and have not left; None from an agent that does not tell.
    leaving: tuple[LeavingKernel, ...] | None = None
    moved: tuple[MovedKernel, ...] = ()
    # Released kernels of which a process keeps memory; an earlier agent tells none.
    ending_kernels: tuple[str, ...] = ()
    # When this run of the agent began, in seconds since the epoch: its counters of own time count from then.
    began: float = 0.0
    driver_problem: str = ""  # why the agent's last look at its devices failed; they count as lost then
    hook_problem: str = ""  # why no kernel's memory limit is held: files of the hook are missing


def read_hello(report: Mapping[str, Any]) -> AgentHello:
    return _read(AgentHello, report)


def read_lease_event(report: Mapping[str, Any]) -> LeaseEvent:
    return _read(LeaseEvent, report)


def read_grant(report: Mapping[str, Any]) -> KernelGrant:
    try:
        return _read(
            KernelGrant,
            report,
            devices=tuple(_read(DeviceGrant, device) for device in report["devices"]),
            env=tuple(sorted(report["env"].items())),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise UnreadableReportError(f"the agent sent a grant that cannot be read: {error!r}") from error


def read_status(
    report: Mapping[str, Any],
    read_one: Callable[[Mapping[str, Any]], KernelStatus] | None = None,
    read_each_device: Callable[[int, Mapping[str, Any]], DeviceStatus] | None = None,
) -> NodeStatus:
    """Return the status.

    ``read_one`` reads a kernel, and ``read_each_device`` the device at a place; they need not read an unchanged one
    again.
    """
    read_one = read_one or read_kernel
    read_each_device = read_each_device or (lambda _, device: read_device(device))
    try:
        return _read(
            NodeStatus,
            report,
            devices=tuple(read_each_device(place, device) for place, device in enumerate(report["devices"])),
            kernels=tuple(read_one(kernel) for kernel in report["kernels"]),
            enforcers=tuple(_read(EnforcerStatus, enforcer) for enforcer in report.get("enforcers", ())),
            actuators=tuple(_read(ActuatorStatus, actuator) for actuator in report.get("actuators", ())),
            foreign_processes=_read_processes(report.get("foreign_processes", ())),
            lost_kernels=tuple(_read(LostKernel, kernel) for kernel in report.get("lost_kernels", ())),
            oversubscription_rule=read_oversubscription(report.get("oversubscription_rule")),
            host_copies=read_host_copies(report.get("host_copies")),
            evicted=None if report.get("evicted") is None else tuple(str(one) for one in report["evicted"]),
            leaving=_read_leaving(report.get("leaving")),
            moved=tuple(_read(MovedKernel, one) for one in report.get("moved", ())),
            ending_kernels=tuple(str(one) for one in report.get("ending_kernels", ())),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UnreadableReportError(f"the agent sent a status that cannot be read: {error!r}") from error


def _read_leaving(report: Any) -> tuple[LeavingKernel, ...] | None:
    return None if report is None else tuple(_read(LeavingKernel, one) for one in report)


def read_device(report: Mapping[str, Any]) -> DeviceStatus:
    """Read one of the status's devices. Raises what read_kernel does."""
    by_class = report.get("reserved_by_production")
    return _read(
        DeviceStatus,
        report,
        reserved_by_production=None if by_class is None else _read(ReservedShare, by_class),
        compute_control=read_compute_control(report.get("compute_control")),
    )


def _read_kernel_device(report: Mapping[str, Any]) -> KernelDeviceStatus:
    compute, load = read_compute(report.get("compute")), read_load(report.get("load"))
    return _read(KernelDeviceStatus, report, compute=compute, load=load)


def read_kernel(report: Mapping[str, Any]) -> KernelStatus:
    """Read one of the status's kernels.

    Raises UnreadableReportError, and KeyError, TypeError or AttributeError.
    """
    activity, trimmed = report.get("activity"), report.get("trimmed")
    return _read(
        KernelStatus,
        report,
        attributes=tuple(sorted(report["attributes"].items())),
        pids=tuple(report["pids"]),
        misfits=tuple(report.get("misfits", ())),
        devices=tuple(_read_kernel_device(device) for device in report["devices"]),
        host_memory=_read(HostMemoryStatus, report.get("host_memory", {})),
        unhooked_processes=_read_processes(report.get("unhooked_processes", ())),
        activity=None if activity is None else _read(KernelActivity, activity),
        residency=read_residency(report.get("residency")),
        trimmed=None if trimmed is None else _read(TrimStatus, trimmed),
    )


def _read_processes(reports: Iterable[Mapping[str, Any]]) -> tuple[UnhookedProcess, ...]:
    return tuple(_read(UnhookedProcess, report) for report in reports)


@cache
def _names(kind: Hashable) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cast(Any, kind)))


def _read(kind: type[_Kind], report: Mapping[str, Any], **parts: Any) -> _Kind:
    """Read an object.

    Fields that a newer agent adds are ignored. A missing field is an error, unless older agents do
    not have it; so is a value of another type.
    """
    try:
        given = {name: report[name] for name in _names(cast(Hashable, kind)) if name in report}
        given.update(parts)
        return checked(kind(**given))
    except (KeyError, TypeError) as error:
        raise UnreadableReportError(f"the agent's report lacks {error} of {kind.__name__}") from error
    except ValueError as error:
        raise UnreadableReportError(f"the agent's report cannot be used: {error}") from error
