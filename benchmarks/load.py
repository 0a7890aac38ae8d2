"""Measure the load that one gateway carries: 1,000 kernels of 200 users, and churn.

The users listen and poll; the churn is an hour's, cut short. The gateway is a real `aliquot serve`
with a real node agent on the software GPU; behind the relays' interface are stand-ins
(load/standin_relay.py lists them). Times are a client's, over loopback, from a process of its own.
Bounds: status p99 ≤ 30 ms for users and 50 ms for administrators, memory of the gateway ≤ 250 MiB,
no growth under churn, no user sees another's kernel.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from load import in_use, served
from load.figures import means, percentile, slope
from load.scene import DEVICES, Scene, people
from report import Row, at_least, at_most, publish, read_arguments

MIB = 1 << 20
STATUS_MS = {"user_status": 30.0, "admin_status": 50.0}
MEMORY_MIB, AT_ONCE = 250.0, 8
_SAMPLE_SECONDS = 1.0
# The first part of the churn: it fills the kept outputs of cells and a thousand terminations, which
# last a while.
_WARM = 0.5
# The time that this takes, less some samples: as long as the gateway keeps outputs.
_FILLED = 0.99
# The means of so many parts judge the rest: memory goes up and down by garbage, and in step with
# minutes.
_PARTS = 23
_QUARTERS = ("first", "second", "third", "last")
_SMOKE = {"kernels": 10, "users": 4, "seconds": 2.0, "churn": 8.0}
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """The resources of a process at one moment. Bytes; descriptors; seconds of processor.

    ``own``: its part of memory that is no file's, which other processes do not change.
    """

    resident: int
    proportional: int
    own: int
    descriptors: int
    tasks: int
    processor_seconds: float


def look_at(pid: int) -> Process:
    """Read a process from /proc. Raises OSError if it does not exist."""
    sizes = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, value = line.partition(":")
        sizes[name] = int(value.split()[0]) * 1024
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    used = (int(fields[11]) + int(fields[12])) / _TICKS
    folder = Path(f"/proc/{pid}")
    return Process(
        sizes["Rss"],
        sizes["Pss"],
        sizes["Pss_Anon"],
        len(os.listdir(folder / "fd")),
        len(os.listdir(folder / "task")),
        used,
    )


class Memory:
    """Samples a process's memory repeatedly, in a thread."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._is_over = threading.Event()
        self.times: list[float] = []
        self.bytes: list[float] = []
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        began = time.monotonic()
        while not self._is_over.wait(_SAMPLE_SECONDS):
            with suppress(OSError):
                self.bytes.append(float(look_at(self._pid).own))
                self.times.append(time.monotonic() - began)


def growth_rows(times: list[float], values: list[float], rate: float, kept_minutes: float) -> list[Row]:
    """Return the growth in MiB an hour over the churn after its first part, with its interval.

    The interval is the bound. Not judged if the first part was shorter than the gateway keeps
    outputs.
    """
    first = int(_WARM * len(times))
    hours, sizes = [one / 3600 for one in times[first:]], [one / MIB for one in values[first:]]
    found = slope(means(hours, _PARTS), means(sizes, _PARTS))
    minutes = (times[-1] - times[first]) / 60
    what = f"memory's growth over the last {minutes:.1f} min of churn, {rate:g} changes/s"
    verdict = ("= 0", not found.is_growth) if times[first] >= _FILLED * 60 * kept_minutes else ()
    quarters = zip(_QUARTERS, means(values, 4), strict=False)
    return [
        *(Row(f"memory of its own, mean of the churn's {name} quarter", one / MIB, "MiB") for name, one in quarters),
        Row(what, found.value, "MiB/h"),
        Row("… half the width of its 95 % interval", found.margin, "MiB/h"),
        Row("… it is growth (1: the whole interval is above 0)", float(found.is_growth), "", *verdict),
    ]


def in_use_rows(blocks: list[float], malloc: list[float]) -> list[Row]:
    """Return the bytes that the gateway's own allocators have in use.

    Where this stays, growth is memory that they keep for later.
    """
    return [
        Row(f"{what} in use, mean of the churn's {name} quarter", one / unit, unit_name)
        for what, values, unit, unit_name in (
            ("Python's blocks", blocks, 1000, "thousand"),
            ("malloc's bytes", malloc, MIB, "MiB"),
        )
        for name, one in zip(_QUARTERS, means(values, 4), strict=False)
    ]


def served_rows(name: str, users: list[float], admins: list[float]) -> list[Row]:
    """Return p99 inside the gateway: the clients have more, for they wait for the same processors."""
    both = (("users", users), ("administrators", admins))
    return [
        Row(f"{name}: inside the gateway, {who} (p99)", percentile(times, 99), "ms") for who, times in both if times
    ]


def status_rows(name: str, seen: dict[str, Any]) -> list[Row]:
    """Return p50 and p99 of users and of administrators; each has a bound of its own."""
    rows = []
    for who, key in (("users, who see their own", "user_status"), ("administrators, who see all", "admin_status")):
        if times := seen[key]:
            rows += [
                Row(f"{name}: status of {who} (p50 of {len(times)})", percentile(times, 50), "ms"),
                at_most(f"{name}: status of {who} (p99)", percentile(times, 99), "ms", STATUS_MS[key]),
            ]
    return rows


class Run:
    """One measurement, in its parts."""

    def __init__(self, asked: argparse.Namespace, scene: Scene) -> None:
        self.asked = asked
        self.scene = scene
        self.rows: list[Row] = []
        self.seen_foreign = 0
        self.failures: list[str] = []

    def all(self) -> list[Row]:
        """Run all parts, in the order in which a day goes."""
        self.scene.wait()
        empty = look_at(self.scene.gateway.pid)
        self.rows.append(Row("memory of the gateway without kernels (PSS)", empty.proportional / MIB, "MiB"))
        self._start()
        self._steady()
        self._churn()
        self._restart()
        self._end(empty)
        self.rows.append(at_most("kernels of others in answers and events", self.seen_foreign, "", 0))
        self.rows.append(at_most("requests that failed", len(self.failures), "", 0))
        self.rows.append(Row("load average of the machine at the end", os.getloadavg()[0], ""))
        for failure in self.failures[:10]:
            print(f"failed: {failure}", file=sys.stderr)
        return self.rows

    def _do(self, **command: Any) -> dict[str, Any]:
        print(f"load: {command['do']}", flush=True)
        seen = self.scene.generate(**command)
        self.seen_foreign += seen["foreign"]
        self.failures += seen["failures"]
        return seen

    def _start(self) -> None:
        seen = self._do(do="start", count=self.asked.kernels, at_once=AT_ONCE)
        self.rows += [
            Row(f"{self.asked.kernels} kernels started, all running after", seen["seconds"], "s"),
            Row("kernels started a second", self.asked.kernels / seen["seconds"], "1/s"),
            Row("while they start: status of a user (p99)", percentile(seen["user_status"], 99), "ms"),
            Row("while they start: status of an administrator (p99)", percentile(seen["admin_status"], 99), "ms"),
        ]

    def _steady(self) -> None:
        self._do(do="listen")
        self._do(do="steady", seconds=5, cells_per_second=self.asked.cells)
        before, lines = look_at(self.scene.gateway.pid), served.count(self.scene.folder)
        seen = self._do(do="steady", seconds=self.asked.seconds, cells_per_second=self.asked.cells)
        now = look_at(self.scene.gateway.pid)
        used = (now.processor_seconds - before.processor_seconds) / self.asked.seconds
        self.rows += [
            *status_rows(f"{self.asked.users} sessions listen", seen),
            *served_rows(f"{self.asked.users} sessions listen", *served.read(self.scene.folder, lines)),
            Row(
                f"cells, {self.asked.cells:g} a second: added to their own time (p99)",
                percentile(seen["cells"], 99),
                "ms",
            ),
            Row("the load generator's own delay (p99)", percentile(seen["lag"], 99), "ms"),
            Row("processor of the gateway", 100 * used, "% of a core"),
            at_most("memory of the gateway (PSS)", now.proportional / MIB, "MiB", MEMORY_MIB),
            at_most("memory of the gateway (RSS)", now.resident / MIB, "MiB", MEMORY_MIB),
            Row("descriptors of the gateway", now.descriptors, ""),
        ]

    def _churn(self) -> None:
        before, lines = len(in_use.read(self.scene.folder)[0]), served.count(self.scene.folder)
        with Memory(self.scene.gateway.pid) as memory:
            seen = self._do(do="churn", seconds=self.asked.churn, per_second=self.asked.rate)
        self.rows += status_rows(f"churn, {self.asked.rate:g} changes a second", seen)
        self.rows += served_rows("churn", *served.read(self.scene.folder, lines))
        self.rows.append(Row("churn: the load generator's own delay (p99)", percentile(seen["lag"], 99), "ms"))
        self.rows += growth_rows(memory.times, memory.bytes, self.asked.rate, self.asked.kept_minutes)
        self.rows += in_use_rows(*in_use.read(self.scene.folder, before))
        self.rows += [Row(f"churn: {what}", count, "") for what, count in seen["done"].items()]
        self.rows.append(Row("events heard by all", seen["events"], ""))

    def _restart(self) -> None:
        self._do(do="hush")
        self.scene.start_again()
        seen = self._do(do="find", count=self.asked.kernels)
        self.rows.append(Row("gateway killed and started again: all kernels back after", seen["seconds"], "s"))

    def _end(self, empty: Process) -> None:
        seen = self._do(do="end", at_once=AT_ONCE)
        left = look_at(self.scene.gateway.pid)
        self.rows += [
            Row("all kernels ended after", seen["seconds"], "s"),
            at_most("then: GPUs held", seen["held_gpus"], "GPU", 0),
            at_most("then: kernels left", seen["left"], "", 0),
            # A keep-alive connection or two, the history's file, and what the first start opened
            # for good.
            at_most("then: descriptors more than of a new gateway", left.descriptors - empty.descriptors, "", 30),
            Row("then: memory of the gateway (PSS)", left.proportional / MIB, "MiB"),
        ]


def end_once(*_: object) -> None:
    """End once: a second signal must not leave a thousand kernels behind."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=1000)
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60, help="of users who look and run cells")
    parser.add_argument("--cells", type=float, default=5, help="cells a second, of all users together")
    parser.add_argument("--churn", type=float, default=180, help="seconds of it")
    parser.add_argument("--rate", type=float, default=3, help="changes a second")
    parser.add_argument("--kept-minutes", type=float, default=30, help="how long what cells showed is kept")
    asked = read_arguments(parser, _SMOKE)
    signal.signal(signal.SIGTERM, end_once)
    folder = Path(tempfile.mkdtemp(prefix="aql-", dir="/tmp"))
    scene = Scene(folder, people(asked.users, 2), asked.kept_minutes)
    try:
        rows = Run(asked, scene).all()
    finally:
        scene.close()
        shutil.rmtree(folder, ignore_errors=True)
    rows.append(at_least("sessions listening", asked.users, "", asked.users))
    raise SystemExit(0 if publish(asked, "load", f"software GPU, {DEVICES} devices", rows) else 1)


if __name__ == "__main__":
    main()
