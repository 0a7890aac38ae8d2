"""cuda-bindings: the driver API, function by function."""

from __future__ import annotations

import ctypes

import numpy as np
from cuda.bindings import driver
from kernels import BUILTINS, INCREMENT

MIB = 1 << 20
held: list[driver.CUdeviceptr] = []


class DriverError(Exception):
    pass


def checked(answer):
    error, *results = answer
    if error != driver.CUresult.CUDA_SUCCESS:
        raise DriverError(error.name)
    return results[0] if len(results) == 1 else tuple(results)


checked(driver.cuInit(0))
device = checked(driver.cuDeviceGet(0))
context = checked(driver.cuDevicePrimaryCtxRetain(device))
checked(driver.cuCtxSetCurrent(context))


def memory() -> list[int]:
    free, total = checked(driver.cuMemGetInfo())
    return [free, total]


def hold(amount: int) -> int:
    held.append(checked(driver.cuMemAlloc(amount)))
    return amount


def let_go() -> None:
    while held:
        checked(driver.cuMemFree(held.pop()))


def round_trip(amount: int) -> bool:
    here, back = np.random.default_rng(1).bytes(amount), bytearray(amount)
    there, copy = (checked(driver.cuMemAlloc(amount)) for _ in range(2))
    checked(driver.cuMemcpyHtoD(there, here, amount))
    checked(driver.cuMemcpyDtoD(copy, there, amount))
    checked(driver.cuMemcpyDtoH(back, copy, amount))
    for pointer in (there, copy):
        checked(driver.cuMemFree(pointer))
    return back == here


def launch(image: bytes, name: bytes, values: tuple, types: tuple) -> float:
    """Milliseconds between two events around it."""
    module = checked(driver.cuModuleLoadData(image + b"\0"))
    function = checked(driver.cuModuleGetFunction(module, name))
    stream = checked(driver.cuStreamCreate(0))
    begin, end = (checked(driver.cuEventCreate(0)) for _ in range(2))
    checked(driver.cuEventRecord(begin, stream))
    checked(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, (values, types), 0))
    checked(driver.cuEventRecord(end, stream))
    checked(driver.cuStreamSynchronize(stream))
    took = checked(driver.cuEventElapsedTime(begin, end))
    for event in (begin, end):
        checked(driver.cuEventDestroy(event))
    checked(driver.cuStreamDestroy(stream))
    checked(driver.cuModuleUnload(module))
    return took


def launches() -> list[object]:
    """Words after our fill, words after a user's kernel, whether that took time."""
    words = np.zeros(4, np.uint32)
    pointer = checked(driver.cuMemAlloc(words.nbytes))
    launch(BUILTINS, b"aliquot_fill", (pointer, 7, 4), (None, ctypes.c_uint32, ctypes.c_uint64))
    checked(driver.cuMemcpyDtoH(words, pointer, words.nbytes))
    filled = words.tolist()
    took = launch(INCREMENT, b"increment", (pointer,), (None,))
    checked(driver.cuMemcpyDtoH(words, pointer, words.nbytes))
    checked(driver.cuMemFree(pointer))
    return [filled, words.tolist(), took > 0]
