"""PyCUDA's other kinds of memory: its own pool, pinned, managed, pitched, arrays, contexts, another process's."""

from __future__ import annotations

import multiprocessing

import numpy as np
import pycuda.driver as driver
from pycuda.tools import DeviceMemoryPool
from with_pycuda import MIB, hold, let_go, memory  # noqa: F401


def used() -> int:
    free, total = memory()
    return total - free


def pool(amount: int) -> list[int]:
    """Return bytes used with an allocation, with it in PyCUDA's pool, and with the pool emptied."""
    own = DeviceMemoryPool()
    allocation = own.allocate(amount)
    with_it = used()
    allocation.free()
    cached = used()
    own.free_held()
    return [with_it, cached, used()]


def pool_retries(amount: int) -> bool:
    """Let a pool free its unused memory when the driver has no more.

    The calls take two thirds of all memory, twice.
    """
    own = DeviceMemoryPool()
    own.allocate(amount // 3 * 2).free()
    own.allocate(amount // 4 * 3).free()
    own.free_held()
    return used() == 0


def host_memory() -> bool:
    """Copy pinned and mapped memory by a stream.

    PyCUDA 2026.1 crashes by itself when it registers an array.
    """
    stream = driver.Stream()
    pinned = driver.pagelocked_empty(1024, np.uint8)
    mapped = driver.pagelocked_empty(1024, np.uint8, mem_flags=driver.host_alloc_flags.DEVICEMAP)
    back = driver.pagelocked_zeros(1024, np.uint8)
    pinned[:] = 7
    there = driver.mem_alloc(1024)
    driver.memcpy_htod_async(there, pinned, stream)
    driver.memcpy_dtoh_async(back, there, stream)
    stream.synchronize()
    driver.memcpy_dtod(int(mapped.base.get_device_pointer()), there, 1024)
    stream.synchronize()
    is_equal = bool((back == 7).all() and (mapped == 7).all())
    there.free()
    return is_equal


def managed() -> list[int]:
    array = driver.managed_empty(4, np.uint32, mem_flags=driver.mem_attach_flags.GLOBAL)
    array[:] = 1
    driver.memset_d32(int(array.base.get_device_pointer()), 8, 2)
    return array.tolist()


def pitched() -> bool:
    """Copy a matrix of odd width to pitched memory and back."""
    here = np.arange(37 * 5, dtype=np.uint8).reshape(5, 37)
    there, pitch = driver.mem_alloc_pitch(37, 5, 4)
    back = np.zeros_like(here)
    copy = driver.Memcpy2D()
    copy.set_src_host(here)
    copy.set_dst_device(there)
    copy.src_pitch, copy.dst_pitch, copy.width_in_bytes, copy.height = 37, pitch, 37, 5
    copy(aligned=False)
    copy = driver.Memcpy2D()
    copy.set_src_device(there)
    copy.set_dst_host(back)
    copy.src_pitch, copy.dst_pitch, copy.width_in_bytes, copy.height = pitch, 37, 37, 5
    copy(aligned=False)
    there.free()
    return bool((here == back).all())


def array(side: int) -> list[object]:
    """Return bytes of a matrix as a CUDA array, whether it came back whole, and bytes after it."""
    before = used()
    here = np.arange(side * side, dtype=np.float32).reshape(side, side)
    there = driver.matrix_to_array(here, "C")
    taken, back = used() - before, np.zeros_like(here)
    copy = driver.Memcpy2D()
    copy.set_src_array(there)
    copy.set_dst_host(back)
    copy.dst_pitch, copy.width_in_bytes, copy.height = side * 4, side * 4, side
    copy(aligned=True)
    there.free()
    return [taken, bool((here == back).all()), used() - before]


def second_context(amount: int) -> list[int]:
    """Return bytes used with memory of a context of its own, and after both are gone."""
    other = driver.Device(0).make_context()
    pointer = driver.mem_alloc(amount)
    with_it = used()
    del pointer
    other.detach()
    return [with_it, used()]


def profiled() -> None:
    driver.start_profiler()
    driver.stop_profiler()


def _read(handle: bytes, size: list[int], answers: object) -> None:
    from serve import becomes, escapes

    shared = driver.IPCMemoryHandle(bytearray(handle))
    found = np.zeros(1024, np.int32)
    driver.memcpy_dtoh(found, int(shared))
    answers.put([found.tolist(), becomes(memory, size), escapes()])
    shared.close()


def shared() -> list[object]:
    """Share memory with a spawned process.

    Return its reading, whether both see the same use, its escapes and its exit code.
    """
    there = driver.to_device(np.arange(1024, dtype=np.int32))
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    child = spawn.Process(target=_read, args=(bytes(driver.mem_get_ipc_handle(there)), memory(), answers))
    child.start()
    found, is_same, escaped = answers.get(timeout=40)
    child.join(40)
    there.free()
    return [found == list(range(1024)), is_same, escaped, child.exitcode]
