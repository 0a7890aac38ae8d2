"""Make a context on each device, wait, and then try there how memory is swapped.

Run as ``python -m …agent.devices.context_process LIBCUDA``. This is a process of its own, since
contexts would cost the agent memory on every device, and a driver may hang while it makes them. It
prints a line of JSON once they are there, ``{"devices": ["GPU-…"], "errors": ["…"]}`` or
``{"error": "…"}``. For a line on its stdin it swaps a little memory of each device out and in, and
prints the outcomes, ``{"moves": {"GPU-…": ""}}``, with the reason of a failure. It ends with its
stdin.
"""

from __future__ import annotations

import ctypes
import json
import sys
import uuid
from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.agent.devices.mover_check import MoveError, check_move


class _DriverFailed(Exception):
    pass


@dataclass(frozen=True)
class _Made:
    """A context, and its device's number."""

    number: int
    context: ctypes.c_void_p


class _Driver:
    """The driver's library. Raises OSError, AttributeError and _DriverFailed."""

    def __init__(self, library: str) -> None:
        self._cuda = ctypes.CDLL(library)

    def call(self, name: str, *arguments: object) -> None:
        if error := int(getattr(self._cuda, name)(*arguments)):
            raise _DriverFailed(f"{name} answered {error}")

    def make_contexts(self) -> tuple[dict[str, _Made], list[str]]:
        """Return the contexts by their devices' UUIDs, and the errors of other devices."""
        self.call("cuInit", 0)
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        made, errors = dict[str, _Made](), list[str]()
        for number in range(count.value):
            try:
                made.update([self._make(number)])
            except _DriverFailed as error:
                errors.append(f"device {number}: {error}")
        return made, errors

    def _make(self, number: int) -> tuple[str, _Made]:
        device, context, raw = ctypes.c_int(), ctypes.c_void_p(), (ctypes.c_ubyte * 16)()
        self.call("cuDeviceGet", ctypes.byref(device), number)
        has_v2 = hasattr(self._cuda, "cuDeviceGetUuid_v2")
        self.call("cuDeviceGetUuid_v2" if has_v2 else "cuDeviceGetUuid", raw, device)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        return f"GPU-{uuid.UUID(bytes=bytes(raw))}", _Made(device.value, context)

    def check(self, made: _Made) -> str:
        """Return why memory cannot be swapped there; empty where it can."""
        try:
            self.call("cuCtxSetCurrent", made.context)
            check_move(self.call, made.number)
        except (AttributeError, MoveError, _DriverFailed) as error:
            return str(error)
        return ""


def main() -> None:
    made: dict[str, _Made] = {}
    try:
        driver = _Driver(sys.argv[1])
        made, errors = driver.make_contexts()
        answer: dict[str, object] = {"devices": list(made), "errors": errors}
    except (OSError, AttributeError, _DriverFailed) as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
    if sys.stdin.readline():
        print(json.dumps({"moves": {uuid: driver.check(one) for uuid, one in made.items()}}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
