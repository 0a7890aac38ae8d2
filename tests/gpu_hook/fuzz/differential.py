"""Run one seed on two drivers, and report a difference so that it can be worked on.

It starts the fuzzer on both and compares record by record. The report has the seed, the call, both
answers, and the shortest sequence that still shows the difference.
"""

from __future__ import annotations

import importlib.util
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

HEADER = struct.Struct("=QQQQ")
OUT_OF_MEMORY = 2
TRIES = 250  # of the minimiser: each is two processes
LINES = 25  # of a report
RUNS = 4  # to see whether a difference comes again
STATE = "ALIQUOT_SOFTGPU_STATE"
SECONDS = 30  # for one sequence, on a busy machine


def load(path: Path) -> ModuleType:
    """Load a module by its path: test folders are no packages."""
    spec = importlib.util.spec_from_file_location(f"fuzz_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


minimise: Callable[..., list[int]] = load(Path(__file__).parent / "minimise.py").minimise


@dataclass(frozen=True)
class Sequence:
    """The fuzzer's records of one sequence."""

    number: int
    calls: int
    left_over: int
    records: tuple[int, ...]


class Ended(Exception):
    """The fuzzer's process ended, with this exit status."""


class Fuzzer:
    """A running fuzzer."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.pid = self._process.pid

    def read(self) -> Sequence:
        number, count, calls, left_over = HEADER.unpack(self._read(HEADER.size))
        return Sequence(number, calls, left_over, struct.unpack(f"={count}Q", self._read(8 * count)))

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"g")
        self._process.stdin.flush()

    def _read(self, count: int) -> bytes:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        data = self._process.stdout.read(count)
        if len(data) != count:
            raise Ended(f"exit {self._process.wait(SECONDS)}: {self._process.stderr.read().decode()[-2000:]}")
        return data

    def __enter__(self) -> Fuzzer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


@dataclass
class Pair:
    """The fuzzer's program and the two environments.

    ``look`` is called between sequences with the hooked process's pid, and returns the fault in the
    hook's books, or nothing.
    """

    program: Path
    bare: dict[str, str]
    hooked: dict[str, str]
    operations: int
    has_quota: bool = False
    is_modest: bool = False  # for injected faults: every call of the program is one of the driver
    look: Callable[[int], str] = lambda pid: ""
    rest: Callable[[], object] = lambda: None  # until the agent has noticed that all programs ended
    pace: Any = None  # paces the hooked program (tight_pace.py)
    calls: int = 0  # of the longest run
    stopped: list[int] = field(default_factory=list)  # sequences that met the quota

    def command(self, first: int, count: int, *more: str) -> list[str]:
        modes = ["quota"] * self.has_quota + ["modest"] * self.is_modest + ["paced"] * (self.pace is not None)
        return [str(self.program), str(first), str(count), str(self.operations), *modes, *more]

    def difference(self, first: int, count: int, *more: str) -> tuple[int, int, str] | None:
        """Return seed, operation's number, and fault of the first sequence that differs."""
        self.rest()
        with ExitStack() as stack:
            fuzzers = [stack.enter_context(Fuzzer(self.command(first, count, *more), env)) for env in self.envs()]
            for seed in range(first, first + count):
                try:
                    bare, hooked = (one.read() for one in fuzzers)
                except Ended as ended:
                    return seed, self.operations, f"a program ended: {ended}"
                self.calls = max(self.calls, hooked.calls)
                wrong = self._compare(bare, hooked, self.look(fuzzers[1].pid))
                if wrong:
                    return seed, *wrong
                for one in fuzzers:
                    one.go()
        return None

    def is_chance(self, first: int, seed: int) -> bool:
        """Return whether the driver alone answers so.

        It differs from itself then, or a second run is equal.

        Some of a driver's returned memory, such as a graph's addresses, comes back when a thread of
        its own is done.
        """
        again = replace(self, hooked={**self.bare, STATE: self.hooked[STATE]}, look=lambda pid: "")
        for pair in (again, self):
            found = [pair.difference(first, seed - first + 1) for _ in range(RUNS)]
            if any(one is not None and one[0] == seed for one in found):
                return pair is again
        return True

    def envs(self) -> tuple[dict[str, str], dict[str, str]]:
        return self.bare, self.hooked

    def _compare(self, bare: Sequence, hooked: Sequence, books: str) -> tuple[int, str] | None:
        end = len(bare.records) - 1
        for number, (left, right) in enumerate(zip(bare.records, hooked.records, strict=True)):
            if left == right:
                continue
            if self.has_quota and right & 0xFFFF == OUT_OF_MEMORY != left & 0xFFFF:
                self.stopped.append(hooked.number)
                break
            return number, "the answers differ"
        if bare.left_over or hooked.left_over:
            return end, f"{bare.left_over} and {hooked.left_over} bytes of the devices stay in use"
        return (end, books) if books else None

    def _title(self, seed: int, number: int, wrong: str) -> str:
        return f"seed {seed}, operation {number}: {wrong}"

    def _after(self, first: int, seed: int, number: int) -> str:
        """Return the answers to one operation of a sequence that needs those before it."""
        lines = []
        for name, env in zip(("bare", "hooked"), self.envs(), strict=True):
            self.rest()
            command = self.command(first, seed - first + 1, "verbose")
            done = subprocess.run(command, env=env, capture_output=True, timeout=10 * SECONDS, check=False)
            last = done.stdout.decode(errors="replace").rsplit("\n0 ", 1)[-1].splitlines()
            lines.append(f"  {name:6} {last[number] if number < len(last) else 'nothing'}")
        return "\n".join(lines)

    def explain(self, first: int, seed: int, number: int, wrong: str, only: Path) -> str:
        """Return the report of a difference in a run from ``first`` on.

        ``only`` is a file to write to.
        """

        def differs(numbers: list[int]) -> bool:
            only.write_text(" ".join(map(str, numbers)))
            return self.difference(seed, 1, f"only={only}") is not None

        everything = list(range(min(number + 1, self.operations)))
        if not differs(everything):
            return f"{self._title(seed, number, wrong)}, after the sequences from {first}:\n" + self._after(
                first, seed, number
            )
        shortest = minimise(everything, differs, TRIES)
        differs(shortest)
        self.rest()
        texts = [self._text(seed, env, only) for env in self.envs()]
        lines = [f"{self._title(seed, number, wrong)}. Of {len(everything)} operations these show it:"]
        if len(shortest) > LINES:
            lines.append(f"    … {len(shortest) - LINES} before them …")
        for at in [*shortest[-LINES:], self.operations]:
            left, right = (text.get(at, "nothing") for text in texts)
            lines += [f"    {left}"] if left == right else [f"  bare   {left}", f"  hooked {right}"]
        return "\n".join(lines)

    def _text(self, seed: int, env: dict[str, str], only: Path) -> dict[int, str]:
        done = subprocess.run(
            self.command(seed, 1, "verbose", f"only={only}"), env=env, capture_output=True, timeout=SECONDS, check=False
        )
        lines = done.stdout.decode(errors="replace").splitlines()
        return {int(line.split()[0]): line for line in lines if line.split()[:1] and line.split()[0].isdigit()}


def books(agent: Any, page: Any, devices: int) -> Callable[[int], str]:
    """Check the charge on the hook's page: 0 after everything was given back."""

    def look(pid: int) -> str:
        connection = agent.process(pid)
        for device in range(devices):
            charged, live = (connection.word(device, word) for word in (page.CHARGED, page.ALLOCATIONS))
            if charged or live:
                return f"the hook still charges {charged} bytes in {live} allocations to device {device}"
        on_host = connection.page_word(page.HOST_CHARGED)
        return f"the hook still charges {on_host} bytes of the host" if on_host else ""

    return look
