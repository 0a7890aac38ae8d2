"""Kernels that come and go: the resources of a gateway, an agent and a relay host do not grow."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from storm_cells import GPU

SOAK = int(os.environ.get("ALIQUOT_SOAK", "1"))
CYCLES = 8 if SOAK == 1 else 15 * SOAK  # 300 by the default of `make soak`
# The growth that may come between the third quarter and the last: at 8 cycles much of the code runs
# for the first time.
MOST_GROWTH_BYTES = (6 if SOAK == 1 else 2) << 20


@dataclass(frozen=True)
class Held:
    """The counted resources of one process."""

    descriptors: int
    memory_bytes: int

    @classmethod
    def by(cls, pid: int) -> Held:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return cls(len(os.listdir(f"/proc/{pid}/fd")), pages * os.sysconf("SC_PAGE_SIZE"))


def sockets() -> dict[str, str]:
    """Return the sockets of this machine by inode: the path of a Unix socket, or both ends of a TCP connection."""
    found = {}
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        found[fields[6]] = " ".join(["unix", *fields[7:]])
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, remote, state = (fields := line.split())[1:4]
        ports = [str(int(end.rpartition(":")[2], 16)) for end in (local, remote)]
        found[fields[9]] = f"tcp {ports[0]} to {ports[1]}, state {state}"
    return found


def descriptors_of(pid: int) -> list[str]:
    """Return the targets of a process's descriptors, sorted: a failure names the one that is too many."""
    known, found = sockets(), []
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            target = os.readlink(one)
            found.append(known.get(target.removeprefix("socket:[").rstrip("]"), target))
    return sorted(found)


@pytest.mark.soak(alone="starts and ends kernels again and again")
@pytest.mark.timeout(300 if SOAK == 1 else 600 + 10 * CYCLES)
def test_kernels_that_start_and_end_leave_no_memory_and_no_descriptors(
    a_node: Any, open_tab: Any, eventually: Any
) -> None:
    gateway = a_node.serve().wait_until_up()
    # The gateway opens its history at the first write, some seconds after its start.
    eventually(lambda: any(one.endswith("/history.sqlite") for one in descriptors_of(gateway.process.pid)))
    found: dict[str, list[Held]] = {"gateway": [], "agent": [], "relay host": []}
    for _ in range(CYCLES):
        kernel_id = gateway.start_kernel("python3.gpu-0.05")
        tab = open_tab(gateway, kernel_id)
        assert tab.run(f"{GPU}\nprint(found)") == "[0, 0]"
        tab.close()
        gateway.call("DELETE", f"/api/kernels/{kernel_id}")
        eventually(lambda: not a_node.held() and not a_node.relays() and not a_node.processes())
        host = int(a_node.runtime.relay_lock.read_text().split()[0])
        pids = {"gateway": gateway.process.pid, "agent": a_node.agent_pid, "relay host": host}
        for name, pid in pids.items():
            found[name].append(Held.by(pid))
    quarter = CYCLES // 4
    for name, all_held in found.items():
        before, last = all_held[-2 * quarter : -quarter], all_held[-quarter:]
        told = [(held.descriptors, round(held.memory_bytes / (1 << 20), 1)) for held in (all_held[0], *before, *last)]
        print(name, told[0], "...", told[quarter], "...", told[-1], f"in {CYCLES} cycles")
        most = max(held.descriptors for held in before)
        print(name, "holds", descriptors_of(pids[name]))
        # The last request's connection may still be closing when a cycle is read.
        eventually(lambda pid=pids[name], most=most: Held.by(pid).descriptors <= most)
        growth = median(h.memory_bytes for h in last) - median(h.memory_bytes for h in before)
        assert growth <= MOST_GROWTH_BYTES, (name, told)
    assert not list(a_node.runtime.relays.iterdir())
    assert not list(a_node.runtime.kernels.iterdir())
