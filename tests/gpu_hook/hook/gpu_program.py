"""A program under the hook, driven from a test.

It reads one expression a line, and writes its value as JSON. It runs in a process of its own, on
the libcuda of its environment. Calls return the driver's code first.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time  # noqa: F401 - expressions name it
import traceback
from collections.abc import Callable
from pathlib import Path

from gpu_calls import LIBRARY, SIZE, U64, call  # noqa: F401 - expressions name them
from gpu_contexts import *  # noqa: F403 - expressions name its functions
from gpu_families import *  # noqa: F403 - expressions name its functions
from gpu_graphs import *  # noqa: F403 - expressions name its functions
from gpu_pacing import *  # noqa: F403 - expressions name its functions
from gpu_queues import *  # noqa: F403 - expressions name its functions
from gpu_sharing import *  # noqa: F403 - expressions name its functions

GIVEN = {os.readlink(f"/proc/self/fd/{number}") for number in range(3)}
streams: dict[str, U64] = {}


def init() -> int:
    return call("cuInit", 0)


def use(device: int = 0) -> int:
    """Make the device's primary context current."""
    context = ctypes.c_void_p()
    code = call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    return code or call("cuCtxSetCurrent", context)


def begin(device: int = 0) -> int:
    return init() or use(device)


def uuid(device: int = 0) -> str:
    found = (ctypes.c_uint8 * 16)()
    call("cuDeviceGetUuid", found, device)
    return bytes(found).hex()


def count() -> int:
    found = ctypes.c_int()
    call("cuDeviceGetCount", ctypes.byref(found))
    return found.value


def alloc(amount: int, name: str = "cuMemAlloc_v2") -> list[int]:
    pointer = U64()
    code = call(name, ctypes.byref(pointer), SIZE(amount))
    return [code, pointer.value]


def alloc_pitch(width: int, height: int, element: int = 4) -> list[int]:
    pointer, pitch = U64(), SIZE()
    code = call("cuMemAllocPitch_v2", ctypes.byref(pointer), ctypes.byref(pitch), SIZE(width), SIZE(height), element)
    return [code, pointer.value, pitch.value]


def alloc_managed(amount: int) -> list[int]:
    pointer = U64()
    return [call("cuMemAllocManaged", ctypes.byref(pointer), SIZE(amount), 1), pointer.value]


def alloc_async(amount: int, suffix: str = "") -> list[int]:
    pointer = U64()
    return [call("cuMemAllocAsync" + suffix, ctypes.byref(pointer), SIZE(amount), None), pointer.value]


def alloc_on_stream(amount: int, device: int) -> list[int]:
    """Allocate on a stream of the device's primary context, while device 0's is current."""
    stream, pointer = U64(), U64()
    code = use(device) or call("cuStreamCreate", ctypes.byref(stream), 0) or use(0)
    code = code or call("cuMemAllocAsync", ctypes.byref(pointer), SIZE(amount), stream)
    return [code, pointer.value]


def free_async(pointer: int, suffix: str = "") -> int:
    code = call("cuMemFreeAsync" + suffix, U64(pointer), None)
    return code or call("cuStreamSynchronize" + suffix, None)


def free(pointer: int, name: str = "cuMemFree_v2") -> int:
    return call(name, U64(pointer))


class Properties(ctypes.Structure):
    _fields_ = [("words", ctypes.c_int32 * 4), ("rest", U64 * 4)]


def create(amount: int, device: int = 0, location: int = 1, exported: bool = False) -> list[int]:
    """Create a handle of the virtual-memory API.

    It is pinned, in the memory of a device (1) or the host (2).
    """
    wanted = Properties((ctypes.c_int32 * 4)(1, int(exported), location, device))
    handle = U64()
    return [call("cuMemCreate", ctypes.byref(handle), SIZE(amount), ctypes.byref(wanted), U64(0)), handle.value]


def release(handle: int) -> int:
    return call("cuMemRelease", U64(handle))


def reserve(amount: int) -> list[int]:
    pointer = U64()
    return [call("cuMemAddressReserve", ctypes.byref(pointer), SIZE(amount), SIZE(0), U64(0), U64(0)), pointer.value]


def map_at(pointer: int, amount: int, handle: int) -> int:
    return call("cuMemMap", U64(pointer), SIZE(amount), SIZE(0), U64(handle), U64(0))


def open_to(pointer: int, amount: int, device: int) -> int:
    """Let the device read and write the mapped memory."""
    access = (ctypes.c_int32 * 3)(1, device, 3)
    return call("cuMemSetAccess", U64(pointer), SIZE(amount), access, SIZE(1))


def read_byte(pointer: int) -> list[int]:
    found = ctypes.c_uint8()
    return [call("cuMemcpyDtoH_v2", ctypes.byref(found), U64(pointer), SIZE(1)), found.value]


def unmap(pointer: int, amount: int) -> int:
    return call("cuMemUnmap", U64(pointer), SIZE(amount))


def retain(pointer: int) -> list[int]:
    handle = U64()
    return [call("cuMemRetainAllocationHandle", ctypes.byref(handle), ctypes.c_void_p(pointer)), handle.value]


def info() -> list[int]:
    """Return code, free and total memory."""
    free_bytes, total = SIZE(), SIZE()
    code = call("cuMemGetInfo_v2", ctypes.byref(free_bytes), ctypes.byref(total))
    return [code, free_bytes.value, total.value]


def total(device: int = 0) -> list[int]:
    amount = SIZE()
    return [call("cuDeviceTotalMem_v2", ctypes.byref(amount), device), amount.value]


def new_context(device: int = 0) -> list[int]:
    context = ctypes.c_void_p()
    code = call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    return [code, context.value or 0]


def end_context(context: int) -> int:
    return call("cuCtxDestroy_v2", ctypes.c_void_p(context))


def launch(times: int = 1) -> int:
    """Launch on the null driver, which has no functions and needs none."""
    code = 0
    for _ in range(times):
        code = code or call("cuLaunchKernel", None, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    return code


def spin(milliseconds: int, waits: bool = True) -> int:
    """Keep the device busy with a built-in kernel of ours, until it is done."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    image = (Path(__file__).parents[3] / "gpu_hook" / "builtins.ptx").read_bytes() + b"\0"
    code = call("cuModuleLoadData", ctypes.byref(module), image)
    code = code or call("cuModuleGetFunction", ctypes.byref(function), module, b"aliquot_spin")
    duration = U64(milliseconds * 1_000_000)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(duration))
    code = code or call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)
    return code or (call("cuCtxSynchronize") if waits else 0)


def query(symbol: str, version: int = 13000, flags: int = 0, asked: str = "cuGetProcAddress_v2") -> list[object]:
    """Return code, and the file of the function in the query's answer."""
    function = ctypes.c_void_p()
    code = call(asked, symbol.encode(), ctypes.byref(function), version, U64(flags), None)
    return [code, holder(function.value or 0)]


def call_queried(symbol: str, *arguments: object) -> int:
    """Query a function, and call the answer."""
    function = ctypes.c_void_p()
    code = call("cuGetProcAddress_v2", symbol.encode(), ctypes.byref(function), 13000, U64(0), None)
    return code or ctypes.CFUNCTYPE(ctypes.c_int)(function.value or 0)(*arguments)


def find(file: str, symbol: str) -> int:
    """Return the address that dlsym finds, for this program, in the library of that path."""
    libc = ctypes.CDLL(None)
    libc.dlopen.restype = libc.dlsym.restype = ctypes.c_void_p
    handle = ctypes.c_void_p(libc.dlopen(file.encode(), os.RTLD_NOW))
    return int(libc.dlsym(handle, symbol.encode()) or 0)


class Found(ctypes.Structure):
    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("at", ctypes.c_void_p),
    ]


def holder(address: int) -> str | None:
    """Return the file that is mapped at the address."""
    found = Found()
    libc = ctypes.CDLL(None)
    if not address or not libc.dladdr(ctypes.c_void_p(address), ctypes.byref(found)):
        return None
    return os.path.normpath(os.fsdecode(found.file or b""))


def in_threads(count: int, work: Callable[[], object]) -> list[object]:
    results: list[object] = []
    threads = [threading.Thread(target=lambda: results.append(work())) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def in_background(work: Callable[[], object]) -> Callable[[], object]:
    """Begin the work on a thread of its own; the result waits for its end and returns its value."""
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()

    def end() -> object:
        thread.join()
        return results[0]

    return end


def stopped(work: Callable[[], object]) -> object:
    """Do the work under Python's own handler of interrupts.

    Return its value, or the name of its exception.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code = work()
        return f"the call answered {code} and nothing was raised"
    except KeyboardInterrupt as error:
        return type(error).__name__


def fill_and_empty(device: int, amount: int, rounds: int) -> int:
    """Allocate in several threads at the quota's edge, then free all.

    Return the number of refusals.
    """
    refused, held = 0, []
    use(device)
    for _ in range(rounds):
        code, pointer = alloc(amount)
        if code == 0:
            held.append(pointer)
        else:
            refused += 1
            for one in held:
                free(one)
            held = []
    for one in held:
        free(one)
    return refused


def in_fork(work: Callable[[], object]) -> object:
    """Return the value that a forked child computes."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, json.dumps(work()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(answer)


def descriptors() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    return found


def is_ours(descriptor: str) -> bool:
    """Return whether it is the hook's socket or pipe.

    This program did not start with any others.
    """
    try:
        target = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return False
    return target.startswith(("socket:", "pipe:")) and target not in GIVEN


def take_over(path: str) -> list[int]:
    """Close the hook's descriptors, and open a file in their place.

    Some programs close all descriptors that they did not open.
    """
    ours = [int(number) for number in os.listdir("/proc/self/fd") if is_ours(number)]
    for number in ours:
        os.close(number)
    return [os.open(path, os.O_RDWR) for _ in ours]


def fork_a_sleeper() -> int:
    """Fork a child that keeps every descriptor it inherited; return its pid."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
    return pid


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        try:
            answer: dict[str, object] = {"value": eval(line, globals())}
        except Exception:
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
