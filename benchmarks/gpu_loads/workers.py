"""Programs that load a GPU, each in a kernel of its own.

They start, begin and end together; their steps are read back.
"""

from __future__ import annotations

import queue
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

READY_SECONDS = 180.0
DONE_SECONDS = 120.0


class LoadError(Exception):
    """A program ended, or did not answer."""


@dataclass(frozen=True)
class Step:
    """One step in microseconds: its begin after the run's first step, and its length."""

    begin: float
    length: float


class Worker:
    """One program.

    ``can_repeat``: it waits for the next run; else each run starts it anew.
    """

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path, can_repeat: bool) -> None:
        self.name = name
        self._command, self._env, self._log, self._can_repeat = command, dict(env), log, can_repeat
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def start(self) -> None:
        """Start the program unless it already waits.

        ``await_ready`` comes next: several programs may start at once.
        """
        if self._process is not None:
            return
        pipe = subprocess.PIPE
        with self._log.open("a") as errors:
            self._process = subprocess.Popen(
                self._command, stdin=pipe, stdout=pipe, stderr=errors, env=self._env, text=True, bufsize=1
            )
        assert self._process.stdout is not None
        self._lines = queue.SimpleQueue()
        threading.Thread(target=_read, args=(self._process.stdout, self._lines), daemon=True).start()
        self._is_ready = False

    def await_ready(self) -> None:
        if not self._is_ready:
            while self._next(READY_SECONDS) != "ready":
                pass
            self._is_ready = True

    def begin(self) -> None:
        self._say("go")

    def end(self) -> tuple[Step, ...]:
        """End the run; return its steps."""
        self._tell_to_stop()
        steps, deadline = [], time.monotonic() + DONE_SECONDS
        while not (line := self._next(deadline - time.monotonic())).startswith("done "):
            word, _, begin, length = line.split()
            if word == "step":
                steps.append(Step(float(begin), float(length)))
        if not self._can_repeat:
            self.close()
        return tuple(steps)

    def close(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None

    def _tell_to_stop(self) -> None:
        """End the program's run.

        A program without repetition reads by the block: a line right after the first would be lost.
        """
        if self._can_repeat:
            return self._say("stop")
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _say(self, word: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()
        except OSError as error:
            raise LoadError(f"{self.name} ended; {self._log} has why") from error

    def _next(self, seconds: float) -> str:
        try:
            line = self._lines.get(timeout=max(0.0, seconds))
        except queue.Empty:
            raise LoadError(f"{self.name} did not say in time what it should; {self._log} may have why") from None
        if not line:
            raise LoadError(f"{self.name} ended; {self._log} has why")
        return line.strip()


def _read(output: TextIO, lines: queue.SimpleQueue[str]) -> None:
    try:
        for line in output:
            lines.put(line)
    except ValueError:  # closed in the meantime
        pass
    lines.put("")


def start_all(workers: Iterable[Worker]) -> None:
    """Start several in parallel: most of the time is importing."""
    started = tuple(workers)
    for worker in started:
        worker.start()
    for worker in started:
        worker.await_ready()
