"""Make a context on each device, and wait.

Run as ``python -m …agent.devices.context_process LIBCUDA``. This is a process of its own, since
contexts would cost the agent memory on every device, and a driver may hang while it makes them. It
prints a line of JSON once they are there, ``{"devices": ["GPU-…"], "errors": ["…"]}`` or
``{"error": "…"}``, and ends with its stdin.
"""

from __future__ import annotations

import ctypes
import json
import sys
import uuid


class _DriverFailed(Exception):
    pass


def make_contexts(library: str) -> tuple[list[str], list[str]]:
    """Return the UUIDs of the devices that have a context now, and the errors of the others.

    Raises OSError, AttributeError, _DriverFailed.
    """
    cuda = ctypes.CDLL(library)

    def call(name: str, *arguments: object) -> None:
        if error := int(getattr(cuda, name)(*arguments)):
            raise _DriverFailed(f"{name} answered {error}")

    def make(number: int) -> str:
        device, context, raw = ctypes.c_int(), ctypes.c_void_p(), (ctypes.c_ubyte * 16)()
        call("cuDeviceGet", ctypes.byref(device), number)
        call("cuDeviceGetUuid_v2" if hasattr(cuda, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid", raw, device)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        return f"GPU-{uuid.UUID(bytes=bytes(raw))}"

    call("cuInit", 0)
    count = ctypes.c_int()
    call("cuDeviceGetCount", ctypes.byref(count))
    made, errors = list[str](), list[str]()
    for number in range(count.value):
        try:
            made.append(make(number))
        except _DriverFailed as error:
            errors.append(f"device {number}: {error}")
    return made, errors


def main() -> None:
    try:
        made, errors = make_contexts(sys.argv[1])
        answer: dict[str, object] = {"devices": made, "errors": errors}
    except (OSError, AttributeError, _DriverFailed) as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
