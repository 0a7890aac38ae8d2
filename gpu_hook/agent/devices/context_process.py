"""Make a context on each device, and wait: ``python -m …agent.devices.context_process LIBCUDA``.

A process of its own, for contexts cost the agent memory on every device, and a driver may hang at them. Prints a line
of JSON once they are there, ``{"devices": N}`` or ``{"error": "…"}``, and ends with its stdin.
"""

from __future__ import annotations

import ctypes
import json
import sys


class _DriverFailed(Exception):
    pass


def make_contexts(library: str) -> int:
    """Return on how many devices. Raises OSError, AttributeError, _DriverFailed."""
    cuda = ctypes.CDLL(library)

    def call(name: str, *arguments: object) -> None:
        if error := int(getattr(cuda, name)(*arguments)):
            raise _DriverFailed(f"{name} answered {error}")

    call("cuInit", 0)
    count, device, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
    call("cuDeviceGetCount", ctypes.byref(count))
    for number in range(count.value):
        call("cuDeviceGet", ctypes.byref(device), number)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    return count.value


def main() -> None:
    try:
        answer: dict[str, object] = {"devices": make_contexts(sys.argv[1])}
    except (OSError, AttributeError, _DriverFailed) as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
