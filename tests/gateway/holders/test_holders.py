"""Holders: CPU and RAM of process trees, the most idle kernels, and sums by user."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.holders.processes import KernelProcesses, ProcessFigures, read_table, sums
from jupyter_aliquot.gateway.holders.report import MOST_IDLE, holders_report, most_idle
from jupyter_aliquot.gateway.relays.activity import Activity
from jupyter_aliquot.gateway.scheduling.quotas import GpuCaps
from jupyter_aliquot.gateway.status.report import LocalKernel, StatusSnapshot
from jupyter_aliquot.provisioner.resources import GpuShare, Request

NOW = 1_800_000_000.0
ADA = User("ada", "admin")


class HandClock:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return NOW

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing waits here")


def test_a_kernels_figures_are_those_of_its_process_and_all_below_it() -> None:
    table = {
        1: ProcessFigures(0, 9.0, 1),
        10: ProcessFigures(1, 2.0, 100),
        11: ProcessFigures(10, 3.0, 20),
        12: ProcessFigures(11, 0.5, 3),
        20: ProcessFigures(1, 7.0, 7),
    }
    assert sums(table, {"k": 10, "other": 20, "gone": 99}) == {"k": (5.5, 123), "other": (7.0, 7)}


def test_processes_that_are_each_others_parents_are_counted_once() -> None:
    table = {5: ProcessFigures(6, 1.0, 1), 6: ProcessFigures(5, 2.0, 2)}
    assert sums(table, {"k": 5}) == {"k": (3.0, 3)}


def test_real_processes_are_in_the_table_with_their_memory_and_their_parent() -> None:
    program = "import sys; text = b'x' * (64 << 20); print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        table = read_table()
        assert child.stdin is not None
        child.stdin.close()
    assert table[child.pid].parent == os.getpid()
    assert table[child.pid].memory_bytes > 64 << 20
    assert table[child.pid].cpu_seconds >= 0


async def test_cpus_are_known_from_the_second_look_on_and_a_new_process_begins_anew() -> None:
    clock, looks = HandClock(), 0
    table: dict[int, ProcessFigures] = {7: ProcessFigures(1, 10.0, 5)}
    roots = {"k": 7}

    def look() -> Mapping[int, ProcessFigures]:
        nonlocal looks
        looks += 1
        return dict(table)

    processes = KernelProcesses(lambda: roots.items(), clock, look)
    assert (await processes.figures())["k"] == {"cpus": None, "cpu_seconds": 10.0, "memory_bytes": 5}
    table[7] = ProcessFigures(1, 16.0, 6)
    clock.seconds += 1
    assert (await processes.figures())["k"]["cpu_seconds"] == 10.0, "it looks at most once in two seconds"
    clock.seconds += 3
    assert (await processes.figures())["k"] == {"cpus": 1.5, "cpu_seconds": 16.0, "memory_bytes": 6}
    table[8], roots["k"] = ProcessFigures(1, 100.0, 1), 8  # it restarted
    clock.seconds += 4
    assert (await processes.figures())["k"]["cpus"] is None
    roots.clear()
    clock.seconds += 4
    assert await processes.figures() == {}
    assert looks == 4


def a_kernel(kernel_id: str, owner: str, hundredths: int, idle: float | None, state: str = "on_gpu") -> LocalKernel:
    activity = None if idle is None else Activity(0, 0, None, NOW - idle, NOW - idle)
    return LocalKernel(
        kernel_id, "python3", owner, f"{kernel_id}.ipynb", Request(GpuShare(hundredths)), state, activity=activity
    )


def report(*kernels: LocalKernel, **more: Any) -> Any:
    host = more.pop("host", {})
    return holders_report(StatusSnapshot("", kernels=kernels, **more), ADA, host, NOW)


def test_the_most_idle_kernel_holds_most_gpu_time_without_use() -> None:
    small = [a_kernel(f"small-{place}", "bob", 10, 60.0 + place) for place in range(MOST_IDLE)]
    found = report(
        a_kernel("busy", "alice", 100, None),
        a_kernel("large", "alice", 100, 60.0),
        a_kernel("long", "alice", 10, 6000.0),
        a_kernel("waits", "alice", 100, 9000.0, "queued"),
        a_kernel("away", "bob", 100, 9000.0, "swapped_out"),
        *small,
    )
    assert found["most_idle"][:3] == ["away", "long", "large"], "a reserved share counts, also without memory there"
    assert len(found["most_idle"]) == MOST_IDLE
    assert "small-0" not in found["most_idle"], "the least idle one is left out"
    assert {"busy", "waits"}.isdisjoint(found["most_idle"])
    assert [one["id"] for one in most_idle(found["kernels"])] == found["most_idle"]


def test_a_users_idle_share_is_that_of_what_the_user_holds() -> None:
    host: Any = {"a": {"cpus": 0.5, "cpu_seconds": 1.0, "memory_bytes": 100}}
    found = report(
        a_kernel("a", "alice", 25, 60.0),
        a_kernel("b", "alice", 75, None),
        a_kernel("c", "alice", 50, None, "queued"),
        a_kernel("d", "bob", 50, None, "queued"),
        caps=GpuCaps(each_user=GpuShare(200)),
        host=host,
    )
    alice, bob = found["users"]
    assert (alice["name"], alice["kernels"], alice["gpus"], alice["idle_gpus"]) == ("alice", 3, 1.0, 0.25)
    assert (alice["idle_share"], alice["gpu_limit"], alice["cpus"], alice["host_memory_bytes"]) == (0.25, 2.0, 0.5, 100)
    assert (bob["gpus"], bob["idle_share"], bob["cpus"], bob["host_memory_bytes"]) == (0.0, None, None, None)
    assert found["kernels"][0]["idle_seconds"] == 60.0
    assert found["kernels"][1]["host"] is None
