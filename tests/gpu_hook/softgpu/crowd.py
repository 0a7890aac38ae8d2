"""Several GPU loads on one software GPU, and NVML's counters of each: all in device time."""

from __future__ import annotations

import statistics
import subprocess
import time
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
        """Return the device time that these (or all) have had since they joined, at one moment."""
        chosen = [self.members[index] for index in members] or self.members
        assert self._reader.stdin is not None
        assert self._reader.stdout is not None
        self._reader.stdin.write(" ".join(str(member.pid) for member in chosen) + "\n")
        self._reader.stdin.flush()
        return [float(word) for word in self._reader.stdout.readline().split()]

    def busy_for(self, us: float) -> list[float]:
        """Return the device time of each while together they have so much.

        The time counts from when all are under way. This is for steps that last longer, so that no
        host comes late with its next one.
        """
        start = before = self.busy_us()
        while not all(own > first for first, own in zip(start, before, strict=True)):
            time.sleep(0.002)
            before = self.busy_us()
        while sum(after := self.busy_us()) - sum(before) < us:
            time.sleep(0.01)
        return [late - early for early, late in zip(before, after, strict=True)]

    def steps_beside(self, count: int) -> list[list[Step]]:
        """Return so many steps of each, of endless loads: the others are under way all the time."""
        for member in self.members:
            member.wait_steps(1)
        begun = [len(member.steps) + 1 for member in self.members]
        return [
            member.wait_steps(first + count)[first : first + count]
            for first, member in zip(begun, self.members, strict=True)
        ]

    def rest(self) -> Crowd:
        """Let all end behind their present step, and stay on the GPU, idle."""
        for member in self.members:
            assert member.process.stdin is not None
            member.process.stdin.write("stop\n")
            member.process.stdin.flush()
        for member in self.members:
            member.wait_done()
        return self


def median_us(steps: list[Step]) -> float:
    return statistics.median(step.length_us for step in steps)
