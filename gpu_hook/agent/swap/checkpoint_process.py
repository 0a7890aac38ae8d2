"""A small process that checkpoints others: ``python -m …agent.swap.checkpoint_process LIBCUDA``.

Attaching to the driver takes seconds, so the process stays. It is no part of the agent, since a
driver that hangs or crashes at this must not take the agent along. It reads requests as lines of
JSON from stdin, one at a time, and answers each:

    {"verb": "lock", "pid": 4711, "timeout_ms": 2000}   →   {"error": 0, "state": 1}

``gpus`` of a restore are pairs of UUIDs: each GPU of the node, and the one that replaces it.
``error`` is the CUresult. The process ends with its stdin. It makes no context, so it holds no
memory of any device.
"""

from __future__ import annotations

import ctypes
import json
import sys
import uuid
from collections.abc import Callable, Sequence
from typing import Any

_SINCE = 12080  # CUDA 12.8
_INVALID_VALUE = 1
_NOT_FOUND = 500
_VERBS = {
    "lock": "cuCheckpointProcessLock",
    "checkpoint": "cuCheckpointProcessCheckpoint",
    "restore": "cuCheckpointProcessRestore",
    "unlock": "cuCheckpointProcessUnlock",
}
_STATE = "cuCheckpointProcessGetState"


class LockArguments(ctypes.Structure):
    """The driver's CUcheckpointLockArgs."""

    _fields_ = (
        ("timeout_milliseconds", ctypes.c_uint),
        ("reserved0", ctypes.c_uint),
        ("reserved1", ctypes.c_uint64 * 7),
    )


class GpuPair(ctypes.Structure):
    """The driver's CUcheckpointGpuPair."""

    _fields_ = (("old", ctypes.c_ubyte * 16), ("new", ctypes.c_ubyte * 16))


class RestoreArguments(ctypes.Structure):
    """The driver's CUcheckpointRestoreArgs."""

    _fields_ = (
        ("pairs", ctypes.POINTER(GpuPair)),
        ("count", ctypes.c_uint),
        ("padding", ctypes.c_uint),
        ("reserved", ctypes.c_uint64 * 6),
    )


def restore_arguments(gpus: Sequence[Sequence[str]]) -> RestoreArguments:
    """Return a map of GPUs as the driver takes it. Raises ValueError for what is no UUID."""
    pairs = (GpuPair * len(gpus))(*(GpuPair(_uuid(old), _uuid(new)) for old, new in gpus))
    return RestoreArguments(pairs, len(gpus))


def _uuid(text: str) -> Any:
    return (ctypes.c_ubyte * 16)(*uuid.UUID(text.removeprefix("GPU-")).bytes)


class Checkpoints:
    """The driver's checkpoint functions.

    Raises OSError when the library does not load.
    """

    def __init__(self, library: str) -> None:
        self._cuda = ctypes.CDLL(library)
        self._functions = {name: self._find(name) for name in (*_VERBS.values(), _STATE)}

    def start(self) -> int:
        """Call cuInit, and find all functions. Return a CUresult."""
        error = int(self._cuda.cuInit(0))
        return error or (0 if all(self._functions.values()) else _NOT_FOUND)

    def act(self, verb: str, pid: int, timeout_milliseconds: int, gpus: Sequence[Sequence[str]] = ()) -> int:
        function = self._functions[_VERBS[verb]]
        if function is None:
            return _NOT_FOUND
        lock, restore = LockArguments(timeout_milliseconds, 0), restore_arguments(gpus)
        told = {"lock": lock, "restore": restore if gpus else None}.get(verb)
        return int(function(pid, None if told is None else ctypes.byref(told)))

    def state(self, pid: int) -> int | None:
        """Return the CUprocessState; None where the driver does not tell."""
        function, found = self._functions[_STATE], ctypes.c_int(-1)
        if function is None or function(pid, ctypes.byref(found)) != 0:
            return None
        return found.value

    def _find(self, name: str) -> Callable[..., int] | None:
        """Find a function by the driver's resolver.

        dlsym gives the first version of a function, whatever came since.
        """
        address, status = ctypes.c_void_p(), ctypes.c_int()
        resolve = self._cuda.cuGetProcAddress_v2
        resolve.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p)
        error = resolve(name.encode(), ctypes.byref(address), _SINCE, 0, ctypes.byref(status))
        if error or not address.value:
            return None
        return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)(address.value)


def answer(checkpoints: Checkpoints, line: str) -> dict[str, Any]:
    """Answer a line, whatever it contains."""
    try:
        request = json.loads(line)
        verb, pid = request["verb"], int(request["pid"])
        timeout = int(request.get("timeout_ms", 0))
        gpus = [(str(old), str(new)) for old, new in request.get("gpus", ())]
        restore_arguments(gpus)
    except (ValueError, KeyError, TypeError):
        return {"error": _INVALID_VALUE, "state": None}
    if verb != "state" and verb not in _VERBS:
        return {"error": _INVALID_VALUE, "state": None}
    error = 0 if verb == "state" else checkpoints.act(verb, pid, timeout, gpus)
    return {"error": error, "state": checkpoints.state(pid)}


def main(arguments: list[str]) -> int:
    """Serve requests; return the exit code.

    The first line of output tells how the start went.
    """
    try:
        checkpoints = Checkpoints(arguments[0])
        error = checkpoints.start()
    except (IndexError, OSError, AttributeError) as problem:
        print(json.dumps({"error": -1, "text": str(problem)}), flush=True)
        return 1
    print(json.dumps({"error": error, "text": ""}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(checkpoints, line)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
