"""What the node agent says, as frozen values: grants, and the status of the node.

Reads JSON objects; talks to nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar, cast

_Kind = TypeVar("_Kind")


class UnreadableReportError(Exception):
    """The agent said something that this version cannot read."""


@dataclass(frozen=True)
class AgentHello:
    """Who answers."""

    version: int
    node: str
    driver: str
    pid: int


@dataclass(frozen=True)
class DeviceGrant:
    uuid: str
    index: int
    hundredths: int
    quota_bytes: int


@dataclass(frozen=True)
class KernelGrant:
    """What a kernel was given. ``env`` is all that its process needs in addition to its own environment."""

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


@dataclass(frozen=True)
class DeviceStatus:
    """One device of the node. ``used_bytes`` is NVML's truth; ``charged_bytes`` what the hooks charged."""

    index: int
    uuid: str
    name: str
    memory_bytes: int
    reserved_bytes: int
    reserved_hundredths: int
    used_bytes: int
    charged_bytes: int
    utilization_percent: int
    temperature_celsius: int | None
    power_watts: float | None
    lost: bool


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


@dataclass(frozen=True)
class KernelStatus:
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


@dataclass(frozen=True)
class NodeStatus:
    node: str
    driver: str
    enforcer: str
    devices: tuple[DeviceStatus, ...]
    kernels: tuple[KernelStatus, ...]
    connections: int


def read_hello(report: Mapping[str, Any]) -> AgentHello:
    return _read(AgentHello, report)


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


def read_status(report: Mapping[str, Any]) -> NodeStatus:
    try:
        return _read(
            NodeStatus,
            report,
            devices=tuple(_read(DeviceStatus, device) for device in report["devices"]),
            kernels=tuple(_read_kernel(kernel) for kernel in report["kernels"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise UnreadableReportError(f"the agent sent a status that cannot be read: {error!r}") from error


def _read_kernel(report: Mapping[str, Any]) -> KernelStatus:
    return _read(
        KernelStatus,
        report,
        attributes=tuple(sorted(report["attributes"].items())),
        pids=tuple(report["pids"]),
        devices=tuple(_read(KernelDeviceStatus, device) for device in report["devices"]),
    )


def _read(kind: type[_Kind], report: Mapping[str, Any], **parts: Any) -> _Kind:
    """Fields that a newer agent adds are ignored; a field that is missing is an error."""
    try:
        names = [field.name for field in fields(cast(Any, kind))]
        return kind(**{name: parts[name] if name in parts else report[name] for name in names})
    except (KeyError, TypeError) as error:
        raise UnreadableReportError(f"the agent's report lacks {error} of {kind.__name__}") from error
