"""Code that a relay sends into an ipykernel once: a shell message that returns unused caches.

The code uses the frameworks that the user imported and imports nothing for it, leaves no name
behind, and never raises. It runs with the kernel's own Python, in images without Aliquot too, so it
has only the standard library of Python 3.8.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Callable
from typing import Any

REQUEST, REPLY = "aliquot_trim_request", "aliquot_trim_reply"
# A full collection takes about 10 ms for so many objects; with more of them the cache stays a
# little larger.
_MOST_OBJECTS = 200_000
_MOST_RESOURCES = 16  # of RMM, one on another
_RESERVED = 5  # CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT


def install() -> bool:
    """Install the message.

    Called by the relay. False in a kernel that is not built as ipykernel is.
    """
    from IPython import get_ipython

    kernel: Any = getattr(get_ipython(), "kernel", None)
    handlers = getattr(kernel, "shell_handlers", None)
    if not isinstance(handlers, dict):
        return False

    def handle(stream: Any, ident: Any, parent: Any) -> None:
        content = trim(parent["content"])
        kernel.session.send(stream, REPLY, content, parent, ident=ident)

    handlers[REQUEST] = handle
    return True


def trim(content: dict[str, Any]) -> dict[str, Any]:
    """Run on the kernel's main thread. The file ``while`` exists as long as no request waits."""
    returned = {}
    gave_way = False
    steps: dict[str, Callable[[Any], int]] = {
        "torch": _trim_torch,
        "cupy": _trim_cupy,
        "rmm": _trim_rmm,
        "tensorflow": _trim_tensorflow,
    }
    for name, step in steps.items():
        module = sys.modules.get(name)
        if module is None:
            continue
        if not os.path.exists(content["while"]):
            gave_way = True
            break
        try:
            returned[name] = max(0, int(step(module)))
        except (
            BaseException
        ):  # a framework half imported, replaced or broken; an interrupt: nothing of it is the user's
            continue
    return {"status": "ok", "bytes": sum(returned.values()), "frameworks": returned, "gave_way": gave_way}


def _collect() -> None:
    """Free what only dead cycles hold, such as a traceback's tensors.

    Does nothing if the user disabled the collector.
    """
    if gc.isenabled() and len(gc.get_objects()) < _MOST_OBJECTS:
        gc.collect()


def _trim_torch(torch: Any) -> int:
    cuda = torch.cuda
    if not cuda.is_initialized():
        return 0

    def kept() -> int:
        return sum(cuda.memory_reserved(device) for device in range(cuda.device_count()))

    before = kept()
    if not before:
        return 0
    _collect()
    cuda.empty_cache()
    return int(before - kept())


def _trim_cupy(cupy: Any) -> int:
    """Trim the current device alone: a look at another would create a context there."""
    pool = cupy.get_default_memory_pool()
    before = pool.total_bytes()
    if not before:
        return 0
    _collect()
    pool.free_all_blocks()
    cupy.get_default_pinned_memory_pool().free_all_blocks()
    return int(before - pool.total_bytes())


def _trim_rmm(rmm: Any) -> int:
    """Trim the stream-ordered pools of RMM's resources. Its own pools return nothing before their end."""
    returned, seen = 0, 0
    resource = rmm.mr.get_current_device_resource()
    while resource is not None and seen < _MOST_RESOURCES:
        handle = getattr(resource, "pool_handle", None)
        if handle is not None:
            _collect()
            returned += _trim_pool(_cuda(), ctypes.c_void_p(int(handle())))
        resource, seen = getattr(resource, "upstream_mr", None), seen + 1
    return returned


def _trim_tensorflow(tensorflow: Any) -> int:
    """Trim the pools that TensorFlow has with TF_GPU_ALLOCATOR=cuda_malloc_async.

    Its usual allocator returns nothing before the process ends: that memory is swapped. A device
    without a context gets none.
    """
    if "cuda_malloc_async" not in os.environ.get("TF_GPU_ALLOCATOR", ""):
        return 0
    cuda, count, returned = _cuda(), ctypes.c_int(), 0
    if cuda.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    _collect()
    for number in range(count.value):
        flags, active, pool = ctypes.c_uint(), ctypes.c_int(), ctypes.c_void_p()
        is_known = cuda.cuDevicePrimaryCtxGetState(number, ctypes.byref(flags), ctypes.byref(active)) == 0
        if is_known and active.value and cuda.cuDeviceGetDefaultMemPool(ctypes.byref(pool), number) == 0:
            returned += _trim_pool(cuda, pool)
    return returned


def _cuda() -> Any:
    """Return the driver that the process has loaded; this loads none. Raises OSError."""
    return ctypes.CDLL("libcuda.so.1", os.RTLD_NOLOAD | os.RTLD_NOW)


def _trim_pool(cuda: Any, pool: ctypes.c_void_p) -> int:
    """Return what a pool keeps without use; the bytes by which it shrank."""

    def reserved() -> int:
        found = ctypes.c_uint64()
        return 0 if cuda.cuMemPoolGetAttribute(pool, _RESERVED, ctypes.byref(found)) else found.value

    before = reserved()
    if before:
        cuda.cuMemPoolTrimTo(pool, ctypes.c_size_t(0))
    return before - reserved()
