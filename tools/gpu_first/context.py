"""What a phase gets: where it may write, how long it has, and how it tells what it found. Owns the findings file."""

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
    """A command that ended. ``code`` is None where its limit ended it."""

    code: int | None
    out: str
    err: str
    seconds: float

    @property
    def why(self) -> str:
        """One line for a finding: the last thing that the command said."""
        if self.code is None:
            return f"it did not end within {self.seconds:.0f} s"
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return f"exit {self.code}: {lines[-1][:300] if lines else 'no output'}"


@dataclass
class Context:
    """Of one phase, in the phase's own process. Findings are flushed one by one: a hang keeps what came before."""

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
        """Say in one line what does not hold, and go on."""
        self.has_failed = True
        self._write({"says": line})
        if finding:
            self.tell(**finding)

    def complain(self, line: str, *stops: str) -> None:
        """Say in one line what the machine lacks, and what phases need (``stops``) that therefore are skipped."""
        self._write({"says": line, "stops": list(stops)})

    def _write(self, record: Mapping[str, Any]) -> None:
        with (self.work / f"{self.phase}.findings").open("a") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def file(self, name: str) -> Path:
        """A path for details of this phase."""
        return self.work / f"{self.phase}-{name}"

    def run(self, command: Sequence[str], seconds: float = 0.0, env: Mapping[str, str] | None = None) -> Done:
        """Run a command to its end or its limit (0: the phase's); its group is interrupted first, then killed."""
        seconds = min(seconds or self.left(), self.left())
        began = time.monotonic()
        process = subprocess.Popen(
            [str(word) for word in command], cwd=ROOT, env=dict(env or self.environment()), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, errors="replace",
            preexec_fn=os.setpgrp,  # a group of its own, in the phase's session: the runner ends what is left of that
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
        """What tests and benchmarks on this GPU run in; without headers, what needs none still runs."""
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
        """The libraries below the hook (paths.Driver). Raises paths.PathError."""
        return self.paths().choose_driver(self.gpu)

    def paths(self) -> Any:
        """The module jupyter_aliquot.gpu_hook.paths of the tree, whose native libraries the build phase linked."""
        if str(gpu_tests.FARM) not in sys.path:
            sys.path.insert(0, str(gpu_tests.FARM))
            os.environ["PYTHONPATH"] = self.environment()[
                "PYTHONPATH"
            ]  # an agent that the phase starts imports it, too
        from jupyter_aliquot.gpu_hook import paths

        return paths


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it said, also after it was told to end: pytest writes its summary then."""
    for number, seconds in ((signal.SIGINT, LAST_WORDS_SECONDS), (signal.SIGKILL, LAST_WORDS_SECONDS)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            return process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            continue
    return "", "its output stays open: something that it started lives on"
