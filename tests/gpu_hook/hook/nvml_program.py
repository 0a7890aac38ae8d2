"""A program that queries NVML through pynvml, driven from a test.

It reads an expression a line, and writes its value as JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import sys
from typing import Any

import pynvml

LIBRARY = ctypes.CDLL("libnvidia-ml.so.1")
KINDS = ("Compute", "Graphics", "MPSCompute")


def handle(device: int = 0) -> Any:
    return pynvml.nvmlDeviceGetHandleByIndex(device)


def facts() -> list[list[object]]:
    """Return memory in both versions, UUID, name and PCI bus id of each device."""
    rows: list[list[object]] = []
    for one in map(handle, range(pynvml.nvmlDeviceGetCount())):
        v1 = pynvml.nvmlDeviceGetMemoryInfo(one)
        v2 = pynvml.nvmlDeviceGetMemoryInfo(one, version=pynvml.nvmlMemory_v2)
        memory = [[v1.total, v1.used, v1.free], [v2.total, v2.used, v2.free, v2.reserved]]
        rows.append([*memory, pynvml.nvmlDeviceGetUUID(one), pynvml.nvmlDeviceGetName(one), bus_id(one)])
    return rows


def by_name(uuid: str) -> list[list[str]]:
    """Return UUID and PCI bus id of the device that NVML finds by this UUID, and by the bus id of its device."""

    class Named(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint), ("type", ctypes.c_uint), ("text", ctypes.c_char * 41)]

    listed = map(handle, range(pynvml.nvmlDeviceGetCount()))
    bus = next(bus_id(one) for one in listed if pynvml.nvmlDeviceGetUUID(one) == uuid).encode()
    rows = []
    named = Named(ctypes.sizeof(Named) | 1 << 24, 1, uuid.encode())
    asks = [("ByUUID", uuid.encode()), ("ByUUIDV", ctypes.byref(named)), ("ByPciBusId", bus), ("ByPciBusId_v2", bus)]
    for name, asked in asks:
        found = pynvml.c_nvmlDevice_t()
        code = getattr(LIBRARY, f"nvmlDeviceGetHandle{name}")(asked, ctypes.byref(found))
        rows.append([pynvml.nvmlDeviceGetUUID(found), bus_id(found)] if code == 0 else [str(code), ""])
    return rows


def bus_id(one: Any) -> str:
    return str(pynvml.nvmlDeviceGetPciInfo(one).busId)


def processes(kind: str = "Compute", device: int = 0) -> list[list[int]]:
    """Return pids and bytes by each version of the list; they must agree."""
    found = [ask_list(kind, version, device, 64) for version in ("", "_v2", "_v3")]
    assert found[0] == found[1] == found[2], found
    assert found[0][0] == 0, found
    return list(found[0][2])


def ask_list(kind: str, version: str, device: int, room: int) -> tuple[int, int, list[list[int]]]:
    """Return code, the reported length, and the entries."""
    words = 2 if version == "" else 3
    count, buffer = ctypes.c_uint(room), (ctypes.c_uint64 * (words * 64))()
    ask = getattr(LIBRARY, f"nvmlDeviceGet{kind}RunningProcesses{version}")
    code = ask(handle(device), ctypes.byref(count), buffer if room else None)
    rows = [[buffer[i * words] & 0xFFFFFFFF, buffer[i * words + 1]] for i in range(count.value if code == 0 else 0)]
    return code, count.value, sorted(rows)


class Detail(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_uint64),
        ("instances", ctypes.c_uint * 2),
        ("protected", ctypes.c_uint64),
    ]


class DetailList(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint),
        ("mode", ctypes.c_uint),
        ("count", ctypes.c_uint),
        ("items", ctypes.POINTER(Detail)),
    ]


def details(mode: int = 0, version: int = 1, room: int = 64) -> tuple[int, int, list[list[int]]]:
    items = (Detail * 64)()
    asked = DetailList(ctypes.sizeof(DetailList) | version << 24, mode, room, items)
    code = LIBRARY.nvmlDeviceGetRunningProcessDetailList(handle(), ctypes.byref(asked))
    return code, asked.count, [[items[i].pid, items[i].used] for i in range(asked.count if code == 0 else 0)]


def samples(since: int = 0) -> list[int]:
    """Return the pids with work since then, by both forms, which must agree."""
    old: list[int] = []
    with contextlib.suppress(pynvml.NVMLError_NotFound):
        old = sorted(one.pid for one in pynvml.nvmlDeviceGetProcessUtilization(handle(), since) if one.smUtil)
    code, _, new = sample_infos(since)
    assert (code, new) == (0 if old else 6, old)
    return old


class Sample(ctypes.Structure):
    _fields_ = [("time", ctypes.c_uint64), ("pid", ctypes.c_uint), ("percent", ctypes.c_uint * 6)]


class Samples(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint),
        ("count", ctypes.c_uint),
        ("since", ctypes.c_uint64),
        ("items", ctypes.POINTER(Sample)),
    ]


def sample_infos(since: int = 0, version: int = 1, room: int = 64) -> tuple[int, int, list[int]]:
    items = (Sample * 64)()
    asked = Samples(ctypes.sizeof(Samples) | version << 24, room, since, items)
    code = LIBRARY.nvmlDeviceGetProcessesUtilizationInfo(handle(), ctypes.byref(asked))
    return code, asked.count, sorted(items[i].pid for i in range(asked.count if code == 0 else 0))


def load(device: int = 0) -> list[int]:
    rates = pynvml.nvmlDeviceGetUtilizationRates(handle(device))
    return [rates.gpu, rates.memory]


class Limits(ctypes.Structure):
    _fields_ = [
        ("path", ctypes.c_char_p),
        ("soft", ctypes.c_uint64),
        ("hard", ctypes.c_uint64),
        ("used", ctypes.c_uint64),
    ]


def limits(path: str) -> list[int]:
    """Return code, soft limit, hard limit and use."""
    found = Limits(path.encode())
    code = LIBRARY.nvmlDeviceGetMemoryLimits_v1(handle(), ctypes.byref(found))
    return [code, found.soft, found.hard, found.used]


def set_limits(path: str, hard: int) -> int:
    return int(LIBRARY.nvmlDeviceSetMemoryLimits_v1(handle(), ctypes.byref(Limits(path.encode(), 0, hard))))


def main() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        print(json.dumps([error.value, str(error)]), flush=True)
        return
    for line in sys.stdin:
        print(json.dumps(eval(line, globals())), flush=True)


if __name__ == "__main__":
    main()
