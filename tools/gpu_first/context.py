"""The context of a phase: where it may write, how long it may take, and how it reports findings.

It owns the findings file.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gpu_tests
from gpu_headers import HeaderMissingError, header_folder

ROOT = gpu_tests.ROOT
TAIL = 1500  # characters of an output that a finding keeps
LAST_WORDS_SECONDS = 5.0


@dataclass(frozen=True)
class Done:
    """A command that ended. ``code`` is None if its time limit ended it."""

    code: int | None
    out: str
    err: str
    seconds: float

    @property
    def why(self) -> str:
        """Return one line for a finding: the last line that the command printed."""
        if self.code is None:
            return f"it did not end within {self.seconds:.0f} s"
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return f"exit {self.code}: {lines[-1][:300] if lines else 'no output'}"


@dataclass
class Context:
    """The context of one phase, in the phase's own process.

    Each finding is flushed at once: if the phase hangs, the earlier findings remain.
    """

    phase: str
    gpu: str
    work: Path
    seconds: float
    prebuilt: Path | None = None
    has_failed: bool = False
    began: float = field(default_factory=time.monotonic)

    @property
    def is_soft(self) -> bool:
        return self.gpu == "softgpu"

    def left(self) -> float:
        return max(1.0, self.seconds - (time.monotonic() - self.began))

    def tell(self, **finding: Any) -> None:
        """Add a finding to the phase's result."""
        self._write({"found": finding})

    def fail(self, line: str, **finding: Any) -> None:
        """Report in one line what does not hold, and go on."""
        self.has_failed = True
        self._write({"says": line})
        if finding:
            self.tell(**finding)

    def complain(self, line: str, *stops: str) -> None:
        """Report in one line what the machine lacks.

        The runner skips each phase that needs one of ``stops``.
        """
        self._write({"says": line, "stops": list(stops)})

    def _write(self, record: Mapping[str, Any]) -> None:
        with (self.work / f"{self.phase}.findings").open("a") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def file(self, name: str) -> Path:
        """Return a path for details of this phase."""
        return self.work / f"{self.phase}-{name}"

    def run(self, command: Sequence[str], seconds: float = 0.0, env: Mapping[str, str] | None = None) -> Done:
        """Run a command to its end or its time limit (0: the phase's limit).

        At the limit its process group is interrupted, then killed.
        """
        seconds = min(seconds or self.left(), self.left())
        began = time.monotonic()
        process = subprocess.Popen(
            [str(word) for word in command], cwd=ROOT, env=dict(env or self.environment()), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, errors="replace",
            preexec_fn=os.setpgrp,  # its own group; the runner kills the rest of the session
        )  # fmt: skip
        code: int | None = None
        try:
            out, err = process.communicate(timeout=seconds)
            code = process.returncode
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as reason:
            out, err = _end(process)
            if isinstance(reason, KeyboardInterrupt):
                raise
        print(f"$ {' '.join(map(str, command))}\n{out}{err}", flush=True)
        return Done(code, out, err, time.monotonic() - began)

    def environment(self) -> dict[str, str]:
        """Return the environment of tests and benchmarks on this GPU.

        Without headers, programs that need none still run.
        """
        dropped = ("ALIQUOT_", "LD_PRELOAD", "LD_AUDIT", "CUDA_VISIBLE_DEVICES")
        env = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        path = [str(gpu_tests.FARM), str(ROOT / "tools"), *filter(None, [env.get("PYTHONPATH")])]
        env |= {"ALIQUOT_GPU": self.gpu, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}
        if not self.is_soft:
            env["ALIQUOT_TEST_GPU"] = "1"
        with suppress(HeaderMissingError):
            env["CPATH"] = str(header_folder("nvml.h"))
        return env

    def driver(self) -> Any:
        """Return the libraries below the hook (paths.Driver). Raises paths.PathError."""
        return self.paths().choose_driver(self.gpu)

    def paths(self) -> Any:
        """Return the tree's module jupyter_aliquot.gpu_hook.paths.

        The build phase linked its native libraries.
        """
        if str(gpu_tests.FARM) not in sys.path:
            sys.path.insert(0, str(gpu_tests.FARM))
            os.environ["PYTHONPATH"] = self.environment()[
                "PYTHONPATH"
            ]  # an agent that the phase starts imports it, too
        from jupyter_aliquot.gpu_hook import paths

        return paths


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """End a process and return its output, also what it printed after the signal.

    pytest writes its summary then.
    """
    for number, seconds in ((signal.SIGINT, LAST_WORDS_SECONDS), (signal.SIGKILL, LAST_WORDS_SECONDS)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            return process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            continue
    return "", "its output stays open: something that it started lives on"
