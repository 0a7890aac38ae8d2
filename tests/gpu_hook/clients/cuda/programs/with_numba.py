"""numba-cuda: arrays, and Python functions that it compiles for the GPU."""

from __future__ import annotations

import gc
import multiprocessing
import warnings

import numpy as np
from cuda.core import Device, LaunchConfig, ObjectCode, launch
from kernels import BUILTINS
from numba import cuda
from numba.cuda.core.errors import NumbaPerformanceWarning

MIB = 1 << 20
warnings.simplefilter("ignore", NumbaPerformanceWarning)  # of launches with a single block
held: list[object] = []


@cuda.jit
def increment(words):
    words[cuda.grid(1)] += 1


@cuda.jit("void(uint32[:])")
def eager(words):
    words[0] = 5


def memory() -> list[int]:
    found = cuda.current_context().get_memory_info()
    return [found.free, found.total]


def hold(amount: int) -> int:
    held.append(cuda.device_array(amount, np.uint8))
    return amount


def clear() -> None:
    """Free now: numba frees later, and a launch leaves arguments to the garbage collector."""
    gc.collect()
    cuda.current_context().memory_manager.deallocations.clear()


def let_go() -> None:
    held.clear()
    clear()


def round_trip(amount: int) -> bool:
    here = np.frombuffer(np.random.default_rng(1).bytes(amount), np.uint8)
    there = cuda.to_device(here)
    copy = cuda.device_array_like(there)
    copy.copy_to_device(there)
    is_equal = bool((copy.copy_to_host() == here).all())
    del there, copy
    clear()
    return is_equal


def fill(words, value: int) -> None:
    """Launch our built-in kernel by cuda.core in the same context, since numba loads no image."""
    device = Device(0)
    device.set_current()
    stream = device.default_stream
    kernel = ObjectCode.from_ptx(BUILTINS + b"\0").get_kernel("aliquot_fill")
    pointer = np.uint64(words.device_ctypes_pointer.value)
    launch(stream, LaunchConfig(grid=1, block=1), kernel, pointer, np.uint32(value), np.uint64(words.size))
    stream.sync()


def launches() -> list[object]:
    """Return words after our fill and after numba's kernels, and whether they took time.

    Some kernels are compiled at the call, some before it.
    """
    words = cuda.device_array(4, np.uint32)
    fill(words, 7)
    filled = words.copy_to_host().tolist()
    stream, begin, end = cuda.stream(), cuda.event(), cuda.event()
    begin.record(stream)
    increment[1, 4, stream](words)
    eager[1, 1, stream](words)
    end.record(stream)
    end.synchronize()
    after = words.copy_to_host().tolist()
    took = begin.elapsed_time(end)
    del words
    clear()
    return [filled, after, took > 0]


def managed() -> list[int]:
    array = cuda.managed_array(4, np.uint32)
    array[:] = 3
    increment[1, 4](array)
    cuda.synchronize()
    seen = array.tolist()
    del array
    clear()
    return seen


def pinned_and_mapped() -> bool:
    pinned, mapped = cuda.pinned_array(1024, np.uint8), cuda.mapped_array(1024, np.uint8)
    pinned[:], mapped[:] = 4, 5
    stream = cuda.stream()
    there = cuda.to_device(pinned, stream=stream)
    back = np.empty_like(pinned)
    there.copy_to_host(back, stream=stream)
    with cuda.pinned(back):
        stream.synchronize()
    is_equal = bool((back == 4).all() and (mapped == 5).all())
    del pinned, mapped, there
    clear()
    return is_equal


def reduction() -> bool:
    """Run numba's own kernels with shared memory: they are accepted and timed."""
    total = cuda.reduce(lambda a, b: a + b)
    return isinstance(total(cuda.to_device(np.ones(1024, np.int64))), (int, np.integer))


def _read(handle: object, size: list[int], answers: object) -> None:
    from serve import becomes, escapes

    with handle as array:
        answers.put([array.copy_to_host().tolist(), becomes(memory, size), escapes()])


def shared() -> list[object]:
    """Share an array by CUDA's IPC with a spawned process.

    Return its reading, and whether its view of memory is ours.
    """
    array = cuda.to_device(np.arange(1024, dtype=np.int32))
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    child = spawn.Process(target=_read, args=(array.get_ipc_handle(), memory(), answers))
    child.start()
    found, is_agreed, escaped = answers.get(timeout=40)
    child.join(40)
    same = found == list(range(1024))
    del array
    clear()
    return [same, is_agreed, escaped, child.exitcode]
