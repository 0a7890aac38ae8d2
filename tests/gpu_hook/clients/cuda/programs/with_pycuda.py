"""PyCUDA: linked with the driver library."""

from __future__ import annotations

import numpy as np
import pycuda.autoprimaryctx  # noqa: F401 - makes the primary context current, and lets go of it at the end
import pycuda.driver as driver
from kernels import BUILTINS, INCREMENT

MIB = 1 << 20
held: list[driver.DeviceAllocation] = []


def memory() -> list[int]:
    return list(driver.mem_get_info())


def hold(amount: int) -> int:
    held.append(driver.mem_alloc(amount))
    return amount


def let_go() -> None:
    while held:
        held.pop().free()


def round_trip(amount: int) -> bool:
    here = np.frombuffer(np.random.default_rng(1).bytes(amount), np.uint8)
    back = np.empty_like(here)
    there, copy = driver.to_device(here), driver.mem_alloc(amount)
    driver.memcpy_dtod(copy, there, amount)
    driver.memcpy_dtoh(back, copy)
    for one in (there, copy):
        one.free()
    return bool((here == back).all())


def launch(image: bytes, name: str, *arguments: object) -> float:
    """Launch, and return the milliseconds between two events around it."""
    stream, begin, end = driver.Stream(), driver.Event(), driver.Event()
    function = driver.module_from_buffer(image).get_function(name)
    begin.record(stream)
    function(*arguments, grid=(1, 1), block=(1, 1, 1), stream=stream)
    end.record(stream)
    end.synchronize()
    return end.time_since(begin)


def launches() -> list[object]:
    words = np.zeros(4, np.uint32)
    pointer = driver.mem_alloc(words.nbytes)
    launch(BUILTINS, "aliquot_fill", pointer, np.uint32(7), np.uint64(4))
    driver.memcpy_dtoh(words, pointer)
    filled = words.tolist()
    took = launch(INCREMENT, "increment", pointer)
    driver.memcpy_dtoh(words, pointer)
    pointer.free()
    return [filled, words.tolist(), took > 0]
