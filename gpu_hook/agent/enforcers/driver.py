"""The driver's own memory limits, of release 615, experimental.

The limits are soft and hard bytes of a cgroup on a device. Soft is set equal to hard: between the
two, the driver takes memory back by ending a process. Not all versions of pynvml have these calls,
so this module makes them on the library that pynvml has loaded.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml  # type: ignore[import-untyped, unused-ignore]

from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.gpu_hook.protocol import codec as protocol

from .base import EnforcerError, KernelLimits
from .cgroups import CgroupHierarchy

_NO_LIMIT = (1 << 64) - 1  # NVML_DEVICE_MEMORY_LIMIT_MAX
_NAMES = ("nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1")


class _SetLimits(ctypes.Structure):
    """The structure nvmlSetMemoryLimits_v1_t."""

    _fields_ = [("name_space", ctypes.c_char_p), ("soft", ctypes.c_ulonglong), ("hard", ctypes.c_ulonglong)]


class _GetLimits(ctypes.Structure):
    """The structure nvmlGetMemoryLimits_v1_t."""

    _fields_ = [*_SetLimits._fields_, ("used", ctypes.c_ulonglong)]


@dataclass(frozen=True)
class DriverLimit:
    """The limit in force for a cgroup on a device.

    ``used_bytes`` is its real use of the device, contexts included.
    """

    soft_bytes: int
    hard_bytes: int
    used_bytes: int


class DriverEnforcer:
    """Implements ``base.Enforcer``. ``find_device`` gives NVML's handle of a UUID."""

    name = "driver"
    word = protocol.Enforcer.DRIVER

    def __init__(
        self,
        library: Path,
        hierarchy: CgroupHierarchy | None,
        find_device: Callable[[str], Any] = pynvml.nvmlDeviceGetHandleByUUID,
    ) -> None:
        self._library = library
        self._hierarchy = hierarchy
        self._find_device = find_device
        self._calls: dict[str, Any] = {}
        self._held: dict[str, tuple[Path, tuple[Part, ...]]] = {}

    def unavailable(self) -> str:
        try:
            library = ctypes.CDLL(os.fspath(self._library))
            self._calls = {name: getattr(library, name) for name in _NAMES}
        except (OSError, AttributeError):
            return f"the driver has no {_NAMES[0]}; it came with release 615 (CUDA 13.4)"
        if os.geteuid() != 0:
            return "only root may set memory limits; run the node agent as root"
        if self._hierarchy is None:
            return "no cgroup hierarchy of version 2 is mounted"
        return self._hierarchy.unavailable()

    def environment(self, parts: Sequence[Part]) -> Mapping[str, str]:
        return {}

    def hold(self, limits: KernelLimits) -> tuple[str, ...]:
        assert self._hierarchy is not None  # a missing hierarchy makes it unavailable
        leaf = self._hierarchy.leaf_of(limits.kernel_id, limits.pids)
        before, parts = self._held.get(limits.kernel_id, (None, ()))
        known = {part.uuid: part.quota_bytes for part in parts} if before == leaf else {}
        drifted, failed = [], self._lift(leaf, [part for part in parts if part.uuid in known.keys() - _uuids(limits)])
        for part in limits.parts:
            try:
                found = self._hold_part(leaf, part)
            except EnforcerError as error:  # a lost device must not cost the limits on the others
                failed.append(str(error))
            else:
                if found is not None and known.get(part.uuid) == part.quota_bytes:
                    drifted.append(f"gpu{part.index}: the limit was {_show(found)} instead of {part.quota_bytes} bytes")
        self._held[limits.kernel_id] = (leaf, limits.parts)
        if failed:
            raise EnforcerError("; ".join([*failed, *drifted]))
        return tuple(drifted)

    def release(self, kernel_id: str) -> None:
        """Remove the limits, soft before hard.

        A leaf that is removed with a soft limit leaves its ancestors the reservation.
        """
        held = self._held.pop(kernel_id, None)
        if held is None:
            return
        leaf, parts = held
        failed = self._lift(leaf, parts if leaf.is_dir() else ())
        if self._hierarchy is not None:
            self._hierarchy.forget(kernel_id)
        if failed:
            raise EnforcerError("; ".join(failed))

    def _lift(self, leaf: Path, parts: Sequence[Part]) -> list[str]:
        """Remove the limits on these devices; return what failed."""
        failed = []
        for part in parts:
            try:
                self._set(leaf, part.uuid, 0, part.quota_bytes)
                self._set(leaf, part.uuid, 0, _NO_LIMIT)
            except EnforcerError as error:
                failed.append(str(error))
        return failed

    def _hold_part(self, leaf: Path, part: Part) -> DriverLimit | None:
        """Set the limit where it is not in force; return the limit that was there."""
        found = self.read(leaf, part.uuid)
        if (found.soft_bytes, found.hard_bytes) == (part.quota_bytes, part.quota_bytes):
            return None
        self._set(leaf, part.uuid, part.quota_bytes, part.quota_bytes)
        return found

    def read(self, leaf: Path, uuid: str) -> DriverLimit:
        """Read the limit in force. Raises EnforcerError."""
        found = _GetLimits(os.fsencode(leaf))
        self._call(_NAMES[1], uuid, found)
        return DriverLimit(int(found.soft), int(found.hard), int(found.used))

    def _set(self, leaf: Path, uuid: str, soft_bytes: int, hard_bytes: int) -> None:
        self._call(_NAMES[0], uuid, _SetLimits(os.fsencode(leaf), soft_bytes, hard_bytes))

    def _call(self, name: str, uuid: str, argument: ctypes.Structure) -> None:
        try:
            code = self._calls[name](self._find_device(uuid), ctypes.byref(argument))
        except pynvml.NVMLError as error:
            raise EnforcerError(f"{name} of {uuid}: {str(error).lower()}") from error
        if code != pynvml.NVML_SUCCESS:
            raise EnforcerError(f"{name} of {uuid}: {str(pynvml.NVMLError(code)).lower()}")


def _uuids(limits: KernelLimits) -> set[str]:
    return {part.uuid for part in limits.parts}


def _show(found: DriverLimit) -> str:
    def limit(bytes_: int) -> str:
        return "none" if bytes_ == _NO_LIMIT else str(bytes_)

    return f"soft {limit(found.soft_bytes)}, hard {limit(found.hard_bytes)}"
