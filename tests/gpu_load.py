"""A GPU load as a process: compile and start gpu_hook/load/gpu_load.c, and read its steps.

All times are device time. The module makes no environment: the caller passes one (bare, or a
kernel's own through the hook).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE / "gpu_hook" / "load" / "gpu_load.c"
BUILTINS = HERE.parent / "gpu_hook" / "builtins.ptx"


@dataclass(frozen=True)
class Load:
    """The work of each step, and the rest after it.

    Duty 0.25 means a rest of three times the step's length.
    """

    length_us: float = 100
    launches: int = 50
    pause_us: float = 0
    duty: float = 1
    steps: int = 0
    streams: int = 1
    priority: int = 0
    kind: str = "kernel"
    grid: int = 1
    device: int = 0
    work: int = 0  # 1: launches of a fixed work, not of a fixed time: they differ with neighbors
    round_ns: float = 0  # of that work; 0: measured at the start, which must be without neighbors

    def arguments(self) -> list[str]:
        return [f"{field.name}={getattr(self, field.name)}" for field in fields(self)]


@dataclass(frozen=True)
class Step:
    """One step: the time when its first launch could run, and its length.

    The length is until its last launch ended, neighbors' slices included.
    """

    begin_us: float
    length_us: float


def compile_load(folder: Path, libcuda: Path) -> Path:
    """Compile the program and return it; any driver library serves to link it."""
    program = folder / "gpu_load"
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed: install gcc"
    headers = [Path(f) / "nvidia/cu13/include" for f in sys.path] + [Path("/usr/local/cuda/include")]
    include = next(folder for folder in headers if (folder / "cuda.h").exists())
    command = [compiler, "-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-isystem", str(include)]
    subprocess.run([*command, str(SOURCE), str(libcuda), "-o", str(program)], check=True)
    return program


class GpuLoad:
    """A running load. Its output is read as it comes, so that it never waits for a reader."""

    def __init__(self, program: Path, load: Load, env: Mapping[str, str]) -> None:
        self.load = load
        self.process = subprocess.Popen(
            [str(program), *load.arguments()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"ALIQUOT_BUILTINS": str(BUILTINS), **env},
        )
        self._steps: list[Step] = []
        self._news = threading.Condition()
        self._is_ready = self._is_done = self._has_ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            words = line.split()
            with self._news:
                if words[0] == "step":
                    self._steps.append(Step(float(words[2]), float(words[3])))
                self._is_ready |= words[0] == "ready"
                self._is_done |= words[0] == "done"
                self._news.notify_all()
        with self._news:
            self._has_ended = True
            self._news.notify_all()

    def _wait(self, is_so: str, deadline_seconds: float) -> None:
        with self._news:
            self._news.wait_for(lambda: getattr(self, is_so) or self._has_ended, deadline_seconds)
            assert getattr(self, is_so), f"gpu_load: not {is_so[1:]} after {deadline_seconds} s, {self.process.poll()=}"

    def _say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def steps(self) -> list[Step]:
        """Return the steps that have ended until now."""
        with self._news:
            return list(self._steps)

    def wait_ready(self, deadline_seconds: float = 60) -> GpuLoad:
        """Wait until its context exists and it has warmed up."""
        self._wait("_is_ready", deadline_seconds)
        return self

    def go(self) -> None:
        self.wait_ready()
        self._say("go")

    def wait_steps(self, count: int, deadline_seconds: float = 60) -> list[Step]:
        """Wait until so many steps have ended."""
        with self._news:
            self._news.wait_for(lambda: len(self._steps) >= count or self._has_ended, deadline_seconds)
            assert len(self._steps) >= count, f"gpu_load: {len(self._steps)} steps, {self.process.poll()=}"
            return list(self._steps)

    def wait_done(self, deadline_seconds: float = 60) -> list[Step]:
        """Wait until it has done all its steps; it stays on the GPU, idle."""
        self._wait("_is_done", deadline_seconds)
        return self.steps

    def stop(self, deadline_seconds: float = 60) -> list[Step]:
        """End it after its present step; return all its steps."""
        assert self.process.stdin is not None
        if not self._is_done:
            self._say("stop")
        self._wait("_is_done", deadline_seconds)
        self.process.stdin.close()
        self.process.wait(deadline_seconds)
        self._reader.join(deadline_seconds)
        return self.steps

    def kill(self) -> None:
        """Kill it as kill -9 does; also to clean up, in any state."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()
