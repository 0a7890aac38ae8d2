"""cuda-bindings: the driver API, function by function."""

from __future__ import annotations

import ctypes
import multiprocessing

import numpy as np
from cuda.bindings import driver
from kernels import BUILTINS, INCREMENT

MIB = 1 << 20
held: list[driver.CUdeviceptr] = []
children: list[tuple] = []


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
    """Launch, and return the milliseconds between two events around it."""
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
    """Return words after our fill, words after a user's kernel, and whether that took time."""
    words = np.zeros(4, np.uint32)
    pointer = checked(driver.cuMemAlloc(words.nbytes))
    launch(BUILTINS, b"aliquot_fill", (pointer, 7, 4), (None, ctypes.c_uint32, ctypes.c_uint64))
    checked(driver.cuMemcpyDtoH(words, pointer, words.nbytes))
    filled = words.tolist()
    took = launch(INCREMENT, b"increment", (pointer,), (None,))
    checked(driver.cuMemcpyDtoH(words, pointer, words.nbytes))
    checked(driver.cuMemFree(pointer))
    return [filled, words.tolist(), took > 0]


def _take(amount: int, commands: object, answers: object) -> None:
    """Take memory in a spawned process, report it, and hold it until an order."""
    from serve import escapes

    try:
        hold(amount)
        answers.put(["held", escapes()])
    except DriverError as error:
        answers.put([str(error), escapes()])
    commands.get(timeout=60)


def begin_together(amount: int, count: int) -> list[object]:
    """Return the answers of ``count`` spawned processes, each after the one before it.

    They live on.
    """
    spawn = multiprocessing.get_context("spawn")
    answers, said = spawn.Queue(), []
    for _ in range(count):
        commands = spawn.Queue()
        child = spawn.Process(target=_take, args=(amount, commands, answers))
        child.start()
        children.append((child, commands))
        said.append(answers.get(timeout=60))
    return said


def end_together() -> list[int]:
    """Return their exit codes."""
    for child, commands in children:
        commands.put("end")
        child.join(60)
    codes = [child.exitcode for child, _ in children]
    children.clear()
    return codes


def pooled(amount: int) -> list[object]:
    """Return the bytes used with stream-ordered memory, and after it."""
    before = memory()[0]
    pointer = checked(driver.cuMemAllocAsync(amount, 0))
    with_it = before - memory()[0]
    checked(driver.cuMemFreeAsync(pointer, 0))
    checked(driver.cuStreamSynchronize(0))
    return [with_it, before - memory()[0]]


def mapped(amount: int) -> list[object]:
    """Map a handle at two addresses.

    Return bytes used with it and after, and the first address's contents at the second.
    """
    before = memory()[0]
    place = driver.CUmemAllocationProp()
    place.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    place.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    place.location.id = 0
    access = driver.CUmemAccessDesc()
    access.location = place.location
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    handle = checked(driver.cuMemCreate(amount, place, 0))
    start = checked(driver.cuMemAddressReserve(2 * amount, 0, 0, 0))
    for address in (int(start), int(start) + amount):
        checked(driver.cuMemMap(address, amount, 0, handle, 0))
    checked(driver.cuMemSetAccess(start, 2 * amount, [access], 1))
    checked(driver.cuMemRelease(handle))
    checked(driver.cuMemsetD8(start, 9, amount))
    seen = bytearray(4)
    checked(driver.cuMemcpyDtoH(seen, int(start) + amount, 4))
    with_it = before - memory()[0]
    checked(driver.cuMemUnmap(start, 2 * amount))
    checked(driver.cuMemAddressFree(start, 2 * amount))
    return [with_it, before - memory()[0], list(seen)]


def managed(amount: int) -> list[int]:
    """Return the host's reading of words that the device wrote."""
    pointer = checked(driver.cuMemAllocManaged(amount, 1))
    checked(driver.cuMemsetD8(pointer, 5, amount))
    checked(driver.cuCtxSynchronize())
    seen = list((ctypes.c_uint8 * 4).from_address(int(pointer)))
    checked(driver.cuMemFree(pointer))
    return seen


def captured() -> list[list[int]]:
    """Return words before a captured copy ran, and after."""
    here, back = np.full(4, 6, np.uint32), np.zeros(4, np.uint32)
    pointer = checked(driver.cuMemAlloc(16))
    checked(driver.cuMemsetD32(pointer, 1, 4))
    stream = checked(driver.cuStreamCreate(1))
    checked(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
    checked(driver.cuMemcpyHtoDAsync(pointer, here, 16, stream))
    graph = checked(driver.cuStreamEndCapture(stream))
    runnable = checked(driver.cuGraphInstantiate(graph, 0))
    found = []
    for is_run in (False, True):
        if is_run:
            checked(driver.cuGraphLaunch(runnable, stream))
        checked(driver.cuStreamSynchronize(stream))
        checked(driver.cuMemcpyDtoH(back, pointer, 16))
        found.append(back.tolist())
    checked(driver.cuGraphExecDestroy(runnable))
    checked(driver.cuGraphDestroy(graph))
    checked(driver.cuStreamDestroy(stream))
    checked(driver.cuMemFree(pointer))
    return found
