"""The driver enforcer alone, on the software GPU of the environment: STATE FOLDER.

Folders stand for the cgroups. Prints one JSON line a step: the drifted limits, and those in force
for the folder on the first device.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pynvml

from jupyter_aliquot.gpu_hook.agent.enforcers.base import EnforcerError, KernelLimits
from jupyter_aliquot.gpu_hook.agent.enforcers.cgroups import CgroupHierarchy
from jupyter_aliquot.gpu_hook.agent.enforcers.driver import DriverEnforcer
from jupyter_aliquot.gpu_hook.paths import softgpu_driver
from jupyter_aliquot.gpu_hook.placement.placement import Part

MIB = 1 << 20


class OneFolder(CgroupHierarchy):
    def unavailable(self) -> str:
        return ""

    def leaf_of(self, kernel_id: str, pids: Sequence[int]) -> Path:
        return self.root


def main() -> None:
    folder = Path(sys.argv[1])
    driver = DriverEnforcer(softgpu_driver().nvml, OneFolder(folder))
    assert driver.unavailable() == ""
    pynvml.nvmlInit()
    uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0))

    def hold(quota: int) -> None:
        drifted = driver.hold(KernelLimits("k", (Part(uuid, 0, 50, quota),), (1,)))
        tell(drifted)

    def tell(drifted: Sequence[str]) -> None:
        found = driver.read(folder, uuid)
        print(json.dumps([list(drifted), found.soft_bytes, found.hard_bytes]))

    hold(8 * MIB)
    hold(8 * MIB)
    hold(16 * MIB)
    hold(4 * MIB)
    driver._set(folder, uuid, 0, 32 * MIB)
    hold(4 * MIB)
    driver.release("k")
    tell(())
    driver.release("k")
    folder.rmdir()
    try:
        hold(4 * MIB)
    except EnforcerError as error:
        print(json.dumps(str(error)))


if __name__ == "__main__":
    main()
