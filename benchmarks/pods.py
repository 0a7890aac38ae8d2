"""Measure kernels as pods on doubles of a cluster: starts, the return after a restart, failover, agents, API calls.

The API server, the kubelets and the scheduler are the tests' doubles, and containers are processes.
Bounds: a start ≤ 1.15 times a bare pod's; 5,000 kernels on 500 nodes found in ≤ 10 s and ≤ 500 MiB;
another replica serves in ≤ 10 s; 200 agents connect in ≤ 5 s; one API call a kernel and minute.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "system"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cluster.agents import connect_all
from cluster.bare_pod import first_cell_of_a_bare_pod
from cluster.rest import wait_for_rest
from report import Row, at_most, publish, read_arguments

from tests.system.conftest import Kernel, wait_until
from tests.system.pods.conftest import Ring, a_ring
from tests.system.survival.conftest import Tab

LEASE = "--KernelPods.lease=gateway"
CELL = "print(6 * 7)"
# It prints until there is a file, and then how often it printed.
PRINTING = """
import os, time
n = 0
while not os.path.exists({path!r}):
    print(n, flush=True); n += 1; time.sleep(0.05)
print("of", n)
"""
PARTS = ("reconcile", "starts", "calls", "agents", "failover")


def first_cell_of_a_kernel(ring: Ring) -> float:
    """Return the seconds from the request to the result of the first cell; the kernel is ended."""
    began = time.perf_counter()
    kernel = ring.server.start("box.gpu-0.25")
    done = kernel.run(CELL)
    took = time.perf_counter() - began
    if done.text != "42\n":
        raise SystemExit(f"the cell failed: {done}\n{ring.logs()}")
    kernel.end()
    return took


def starts(ring: Ring, rounds: int, patience_seconds: float) -> list[Row]:
    """Start kernels and bare pods of the same image in turns, each when nothing is left of the one before.

    The bare pod is the first of the two in every other round. Each start waits for processors at rest.
    """
    ours, bare = [], []

    def start(is_ours: bool) -> None:
        wait_until(ring.is_empty)
        wait_for_rest(patience_seconds)
        if is_ours:
            ours.append(first_cell_of_a_kernel(ring))
        else:
            bare.append(first_cell_of_a_bare_pod(ring.double, ring.folder))

    for number in range(rounds):
        start(bool(number % 2))
        start(not number % 2)
    pairs = sorted(one / other for one, other in zip(ours, bare, strict=True))
    each = [*(("a bare pod", took) for took in bare), *(("a kernel", took) for took in ours)]
    return [
        *(Row(f"{whose}, request to first cell", took, "s") for whose, took in each),
        Row("a bare pod, request to first cell, median", statistics.median(bare), "s"),
        Row("a kernel, request to first cell, median", statistics.median(ours), "s"),
        Row("a kernel's start, times a bare pod's of its round, first quartile", pairs[rounds // 4], ""),
        Row("a kernel's start, times a bare pod's of its round, third quartile", pairs[-1 - rounds // 4], ""),
        at_most("a kernel's start, times a bare pod's", statistics.median(ours) / statistics.median(bare), "", 1.15),
    ]


def api_calls(ring: Ring, kernels: int, seconds: float) -> Row:
    """Count the gateway's calls while some kernels do nothing."""
    started = [ring.server.start("box.gpu-0.25") for _ in range(kernels)]
    for kernel in started:
        kernel.run(CELL)
    is_ours = "/namespaces/default/"  # the doubles of nodes and control plane ask for all namespaces
    before = sum(is_ours in path and "fieldSelector" not in path for _, path in ring.double.requests)
    time.sleep(seconds)
    after = sum(is_ours in path and "fieldSelector" not in path for _, path in ring.double.requests)
    for kernel in started:
        kernel.end()
    return at_most("API calls a kernel and minute, at rest", (after - before) / kernels / (seconds / 60), "", 1)


def failover(ring: Ring, kernels: int) -> list[Row]:
    """Kill the replica that leads, with its machine, while all kernels print.

    Count the seconds from then until the other has ended all cells, and the lines that are lost.
    """
    ring.restart(lambda: None, LEASE)
    started = [ring.server.start("box.gpu-0.25") for _ in range(kernels)]
    for number, kernel in enumerate(started):
        kernel.run(f"here = {number}")
    tabs: list[Any] = [Tab(ring.server, kernel.id) for kernel in started]  # type: ignore[arg-type]  # has all it needs
    cells = [tab.execute(PRINTING.format(path=str(ring.folder / "go"))) for tab in tabs]
    for tab in tabs:
        tab.wait_for_text("2\n")
    with ThreadPoolExecutor(1) as threads:
        standby = threads.submit(ring.serve, LEASE, run="run2")
        wait_until(lambda: any("waiting replica=" in one.read_text() for one in ring.newest_log()))
        ring.server.process.kill()
        began = time.perf_counter()
        ring.server.process.wait(30)
        ring.lose_gateways_machine()
        server = standby.result()
    (ring.folder / "go").touch()
    printed = [tab.reconnect(server).text(cell).splitlines() for tab, cell in zip(tabs, cells, strict=True)]
    told = [Kernel(server, kernel.id).run("print(here)").text for kernel in started]
    took = time.perf_counter() - began
    ring.follow(server)
    for kernel in started:
        Kernel(server, kernel.id).end()
    return [
        *_lost(told, printed),
        at_most("another replica serves all kernels, from the kill of the one before", took, "s", 10),
        Row("messages that came twice, not acknowledged by the killed replica", sum(tab.doubled for tab in tabs), ""),
    ]


def _lost(told: Sequence[str], printed: Sequence[list[str]]) -> list[Row]:
    """Count the kernels that lost their memory, and the lines that pages lost."""
    lost = sum(text != f"{number}\n" for number, text in enumerate(told))
    lines = [int(one[-1].split()[1]) for one in printed]
    missing = sum(count - len(set(one[:-1])) for count, one in zip(lines, printed, strict=True))
    for one, count in zip(printed, lines, strict=True):
        if not missing and one[:-1] != list(map(str, range(count))):
            raise SystemExit(f"lines came in another order: {one}")
    return [
        at_most("kernels lost", lost, "", 0),
        Row("lines that their cells printed", sum(lines), ""),
        at_most("lines lost", missing, "", 0),
    ]


def reconcile(kernels: int, nodes: int) -> list[Row]:
    """Find the kernels of an earlier gateway by their pods, in a process of its own."""
    words = [sys.executable, "-m", "cluster.reconcile", str(kernels), str(nodes)]
    done = subprocess.run(words, cwd=Path(__file__).resolve().parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stdout}\n{done.stderr[-3000:]}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if told["found"] != kernels:
        raise SystemExit(f"{told['found']} of {kernels} kernels were found")
    return [
        Row("kernels found by their pods", told["found"], ""),
        at_most("all of them found", told["seconds"], "s", 10),
        at_most("memory of that process, at most", told["bytes"] / (1 << 20), "MiB", 500),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="starts of a kernel and of a bare pod")
    parser.add_argument("--kernels", type=int, default=5000, help="kernels to be found")
    parser.add_argument("--nodes", type=int, default=500, help="nodes that they are on")
    parser.add_argument("--agents", type=int, default=200, help="agents that connect at once")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long API calls are counted")
    parser.add_argument("--rest", type=float, default=60.0, help="seconds that a start waits for processors at rest")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what is measured")
    asked = read_arguments(parser, {"rounds": 1, "kernels": 50, "nodes": 5, "agents": 5, "seconds": 2.0, "rest": 0.0})
    rows = reconcile(asked.kernels, asked.nodes) if "reconcile" in asked.parts else []
    with a_ring() as ring:
        if "starts" in asked.parts:
            rows += starts(ring, asked.rounds, asked.rest)
        if "calls" in asked.parts:
            rows.append(api_calls(ring, 4, asked.seconds))
        if "agents" in asked.parts:
            took = connect_all(ring, asked.agents)
            rows.append(at_most(f"{asked.agents} agents connect at once, until the last has", took, "s", 5))
        if "failover" in asked.parts:
            rows += failover(ring, 4)
    shown = [row for row in rows if not row.name.endswith("request to first cell")]
    raise SystemExit(0 if publish(asked, "pods", "doubles of a cluster, software GPU", rows, shown) else 1)


if __name__ == "__main__":
    main()
