"""A process of a kernel that computes and allocates: ``gpu_worker.py SOCKET [SOCKET…]``.

It connects to the test's socket and obeys lines of JSON; each further socket gets a process of its
own. It checks all its results, and keeps each error for ``tell``.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

MIB = 1 << 20
WORDS = 1 << 16
BUILTINS = Path(__file__).resolve().parents[3] / "gpu_hook" / "builtins.ptx"
U64, VOID = ctypes.c_uint64, ctypes.c_void_p
cuda = ctypes.CDLL("libcuda.so.1")


class Failed(Exception):
    """A call that the driver refused."""


def call(name: str, *arguments: Any) -> None:
    code = getattr(cuda, name)(*arguments)
    if code:
        raise Failed(f"{name} answered {code}")


class Worker:
    """The worker's state.

    ``_is_wanted`` lets the thread work, ``_is_idle`` says that it does not; the rest belongs to the
    thread, or, while it is idle, to the main one.
    """

    def __init__(self) -> None:
        self._context, module, self._fill = VOID(), VOID(), VOID()
        call("cuInit", 0)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), 0)
        call("cuCtxSetCurrent", self._context)
        call("cuModuleLoadData", ctypes.byref(module), BUILTINS.read_bytes() + b"\0")
        call("cuModuleGetFunction", ctypes.byref(self._fill), module, b"aliquot_fill")
        self._is_wanted, self._is_idle = threading.Event(), threading.Event()
        self._is_idle.set()
        self._rounds, self._problems = 0, [""] * 0
        threading.Thread(target=self._work, daemon=True).start()

    def hold(self, device_mib: int, host_mib: int) -> str:
        """Allocate memory and keep it; return the driver's refusal."""
        pointer, host = U64(), VOID()
        try:
            if device_mib:
                call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(device_mib * MIB))
            if host_mib:
                call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(host_mib * MIB), 0)
        except Failed as error:
            return str(error)
        return ""

    def work(self, is_wanted: bool) -> None:
        if is_wanted:
            self._is_wanted.set()
        else:
            self._is_wanted.clear()
            self._is_idle.wait()

    def tell(self) -> dict[str, Any]:
        return {"pid": os.getpid(), "rounds": self._rounds, "problems": self._problems}

    def processes(self) -> list[list[int]]:
        """Return NVML's processes in this kernel: pid and bytes."""
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        device, count = VOID(), ctypes.c_uint(64)
        records = (ctypes.c_uint64 * 128)()  # two words each: pid, bytes; of the first version
        codes = [nvml.nvmlInit_v2(), nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))]
        codes.append(nvml.nvmlDeviceGetComputeRunningProcesses(device, ctypes.byref(count), records))
        if any(codes):
            raise Failed(f"NVML answered {codes}")
        return sorted([int(records[2 * i] & 0xFFFFFFFF), int(records[2 * i + 1])] for i in range(count.value))

    def _work(self) -> None:
        call("cuCtxSetCurrent", self._context)
        while True:
            self._is_wanted.wait()
            self._is_idle.clear()
            while self._is_wanted.is_set():
                try:
                    self._round()
                except Failed as error:
                    self._problems = [*self._problems[-9:], str(error)]
                self._rounds += 1
                time.sleep(0.005)  # leaves room for the others on a small machine
            self._is_idle.set()

    def _round(self) -> None:
        """Allocate, compute, check, free; of growing sizes."""
        pointer, value = U64(), ctypes.c_uint32(self._rounds)
        size = ctypes.c_size_t((1 + self._rounds % 4) * MIB)
        call("cuMemAlloc_v2", ctypes.byref(pointer), size)
        try:
            values = [pointer, value, U64(WORDS)]
            words = (VOID * 3)(*(ctypes.addressof(v) for v in values))
            call("cuLaunchKernel", self._fill, 4, 1, 1, 64, 1, 1, 0, None, words, None)
            found = (ctypes.c_uint32 * WORDS)()
            call("cuMemcpyDtoH_v2", found, pointer, ctypes.c_size_t(4 * WORDS))
            if found[0] != value.value or found[WORDS - 1] != value.value:
                raise Failed(f"computed {found[0]} and {found[WORDS - 1]} instead of {value.value}")
        finally:
            call("cuMemFree_v2", pointer)


def main() -> None:
    for other in sys.argv[2:]:
        subprocess.Popen([sys.executable, __file__, other])
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(sys.argv[1])
    worker = Worker()
    with connection.makefile("rw") as lines:
        for line in lines:
            name, *arguments = json.loads(line)
            print(json.dumps(getattr(worker, name)(*arguments)), file=lines, flush=True)


if __name__ == "__main__":
    main()
