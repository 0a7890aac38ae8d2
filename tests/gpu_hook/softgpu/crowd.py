"""Several GPU loads on one software GPU, and what NVML's counters say of each: all in device time."""

from __future__ import annotations

import statistics
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

from gpu_load import GpuLoad, Load, Step

_READER = """
    nvml = ctypes.CDLL("libnvidia-ml.so.1"); check(nvml.nvmlInit_v2()); busy = ctypes.c_ulonglong()
    def read(pid):
        check(nvml.aliquot_softgpu_process_busy(pid, 0, ctypes.byref(busy)))
        return busy.value / 1000
    while pids := wait_for_go():
        say(*[read(int(pid)) for pid in pids.split()])
"""

Envs = dict[int, dict[str, str]] | None  # more settings of single members


class Crowd:
    """Loads that begin together; ended whatever happens."""

    def __init__(
        self, machine: Any, program: Path, *loads: Load, envs: dict[int, dict[str, str]] | None = None
    ) -> None:
        self._reader: subprocess.Popen[str] = machine.popen(_READER)
        self.members: list[GpuLoad] = []
        try:
            for index, load in enumerate(loads):
                self.members.append(GpuLoad(program, load, machine.env(**(envs or {}).get(index, {}))))
            for member in self.members:
                member.wait_ready()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for member in self.members:
            member.kill()
        self._reader.communicate("\n", timeout=20)

    def go(self) -> Crowd:
        for member in self.members:
            member.go()
        return self

    def busy_us(self, *members: int) -> list[float]:
        """Device time that these (or all) have had since they joined, at one moment."""
        chosen = [self.members[index] for index in members] or self.members
        assert self._reader.stdin is not None
        assert self._reader.stdout is not None
        self._reader.stdin.write(" ".join(str(member.pid) for member in chosen) + "\n")
        self._reader.stdin.flush()
        return [float(word) for word in self._reader.stdout.readline().split()]

    def busy_while(self, index: int, steps: int) -> list[float]:
        """Device time of each while one of them does so many steps; from when all are under way."""
        for member in self.members:
            member.wait_steps(1)
        before = self.busy_us()
        self.members[index].wait_steps(len(self.members[index].steps) + steps)
        return [after - own for own, after in zip(before, self.busy_us(), strict=True)]


def median_us(steps: list[Step]) -> float:
    return statistics.median(step.length_us for step in steps)
