"""Run the phases one after the other, each in a process of its own with its own time limit.

A phase that fails stops no other. The runner writes below the results' folder: first.jsonl (a line
per phase, at once), and summary.txt and details.tar.gz at the end of the phases, of the budget, or
after an interrupt.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .keeper import Keeper
from .kernel_log import XidWatch
from .phases import Phase

ENDING_SECONDS = 4.0  # of the budget, for the summary and the archive
LEAST_SECONDS = 3.0  # a phase is left out if less is left
LAST_WORDS_SECONDS = 6.0  # after the interrupt of a phase at its limit
INTERRUPTED_SECONDS = 2.0  # the same if the whole run is ended
POLL_SECONDS = 0.05
LARGEST_DETAIL = 8 << 20  # of one file in the archive: a longer file keeps its end
OK, FAILED, STOPPED, SKIPPED = "ok", "failed", "stopped", "skipped"


@dataclass(frozen=True)
class Result:
    """One line of first.jsonl.

    ``says``: lines for people; ``found``: measurements and comparisons.
    """

    phase: str
    outcome: str
    seconds: float
    limit: float
    retires: Sequence[str]
    says: Sequence[str]
    found: Sequence[Any]


class Runner:
    """The runner of one run.

    ``command`` starts a phase in a process of its own; its arguments are the phase's name and
    limits.
    """

    def __init__(self, gpu: str, out: Path, budget: float, command: Sequence[str]) -> None:
        self._gpu, self._out, self._command = gpu, out, tuple(command)
        self._until = time.monotonic() + budget
        self._work = Path(tempfile.mkdtemp(prefix="gpu-first-"))
        self._stops: dict[str, str] = {}  # need of phases, lacking here → the line that says so
        self._results: list[Result] = []
        self._is_interrupted = False
        self._keeper = Keeper()
        self._xids = XidWatch() if gpu == "nvidia" else None
        out.mkdir(parents=True, exist_ok=True)
        (out / "first.jsonl").write_text("")

    def run_all(self, chosen: Sequence[Phase]) -> int:
        """Run the phases; return 0 if none failed and none was stopped."""
        for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background job ignores SIGINT
            signal.signal(number, self._note_interrupt)
        try:
            for phase in chosen:
                self._add(self._run(phase))
                if not self._is_interrupted and self._gpu == "nvidia" and "gpu" not in self._stops:
                    self._keeper.start()
        finally:
            self._keeper.stop()
            self._write_summary()
        return 1 if any(result.outcome in (FAILED, STOPPED) for result in self._results) else 0

    def _run(self, phase: Phase) -> Result:
        left = self._until - time.monotonic() - ENDING_SECONDS
        limit = min(phase.limit(self._gpu), left)
        lacking = [self._stops[need] for need in phase.needs if need in self._stops]
        reason = (
            "interrupted" if self._is_interrupted
            else lacking[0] if lacking
            else "the budget is spent" if left < LEAST_SECONDS
            else ""
        )  # fmt: skip
        if reason:
            return Result(phase.name, SKIPPED, 0.0, phase.limit(self._gpu), phase.retires, [reason], [])
        print(f"{phase.name} (at most {limit:.0f} s) …", flush=True)
        began = time.monotonic()
        code = self._run_process(phase, limit)
        says, found = self._read_findings(phase)
        outcome = {0: OK, None: STOPPED}.get(code, FAILED)
        if code is None:
            says.append("interrupted" if self._is_interrupted else f"stopped at its limit of {limit:.0f} s")
        elif code and not says:
            says.append(f"exit {code}: {self._last_line(phase)}")
        return Result(phase.name, outcome, round(time.monotonic() - began, 2), limit, phase.retires, says, found)

    def _run_process(self, phase: Phase, limit: float) -> int | None:
        """Run a phase; return its exit code, None if its limit or an interrupt ended it."""
        command = [*self._command, "--phase", phase.name, "--gpu", self._gpu]
        command += ["--work", str(self._work), "--budget", f"{limit:.1f}"]
        with (self._work / f"{phase.name}.log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        until = time.monotonic() + limit
        while process.poll() is None and time.monotonic() < until and not self._is_interrupted:
            time.sleep(POLL_SECONDS)
        if process.returncode is not None:
            return process.returncode
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(INTERRUPTED_SECONDS if self._is_interrupted else LAST_WORDS_SECONDS)
        _kill_session(process.pid)
        process.wait()
        return None

    def _note_interrupt(self, number: int, frame: object) -> None:
        """End the phase that runs, and leave the others out. Called for SIGINT and SIGTERM."""
        self._is_interrupted = True

    def _read_findings(self, phase: Phase) -> tuple[list[str], list[Any]]:
        says: list[str] = []
        found: list[Any] = []
        path = self._work / f"{phase.name}.findings"
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                record = json.loads(line)
            except ValueError:  # the phase was killed while it wrote
                continue
            says += [record["says"]] if "says" in record else []
            found += [record["found"]] if "found" in record else []
            for need in record.get("stops", ()):
                self._stops.setdefault(need, record["says"])
        return says, found

    def _last_line(self, phase: Phase) -> str:
        lines = (self._work / f"{phase.name}.log").read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"

    def _add(self, result: Result) -> None:
        self._results.append(result)
        with (self._out / "first.jsonl").open("a") as file:
            file.write(json.dumps(asdict(result), ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _write_summary(self) -> None:
        """Print the table, and write the details of all phases into one file."""
        rows = [(result.phase, result.outcome, f"{result.seconds:.1f} s", _first(result)) for result in self._results]
        widths = [max([len(row[column]) for row in rows] or [0]) for column in range(3)]
        lines = ["  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]]).rstrip()
                 for row in rows]  # fmt: skip
        lines += self._xids.report() if self._xids is not None else []
        (self._out / "summary.txt").write_text("\n".join(lines) + "\n")
        print("\n" + "\n".join(lines), flush=True)
        with tarfile.open(self._out / "details.tar.gz", "w:gz") as archive:
            for path in sorted(self._work.rglob("*")):
                if path.is_file():
                    _cut(path)
                    archive.add(path, path.relative_to(self._work))
        shutil.rmtree(self._work, ignore_errors=True)
        for left in Path("/dev/shm").glob(f"{self._work.name}*"):  # of software GPUs
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
        print(f"written: {self._out / 'first.jsonl'}, summary.txt, details.tar.gz", flush=True)


def _first(result: Result) -> str:
    more = f" (and {len(result.says) - 1} more)" if len(result.says) > 1 else ""
    return (result.says[0] + more) if result.says else ""


def _kill_session(leader: int) -> None:
    """Kill every process of the phase's session.

    Daemons left it; the phase's groups are in it.
    """
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if os.getsid(int(entry.name)) == leader:
                os.kill(int(entry.name), signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _cut(path: Path) -> None:
    if path.stat().st_size > LARGEST_DETAIL:
        with path.open("rb") as file:
            file.seek(-LARGEST_DETAIL, os.SEEK_END)
            end = file.read()
        path.write_bytes(end)
