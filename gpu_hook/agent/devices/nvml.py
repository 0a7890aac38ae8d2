"""Readings through NVML, of the NVIDIA driver or of the software GPU: the same code on both.

The module first loads the chosen library by its absolute path; glibc then answers pynvml's dlopen
of the same SONAME with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pynvml  # type: ignore[import-untyped, unused-ignore]

from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import SoftGpuSettings
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts
from jupyter_aliquot.gpu_hook.paths import Driver

from .devices import DeviceReading, DriverError
from .links import domains

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")
_CONTEXT = "ALIQUOT_SOFTGPU_CONTEXT"
# NVML's memory of a process; after a longer pause of ours, the time before is lost
_LONGEST_LOOK_SECONDS = 6.0
_LIBRARY_PREFIX = re.compile(r"^aliquot software gpu: (pid=\d+ )?")
_COMPUTE_MODES = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: "default",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "exclusive",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive",
}
_GONE = {
    pynvml.NVML_ERROR_GPU_IS_LOST,
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_ERROR_UNKNOWN,
    pynvml.NVML_ERROR_RESET_REQUIRED,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
}


class NvmlSource:
    """NVML of this process. Implements ``devices.DeviceSource``."""

    def __init__(self, driver: Driver) -> None:
        """Start NVML.

        Raises DriverError when the library does not load, does not start, or has no device.
        """
        self._is_software = driver.kind == "softgpu"
        words: list[str] = []
        try:
            with _captured_stderr(words):
                ctypes.CDLL(os.fspath(driver.nvml), mode=ctypes.RTLD_GLOBAL)
                pynvml.nvmlInit()
            self._absent = list(range(pynvml.nvmlDeviceGetCount()))
        except OSError as error:
            raise DriverError(f"cannot load {driver.nvml}: {error}") from error
        except pynvml.NVMLError as error:
            found = " | ".join(words) or f"its NVML says {str(error).lower()!r}"
            name = "software GPU" if self._is_software else "NVIDIA driver"
            raise DriverError(f"the {name} ({driver.nvml.parent}) does not start: {found}") from error
        self._driver_version = _optional(lambda: _text(pynvml.nvmlSystemGetDriverVersion())) or ""
        self._handles: list[tuple[DeviceFacts, Any]] = []
        # UUID to the number of its NVLink or PCIe domain.
        self._domains: Mapping[str, int] = {}
        self._last_look: dict[str, float] = {}
        problem = self._find_absent() or "there is none"
        if not self._handles:
            raise DriverError(f"NVML of {driver.nvml} shows no device: {problem}; see nvidia-smi")

    def read(self) -> tuple[DeviceReading, ...]:
        if self._absent:
            self._find_absent()
        return tuple(self._read_device(facts, handle) for facts, handle in self._handles)

    def close(self) -> None:
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError as error:
            raise DriverError(f"NVML does not end: {error}") from error

    def _find_absent(self) -> str:
        """Look for the devices that could not be read so far.

        A device that fell off its bus must not cost the others. Return NVML's error for the last
        device that still cannot be read, or nothing.
        """
        problem, absent = "", self._absent
        self._absent = []
        for index in absent:
            try:
                found = _find_device(index)
            except (pynvml.NVMLError, DriverError) as error:
                problem = str(error) if isinstance(error, DriverError) else str(error).lower()
                self._absent.append(index)
                if not self._last_look:
                    log.warning("event=device_unreadable index=%d reason=%r", index, problem)
            else:
                self._handles.append(found)
        self._handles.sort(key=lambda handle: handle[0].index)
        if len(self._domains) != len(self._handles):
            numbers = domains([handle for _, handle in self._handles])
            self._domains = {facts.uuid: number for (facts, _), number in zip(self._handles, numbers, strict=True)}
        for facts, _ in self._handles:
            self._last_look.setdefault(facts.uuid, time.time())
        return problem

    def _read_device(self, facts: DeviceFacts, handle: Any) -> DeviceReading:
        # First: reading the memory may make the driver forget a process that just ended, and its
        # last work with it.
        busy, moving, covered_seconds = self._read_busy(facts.uuid, handle)
        try:
            _, used = _read_memory(handle)
        except pynvml.NVMLError as error:
            if error.value in _GONE:
                return DeviceReading(facts, is_lost=True)
            used = 0
        utilization = _optional(lambda: int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu))
        celsius, watts = self._read_heat(handle)
        return DeviceReading(
            facts,
            used_bytes=used,
            utilization_percent=utilization or 0,
            temperature_celsius=celsius,
            power_watts=watts,
            busy=busy,
            moving=moving,
            covered_seconds=covered_seconds,
            processes=_read_processes(handle),
            driver_version=self._driver_version,
            compute_mode=_COMPUTE_MODES.get(_optional(lambda: int(pynvml.nvmlDeviceGetComputeMode(handle))), ""),
            is_persistent=_optional(lambda: bool(pynvml.nvmlDeviceGetPersistenceMode(handle))),
            domain=self._domains.get(facts.uuid),
        )

    def _read_heat(self, handle: Any) -> tuple[int | None, float | None]:
        """Return degrees Celsius and watts.

        The software GPU invents them for dashboards, so the agent reports none for it.
        """
        if self._is_software:
            return None, None
        celsius = _optional(lambda: int(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)))
        return celsius, _optional(lambda: float(pynvml.nvmlDeviceGetPowerUsage(handle)) / 1000)

    def _read_busy(self, uuid: str, handle: Any) -> tuple[dict[int, float], dict[int, float], float]:
        """Return GPU time by pid since the look before, time of reads and writes by pid, and the time covered.

        GPU time is utilisation times that time. NVML answers one record for each process that was
        busy since the given time (microseconds since the epoch).
        """
        now = time.time()
        since, self._last_look[uuid] = self._last_look[uuid], now
        samples = _optional(lambda: pynvml.nvmlDeviceGetProcessUtilization(handle, int(since * 1e6))) or []
        covered = max(0.0, min(now - since, _LONGEST_LOOK_SECONDS))
        told = [one for one in samples if 0 < one.smUtil <= 100]
        moving = {int(one.pid): one.memUtil / 100 * covered for one in told if 0 < one.memUtil <= 100}
        return {int(one.pid): one.smUtil / 100 * covered for one in told}, moving, covered


def softgpu_environment(state: os.PathLike[str], settings: SoftGpuSettings, node: str = "") -> dict[str, str]:
    """Return the variables that configure the software GPU.

    The agent and its kernels need the same. Nodes with names of their own have other GPUs, also on one
    machine.
    """
    knobs: Mapping[str, int | float | None] = {
        "DEVICES": settings.devices,
        "MEMORY": settings.memory_bytes,
        "SM_COUNT": settings.sm_count,
        "LINK_GBPS": settings.link_gbps,
    }
    chosen = {f"ALIQUOT_SOFTGPU_{name}": f"{value:.15g}" for name, value in knobs.items() if value is not None}
    if node:
        chosen["ALIQUOT_SOFTGPU_NODE"] = node
    if context := os.environ.get(_CONTEXT):  # a kernel in a container has none of the agent's environment
        chosen[_CONTEXT] = context
    return {"ALIQUOT_SOFTGPU_STATE": os.fspath(state), **chosen}


@contextlib.contextmanager
def _captured_stderr(words: list[str]) -> Iterator[None]:
    """Capture stderr while a library fails: it has the reason that the error code omits."""
    kept = os.dup(2)
    try:
        with tempfile.TemporaryFile() as caught:
            os.dup2(caught.fileno(), 2)
            try:
                yield
            finally:
                os.dup2(kept, 2)
                caught.seek(0)
                lines = caught.read().decode(errors="replace").splitlines()
                words += [_LIBRARY_PREFIX.sub("", line) for line in lines]
    finally:
        os.close(kept)


def _read_processes(handle: Any) -> dict[int, int | None]:
    """Return compute and graphics processes: a process that draws has memory, too.

    NVML lists one that does both twice.
    """
    found: dict[int, int | None] = {}
    for ask in (pynvml.nvmlDeviceGetComputeRunningProcesses, pynvml.nvmlDeviceGetGraphicsRunningProcesses):
        for process in _optional(lambda ask=ask: ask(handle)) or ():  # type: ignore[misc]
            pid, used = int(process.pid), process.usedGpuMemory
            found[pid] = found.get(pid) if used is None else max(found.get(pid) or 0, int(used))
    return found


def _find_device(index: int) -> tuple[DeviceFacts, Any]:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    _refuse_slices(handle, index)
    facts = DeviceFacts(
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        index=index,
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        memory_bytes=_read_memory(handle)[0],
    )
    return facts, handle


def _read_memory(handle: Any) -> tuple[int, int]:
    """Return the bytes that kernels can have, and those of them in use.

    Both come from one record. The newer record lists the driver's own memory separately; the older
    one counts it as used, so that its ``used`` belongs to its ``total``. Raises NVMLError.
    """
    record = _optional(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2))
    if record is not None:
        return int(record.total) - int(record.reserved), int(record.used)
    record = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return int(record.total), int(record.used)


def _refuse_slices(handle: Any, index: int) -> None:
    """Refuse a device that is cut into slices: the hook would count all of them as one device."""
    mode = _optional(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0])
    if mode == pynvml.NVML_DEVICE_MIG_ENABLE:
        raise DriverError(
            f"device {index} has MIG on, which Aliquot does not support: turn it off (nvidia-smi -i {index} -mig 0)"
        )


def _text(value: str | bytes) -> str:
    """Decode the bytes that older pynvml answers."""
    return value.decode() if isinstance(value, bytes) else value


def _optional(read: Callable[[], _Result]) -> _Result | None:
    """Return a value, or None where a device does not have it."""
    try:
        return read()
    except pynvml.NVMLError:
        return None
