"""A driven program's allocations beyond linear memory: host memory, arrays, pools."""

from __future__ import annotations

import ctypes
import mmap

from gpu_calls import SIZE, U64, call

RESERVED, USED, THRESHOLD = 5, 7, 4
FORMATS = {"u8": (0x01, 1), "u16": (0x02, 2), "u32": (0x03, 4), "half": (0x10, 2), "float": (0x20, 4)}
registered: dict[int, mmap.mmap] = {}


def alloc_host(amount: int, name: str = "cuMemAllocHost_v2", *flags: int) -> list[int]:
    pointer = U64()
    size = ctypes.c_uint(amount) if name == "cuMemAllocHost" else SIZE(amount)
    return [call(name, ctypes.byref(pointer), size, *flags), pointer.value]


def free_host(pointer: int) -> int:
    return call("cuMemFreeHost", U64(pointer))


def pages(amount: int) -> int:
    """Return memory of this process that can be registered."""
    mapped = mmap.mmap(-1, amount)
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    registered[address] = mapped
    return address


def register(pointer: int, amount: int, flags: int = 0, name: str = "cuMemHostRegister_v2") -> int:
    return call(name, U64(pointer), SIZE(amount), flags)


def unregister(pointer: int) -> int:
    return call("cuMemHostUnregister", U64(pointer))


class Shape(ctypes.Structure):
    _fields_ = [
        ("width", SIZE),
        ("height", SIZE),
        ("depth", SIZE),
        ("format", ctypes.c_int),
        ("channels", ctypes.c_uint),
        ("flags", ctypes.c_uint),
    ]


class FlatShape(ctypes.Structure):
    _fields_ = [("width", SIZE), ("height", SIZE), ("format", ctypes.c_int), ("channels", ctypes.c_uint)]


def new_array(
    width: int, height: int = 0, depth: int = 0, of: str = "float", channels: int = 1, flags: int = 0
) -> list[int]:
    array, shape = U64(), Shape(width, height, depth, FORMATS[of][0], channels, flags)
    return [call("cuArray3DCreate_v2", ctypes.byref(array), ctypes.byref(shape)), array.value]


def new_flat_array(width: int, height: int = 0, of: str = "float", channels: int = 1) -> list[int]:
    array, shape = U64(), FlatShape(width, height, FORMATS[of][0], channels)
    return [call("cuArrayCreate_v2", ctypes.byref(array), ctypes.byref(shape)), array.value]


def end_array(array: int) -> int:
    return call("cuArrayDestroy", U64(array))


def new_mipmapped(width: int, height: int, levels: int, of: str = "float", channels: int = 1) -> list[int]:
    array, shape = U64(), Shape(width, height, 0, FORMATS[of][0], channels, 0)
    code = call("cuMipmappedArrayCreate", ctypes.byref(array), ctypes.byref(shape), levels)
    return [code, array.value]


def end_mipmapped(array: int) -> int:
    return call("cuMipmappedArrayDestroy", U64(array))


class MapInfo(ctypes.Structure):
    """CUarrayMapInfo, for a level of an array."""

    _fields_ = [
        ("resource_type", ctypes.c_int),
        ("resource", U64),
        ("subresource_type", ctypes.c_int),
        ("where", U64 * 4),  # eight numbers, or an offset and a size: aligned for these
        ("operation", ctypes.c_int),
        ("handle_type", ctypes.c_int),
        ("handle", U64),
        ("offset", U64),
        ("rest", ctypes.c_uint * 4),
    ]


def map_tiles(array: int, start: int, count: int, handle: int = 0) -> int:
    """Map a handle to columns of an array, or without one unmap the columns."""
    where = (U64 * 4).from_buffer_copy((ctypes.c_uint * 8)(0, 0, start, 0, 0, count, 1, 1))
    info = MapInfo(0, array, 0, where, 1 if handle else 2, 0, handle)
    return call("cuMemMapArrayAsync", ctypes.byref(info), 1, None)


class PoolProperties(ctypes.Structure):
    _fields_ = [("words", ctypes.c_int32 * 4), ("rest", U64 * 10)]


def default_pool(device: int) -> int:
    pool = U64()
    call("cuDeviceGetDefaultMemPool", ctypes.byref(pool), device)
    return pool.value


def new_pool(device: int, is_shareable: bool = False) -> int:
    """Make a pool of pinned memory of the device, which other processes may open or not."""
    pool, wanted = U64(), PoolProperties((ctypes.c_int32 * 4)(1, int(is_shareable), 1, device))
    call("cuMemPoolCreate", ctypes.byref(pool), ctypes.byref(wanted))
    return pool.value


def end_pool(pool: int) -> int:
    return call("cuMemPoolDestroy", U64(pool))


def trim(pool: int, keep: int = 0) -> int:
    return call("cuMemPoolTrimTo", U64(pool), SIZE(keep))


def keep(pool: int, amount: int) -> int:
    value = U64(amount)
    return call("cuMemPoolSetAttribute", U64(pool), THRESHOLD, ctypes.byref(value))


def pool_bytes(pool: int, attribute: int = RESERVED) -> int:
    value = U64()
    call("cuMemPoolGetAttribute", U64(pool), attribute, ctypes.byref(value))
    return value.value


def alloc_from_pool(amount: int, pool: int, suffix: str = "") -> list[int]:
    pointer = U64()
    code = call("cuMemAllocFromPoolAsync" + suffix, ctypes.byref(pointer), SIZE(amount), U64(pool), None)
    return [code, pointer.value]


def alloc_from_shareable_pool(amount: int) -> list[int]:
    return alloc_from_pool(amount, new_pool(0, is_shareable=True))


def free_later(pointer: int, suffix: str = "") -> int:
    """Free without waiting for the stream."""
    return call("cuMemFreeAsync" + suffix, U64(pointer), None)


def synchronize(name: str = "cuStreamSynchronize") -> int:
    return call(name) if name == "cuCtxSynchronize" else call(name, None)


def allocate_and_free_in_order(device: int, rounds: int) -> int:
    """Use the default pool in several threads; return the number of refusals."""
    refused, held = 0, []
    context = ctypes.c_void_p()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    for number in range(rounds):
        pointer = U64()
        if call("cuMemAllocAsync", ctypes.byref(pointer), SIZE((number % 13 + 1) << 20), None) == 0:
            held.append(pointer)
        else:
            refused += 1
        if len(held) > number % 7:
            call("cuMemFreeAsync", held.pop(0), None)
    for pointer in held:
        call("cuMemFreeAsync", pointer, None)
    return refused


pools: dict[int, int] = {}


def pool_of(device: int) -> int:
    """Return this program's explicit pool."""
    if device not in pools:
        pools[device] = new_pool(device)
    return pools[device]
