"""Code that a relay sends into an ipykernel once: a shell message that returns unused caches.

The code uses the frameworks that the user imported and imports nothing for it, leaves no name
behind, and never raises. It runs with the kernel's own Python, in images without Aliquot too, so it
has only the standard library of Python 3.8.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from typing import Any

REQUEST, REPLY = "aliquot_trim_request", "aliquot_trim_reply"
# A full collection takes about 10 ms for so many objects; with more of them the cache stays a
# little larger.
_MOST_OBJECTS = 200_000


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
    steps: dict[str, Callable[[Any], int]] = {"torch": _trim_torch, "cupy": _trim_cupy}
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
