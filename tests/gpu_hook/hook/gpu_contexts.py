"""The contexts of several makes that a driven program uses."""

from __future__ import annotations

import ctypes

from gpu_calls import call

SM_RESOURCE = 1
DEFAULT_STREAM = 1


def attach() -> int:
    """Count one more use of the current context."""
    return call("cuCtxAttach", ctypes.byref(ctypes.c_void_p()), 0)


def detach(context: int) -> int:
    return call("cuCtxDetach", ctypes.c_void_p(context))


def set_current(context: int) -> int:
    return call("cuCtxSetCurrent", ctypes.c_void_p(context))


def new_green(device: int = 0) -> list[int]:
    """Return code, green context with the whole device, and the context that is its handle."""
    resource = ctypes.create_string_buffer(1024)
    description, green, context = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    code = call("cuDeviceGetDevResource", device, resource, SM_RESOURCE)
    code = code or call("cuDevResourceGenerateDesc", ctypes.byref(description), resource, 1)
    code = code or call("cuGreenCtxCreate", ctypes.byref(green), description, device, DEFAULT_STREAM)
    code = code or call("cuCtxFromGreenCtx", ctypes.byref(context), green)
    return [code, green.value or 0, context.value or 0]


def end_green(green: int) -> int:
    return call("cuGreenCtxDestroy", ctypes.c_void_p(green))
