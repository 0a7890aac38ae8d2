"""The real node agent on stub devices, for tests of the layers above it, without a GPU."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from jupyter_aliquot.gpu_hook.agent.devices.devices import DeviceReading
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts
from jupyter_aliquot.gpu_hook.agent.main import run_agent
from jupyter_aliquot.gpu_hook.agent.settings import AgentSettings
from jupyter_aliquot.gpu_hook.paths import Driver, RuntimeDir


class StubDevices:
    """A DeviceSource. A file named ``lost-<index>`` in the folder makes that device vanish."""

    def __init__(self, count: int, memory_bytes: int, folder: Path) -> None:
        self._facts = [DeviceFacts(f"GPU-{index:032x}", index, "Stub GPU", memory_bytes) for index in range(count)]
        self._folder = folder

    def read(self) -> tuple[DeviceReading, ...]:
        return tuple(
            DeviceReading(facts, is_lost=(self._folder / f"lost-{facts.index}").exists()) for facts in self._facts
        )

    def close(self) -> None:
        """Do nothing: the source holds nothing open."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runtime-dir", type=Path, required=True)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--memory", type=int, default=4 << 30)
    options = parser.parse_args()
    settings = AgentSettings(
        RuntimeDir(options.runtime_dir),
        driver="softgpu",
        device_period_seconds=0.1,
        restart_grace_seconds=2.0,
        reconnect_seconds=2.0,
    )
    devices = StubDevices(options.devices, options.memory, options.runtime_dir)
    library = Path("/nonexistent/libcuda.so.1")
    return run_agent(settings, lambda driver: devices, lambda kind: Driver("softgpu", library, library))


if __name__ == "__main__":
    sys.exit(main())
