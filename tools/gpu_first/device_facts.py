"""Read NVML's facts about the GPUs through ctypes: the facts phase needs nothing installed.

The module also says in one line each which facts stop which phases.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

LEAST_DRIVER = 535  # the oldest release that the hook was tested with
NEEDED_BYTES = 6 << 30  # a memory limit of 4 GiB, and contexts of several processes
GIB = 1 << 30


class NvmlError(Exception):
    """NVML does not load or does not start; the message has its answer."""


@dataclass(frozen=True)
class DeviceFacts:
    """The facts about one device.

    ``processes``: bytes by process id; ``mig`` is None if the device has no such mode.
    """

    name: str
    driver: str
    total: int
    used: int
    mig: bool | None
    processes: dict[int, int]
    index: int = 0


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instance", ctypes.c_uint * 2)]


def read_devices(library: Path) -> list[DeviceFacts]:
    """Query NVML for all devices. Raises NvmlError."""
    try:
        nvml = ctypes.CDLL(os.fspath(library))
    except OSError as error:
        raise NvmlError(f"{library} does not load: {error}") from None
    code = nvml.nvmlInit_v2()
    if code != 0:
        raise NvmlError(f"nvmlInit of {library} answered {code}; nvidia-smi says more")
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    text = ctypes.create_string_buffer(96)
    nvml.nvmlSystemGetDriverVersion(text, len(text))
    driver = text.value.decode(errors="replace")
    found = [facts for index in range(count.value) if (facts := _read_device(nvml, index, driver)) is not None]
    if not found:
        raise NvmlError(f"NVML of {library} shows no device; nvidia-smi says more")
    return found


def _read_device(nvml: ctypes.CDLL, index: int, driver: str) -> DeviceFacts | None:
    """Read one device; return None for a device that fell off its bus."""
    device, memory, text = ctypes.c_void_p(), _Memory(), ctypes.create_string_buffer(96)
    if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) != 0:
        return None
    nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))
    nvml.nvmlDeviceGetName(device, text, len(text))
    name = text.value.decode(errors="replace")
    mig, processes = _read_mig(nvml, device), _read_processes(nvml, device)
    return DeviceFacts(name, driver, memory.total, memory.used, mig, processes, index)


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


def complaints(devices: Sequence[DeviceFacts], needed: int = NEEDED_BYTES) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Return what the machine lacks: a line for people, and the phases' needs that it stops.

    The node agent may place a kernel on any device. A device whose memory is full is therefore a
    problem; one that is divided (MIG) is left out.
    """
    driver = devices[0].driver
    release = driver.partition(".")[0]
    if release.isdigit() and int(release) < LEAST_DRIVER:
        yield (
            f"The driver is {driver}; the hook was held against {LEAST_DRIVER} and later. Phases through the "
            "hook are skipped: install a newer driver.",
            ("hook",),
        )
    yield from _complaints_of_slices(devices)
    for facts in devices:
        free = facts.total - facts.used
        if free < needed:
            held = ", ".join(f"process {pid} has {used / GIB:.1f} GiB" for pid, used in facts.processes.items())
            yield (
                f"gpu{facts.index}: {free / GIB:.1f} of {facts.total / GIB:.1f} GiB are free, {needed / GIB:.1f} GiB "
                f"are needed; {held or 'NVML names no process that holds them'}. "
                "Phases that take memory are skipped: end what fills it.",
                ("room",),
            )


def _complaints_of_slices(devices: Sequence[DeviceFacts]) -> Iterator[tuple[str, tuple[str, ...]]]:
    sliced = [facts for facts in devices if facts.mig]
    for facts in sliced:
        whole = "The node agent divides whole GPUs alone"
        if len(sliced) == len(devices):
            skipped = f"{whole}. Phases with the agent are skipped: use a GPU whose MIG mode is off."
            yield f"gpu{facts.index}: MIG is on for {facts.name}. {skipped}", ("agent",)
        else:
            yield f"gpu{facts.index}: MIG is on for {facts.name}. {whole}, and leaves this one out.", ()
