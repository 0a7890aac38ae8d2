"""A node agent over devices that do not exist: the program of ``aliquot agent`` without NVML.

The folder's ``devices`` file says how many devices of 1 GiB there are, which are lost, how busy
pids are, and which pids are on them with how many bytes. The agent reads it at each look, so that a
test can change it. While it ``hangs`` no look ends; its ``refuses`` is the reason why the driver
does not start. Its ``deadline`` is for looks, read at the agent's start, as is ``cuda``, the
libcuda with which the agent measures contexts.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_aliquot.gpu_hook.agent.devices.devices import DeviceReading, DriverError
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts
from jupyter_aliquot.gpu_hook.agent.main import run_agent
from jupyter_aliquot.gpu_hook.agent.settings import read_arguments
from jupyter_aliquot.gpu_hook.paths import Driver


def read_devices(file: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(file.read_text())
    return data


class FakeSource:
    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> tuple[DeviceReading, ...]:
        while (data := read_devices(self._file)).get("hangs"):
            time.sleep(0.005)
        if data.get("refuses"):
            raise DriverError(data["refuses"])
        return tuple(
            DeviceReading(
                DeviceFacts(f"GPU-00000000-0000-0000-0000-0000000000a{index}", index, "Fake", 1 << 30),
                used_bytes=123,
                is_lost=index in data.get("lost", []),
                busy={int(pid): seconds for pid, seconds in data.get("busy", {}).items()},
                covered_seconds=1.0,
                processes={int(pid): used for pid, used in data.get("processes", {}).items()},
                domain=data["domains"][index] if "domains" in data else None,
            )
            for index in range(data["count"])
        )

    def close(self) -> None:
        pass


if __name__ == "__main__":
    settings = read_arguments()
    file = settings.runtime.path / "devices"
    settings = replace(settings, driver_deadline_seconds=read_devices(file).get("deadline", 5.0))
    cuda = Path(read_devices(file).get("cuda", "/nowhere/libcuda.so.1"))
    driver = Driver("nvidia", cuda, Path("/nowhere/libnvidia-ml.so.1"))
    sys.exit(run_agent(settings, lambda _: FakeSource(file), find_driver=lambda _: driver))
