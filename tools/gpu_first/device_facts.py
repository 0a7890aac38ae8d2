"""What NVML says of the first GPU, asked through ctypes: the facts phase needs nothing installed. And what of it stops
which phases, as one line each."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LEAST_DRIVER = 535  # the first release that the hook was held against
NEEDED_BYTES = 6 << 30  # a quota of 4 GiB, and contexts of several processes
GIB = 1 << 30


class NvmlError(Exception):
    """NVML does not load or does not start; the message says what it answered."""


@dataclass(frozen=True)
class DeviceFacts:
    """``processes``: bytes by process id; ``mig`` None where the device knows no such mode."""

    name: str
    driver: str
    total: int
    used: int
    mig: bool | None
    processes: dict[int, int]
    devices: int = 1


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instance", ctypes.c_uint * 2)]


def read_device(library: Path) -> DeviceFacts:
    """Ask NVML for the first device. Raises NvmlError."""
    try:
        nvml = ctypes.CDLL(os.fspath(library))
    except OSError as error:
        raise NvmlError(f"{library} does not load: {error}") from None
    code = nvml.nvmlInit_v2()
    if code != 0:
        raise NvmlError(f"nvmlInit of {library} answered {code}; nvidia-smi says more")
    device, count = ctypes.c_void_p(), ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    if nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) != 0:
        raise NvmlError(f"NVML of {library} shows no device; nvidia-smi says more")
    memory, text = _Memory(), ctypes.create_string_buffer(96)
    nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))
    nvml.nvmlDeviceGetName(device, text, len(text))
    name = text.value.decode(errors="replace")
    nvml.nvmlSystemGetDriverVersion(text, len(text))
    driver = text.value.decode(errors="replace")
    return DeviceFacts(
        name, driver, memory.total, memory.used, _read_mig(nvml, device), _read_processes(nvml, device), count.value
    )


def _read_mig(nvml: ctypes.CDLL, device: ctypes.c_void_p) -> bool | None:
    now, pending = ctypes.c_uint(), ctypes.c_uint()
    try:
        code = nvml.nvmlDeviceGetMigMode(device, ctypes.byref(now), ctypes.byref(pending))
    except AttributeError:  # a driver before MIG
        return None
    return bool(now.value) if code == 0 else None


def _read_processes(nvml: ctypes.CDLL, device: ctypes.c_void_p) -> dict[int, int]:
    count, found = ctypes.c_uint(64), (_Process * 64)()
    try:
        code = nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), found)
    except AttributeError:
        return {}
    unknown = (1 << 64) - 1  # NVML_VALUE_NOT_AVAILABLE
    some = found[: count.value] if code == 0 else []
    return {int(one.pid): 0 if one.used == unknown else int(one.used) for one in some}


def complaints(facts: DeviceFacts, needed: int = NEEDED_BYTES) -> Iterator[tuple[str, tuple[str, ...]]]:
    """A line for people, and what phases need that the machine therefore lacks."""
    release = facts.driver.partition(".")[0]
    if release.isdigit() and int(release) < LEAST_DRIVER:
        yield (
            f"The driver is {facts.driver}; the hook was held against {LEAST_DRIVER} and later. Phases through the "
            "hook are skipped: install a newer driver.",
            ("hook",),
        )
    if facts.mig:
        yield (
            f"MIG is on for {facts.name}; the node agent divides whole GPUs alone. Phases with the agent are skipped: "
            "use a GPU whose MIG mode is off.",
            ("agent",),
        )
    free = facts.total - facts.used
    if free < needed:
        held = ", ".join(f"process {pid} has {used / GIB:.1f} GiB" for pid, used in facts.processes.items())
        yield (
            f"{free / GIB:.1f} of {facts.total / GIB:.1f} GiB are free, {needed / GIB:.1f} GiB are needed; "
            f"{held or 'NVML names no process that holds them'}. "
            "Phases that take memory are skipped: end what fills it.",
            ("room",),
        )
