"""The self-check of swapping: move a little memory of a device out and in, with the driver's calls.

They are the calls by which the hook moves memory: it maps physical memory at an address that it
reserved, copies it through page-locked memory to the host, gives the physical memory back, and
comes back with other physical memory at the same address. The contents are compared. Runs in the
process of context_process.py, in the current context.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import ExitStack

Call = Callable[..., None]  # a driver function's name and arguments; raises where it fails

_PINNED, _DEVICE, _READ_WRITE = 1, 1, 3  # CU_MEM_ALLOCATION_TYPE_, CU_MEM_LOCATION_TYPE_, CU_MEM_ACCESS_FLAGS_PROT_
_NEEDED_BYTES = 1 << 20


class MoveError(Exception):
    """The memory did not come back as it was."""


class _Location(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("number", ctypes.c_int)]


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


def check_move(call: Call, device: int) -> None:
    """Move memory of this device out and in. Raises MoveError, and what *call* raises."""
    properties = _Properties(kind=_PINNED, location=_Location(_DEVICE, device))
    grain = ctypes.c_size_t()
    call("cuMemGetAllocationGranularity", ctypes.byref(grain), ctypes.byref(properties), ctypes.c_int(0))
    step = max(1, grain.value)
    size = ctypes.c_size_t(-(-_NEEDED_BYTES // step) * step)
    with ExitStack() as undo:
        address, ring = ctypes.c_uint64(), ctypes.c_void_p()
        nothing = ctypes.c_uint64(0)
        call("cuMemAddressReserve", ctypes.byref(address), size, ctypes.c_size_t(0), nothing, nothing)
        undo.callback(call, "cuMemAddressFree", address, size)
        call("cuMemAllocHost_v2", ctypes.byref(ring), size)
        undo.callback(call, "cuMemFreeHost", ring)
        content = _pattern(size.value)
        with ExitStack() as mapped:
            _map(call, mapped, properties, address, size)
            ctypes.memmove(ring, content, size.value)
            call("cuMemcpyHtoD_v2", address, ring, size)
            ctypes.memset(ring, 0, size.value)
            call("cuMemcpyDtoH_v2", ring, address, size)
            out = ctypes.string_at(ring, size.value)
        _compare(content, out, "out")
        with ExitStack() as mapped:
            _map(call, mapped, properties, address, size)
            ctypes.memmove(ring, out, size.value)
            call("cuMemcpyHtoD_v2", address, ring, size)
            ctypes.memset(ring, 0, size.value)
            call("cuMemcpyDtoH_v2", ring, address, size)
            _compare(content, ctypes.string_at(ring, size.value), "in")


def _map(call: Call, undo: ExitStack, properties: _Properties, address: ctypes.c_uint64, size: ctypes.c_size_t) -> None:
    """Map new physical memory at the address, until *undo* ends."""
    handle = ctypes.c_uint64()
    call("cuMemCreate", ctypes.byref(handle), size, ctypes.byref(properties), ctypes.c_uint64(0))
    undo.callback(call, "cuMemRelease", handle)
    call("cuMemMap", address, size, ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
    undo.callback(call, "cuMemUnmap", address, size)
    access = _Access(properties.location, _READ_WRITE)
    call("cuMemSetAccess", address, size, ctypes.byref(access), ctypes.c_size_t(1))


def _pattern(size: int) -> bytes:
    """Return contents in which no two blocks of 8 bytes are equal."""
    return b"".join(number.to_bytes(8, "little") for number in range(1, size // 8 + 1))


def _compare(content: bytes, found: bytes, way: str) -> None:
    if found != content:
        at = next(place for place in range(len(content)) if content[place] != found[place])
        raise MoveError(f"memory that was swapped {way} differs from byte {at} on")
