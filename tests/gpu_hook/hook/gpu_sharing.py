"""The memory that a driven program shares with another, or with itself."""

from __future__ import annotations

import ctypes
import os

from gpu_calls import U64, call

FILE_DESCRIPTOR = 1
LAZY_PEER_ACCESS = 1


class Handle(ctypes.Structure):
    """CUipcMemHandle, which is passed by value."""

    _fields_ = [("reserved", ctypes.c_char * 64)]


def ipc_handle(pointer: int) -> list[object]:
    handle = Handle()
    code = call("cuIpcGetMemHandle", ctypes.byref(handle), U64(pointer))
    return [code, bytes(handle).hex()]


def ipc_open(handle: str) -> list[int]:
    pointer, opened = U64(), Handle.from_buffer_copy(bytes.fromhex(handle))
    return [call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), opened, LAZY_PEER_ACCESS), pointer.value]


def ipc_close(pointer: int) -> int:
    return call("cuIpcCloseMemHandle", U64(pointer))


def import_own(handle: int) -> list[int]:
    """Export a handle and import it again in this process."""
    descriptor, imported = ctypes.c_int(), U64()
    code = call("cuMemExportToShareableHandle", ctypes.byref(descriptor), U64(handle), FILE_DESCRIPTOR, U64(0))
    if code:
        return [code, 0]
    where = ctypes.c_void_p(descriptor.value)
    code = call("cuMemImportFromShareableHandle", ctypes.byref(imported), where, FILE_DESCRIPTOR)
    os.close(descriptor.value)
    return [code, imported.value]
