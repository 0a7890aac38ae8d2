"""The time of one plan of admission: the kernels of two hundred users in twenty teams, and requests that wait."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from time import process_time

from report import Row, at_most

from jupyter_aliquot.gateway.scheduling.ledger import Device, Holding, KernelRef, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.planner import Pending, plan
from jupyter_aliquot.gateway.teams.reading import read_quotas
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request

DEVICES, TEAMS, USERS = 8, 20, 200
SIZES = (25, 50, 100, 100, 200, 400)
MEMORY = Bytes(80 << 30)
FREE = 0.01  # of the devices
ROUNDS = 5
WANT_MS = 100.0


def a_full_ledger(nodes: int) -> LedgerSnapshot:
    """Return nodes of which nearly each device is held whole by a kernel."""
    random, found, holdings = Random(1), [], dict[str, Holding]()
    for name in (f"n{at}" for at in range(nodes)):
        devices = []
        for index in range(DEVICES):
            held = 0 if random.random() < FREE else 100
            uuid = f"GPU-{name}-{index}"
            devices.append(Device(uuid, index, "Bench", MEMORY, GpuShare(held), Bytes(int(MEMORY) * held // 100)))
            if held:
                request, quota = Request(GpuShare(100)), Quota(uuid, index, GpuShare(100), MEMORY)
                grant = Grant(uuid, f"u{random.randrange(USERS)}", request, name, (quota,), "", ())
                holdings[uuid] = Holding(grant, KernelRef(uuid, grant.owner), 0.0)
        found.append(Node(name, "bench", tuple(devices), evicted=frozenset()))
    return LedgerSnapshot(others=tuple(found), holdings=holdings, quotas=read_quotas(_file(nodes), "bench.yaml"))


def _file(nodes: int) -> str:
    teams = "".join(
        f"  t{team}: {{users: [{', '.join(f'u{user}' for user in range(team, USERS, TEAMS))}], "
        f"nominalQuota: {nodes * DEVICES // TEAMS}}}\n"
        for team in range(TEAMS)
    )
    return f"queue: {{order: las}}\nteams:\n{teams}"


def a_queue(count: int) -> list[Pending]:
    """Return requests of all users."""
    random = Random(2)
    return [
        Pending(f"p{at}", f"u{random.randrange(USERS)}", Request(GpuShare(random.choice(SIZES))), float(at))
        for at in range(count)
    ]


def rows(nodes: int, requests: int, told: Callable[[str], None]) -> Iterator[Row]:
    """Yield the processor time of plans: of starts alone, and with swap-outs for a tenth of that."""
    told(f"plans of admission for {nodes} nodes, {requests} requests")
    few, fewer = nodes // 10, requests // 10
    first, _ = _milliseconds(a_full_ledger(few), a_queue(fewer))
    yield Row(f"admission, {few} nodes × {DEVICES}, {fewer} requests: a gateway's first plan", first, "ms")
    ledger = a_full_ledger(nodes)
    staying = replace(ledger, others=tuple(replace(node, evicted=None) for node in ledger.others))
    first, following = _milliseconds(staying, a_queue(requests))
    label = f"admission, {nodes} nodes × {DEVICES}, {requests} requests"
    yield Row(f"{label}: a gateway's first plan of starts", first, "ms")
    yield at_most(f"{label}: a plan of starts after a kernel's end", following, "ms", WANT_MS)


def _milliseconds(ledger: LedgerSnapshot, queue: list[Pending]) -> tuple[float, float]:
    """Return the time of the first plan of a ledger, and the least of those that follow, each after a kernel's end.

    What lives already is out of the collector's sight, as in the gateway.
    """
    times = []
    gc.collect()
    gc.freeze()
    for kernel_id in ["", *list(ledger.holdings)[:ROUNDS]]:
        ledger = ledger.without(kernel_id)
        began = process_time()
        plan(ledger, queue, 1e5)
        times.append(1000 * (process_time() - began))
    gc.unfreeze()
    return times[0], min(times[1:])
