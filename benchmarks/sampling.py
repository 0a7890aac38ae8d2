"""Ask running programs in shuffled order, and evaluate their answers.

The module does not know what they measure.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TextIO, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
LOG = Path(__file__).resolve().parent.parent / "build" / "bench" / "programs.log"


def open_log() -> TextIO:
    """Open the log of the programs' errors: hooks that print must not spoil the table."""
    LOG.parent.mkdir(parents=True, exist_ok=True)
    return LOG.open("a")


class Program:
    """A program of benchmarks/hook that answers one question a line."""

    def __init__(self, name: str, command: Sequence[str | Path], env: Mapping[str, str], cpu: int | None) -> None:
        self.name = name
        # All threads of the program on one processor, so that no sample pays for a move.
        pin = None if cpu is None else (lambda: os.sched_setaffinity(0, {cpu}))
        with open_log() as log:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                env=dict(env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
                preexec_fn=pin,
            )
        self._line()

    def ask(self, measure: str, count: int) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{measure} {count}\n")
        self._process.stdin.flush()
        return float(self._line())

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the program with {self.name!r} ended with code {self._process.wait()}; see {LOG}")
        return line


def in_shuffled_rounds(
    questions: Mapping[_Key, Callable[[], float]], rounds: int, title: str, seed: int
) -> dict[_Key, list[float]]:
    """Ask every question once a round, in a new order each round, so that drift affects all alike."""
    answers: dict[_Key, list[float]] = {key: [] for key in questions}
    order = list(questions)
    chance = random.Random(seed)
    begin = time.monotonic()
    for number in range(rounds):
        chance.shuffle(order)
        for key in order:
            answers[key].append(questions[key]())
        print(f"\r{title}: {number + 1} of {rounds}, {time.monotonic() - begin:.0f} s", end="", file=sys.stderr)
    print(file=sys.stderr)
    return answers


def added(subject: Sequence[float], bare: Sequence[float]) -> float:
    """Return the median of the paired differences: each pair was measured in the same round."""
    return statistics.median(a - b for a, b in zip(subject, bare, strict=True))
