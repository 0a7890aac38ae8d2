"""A plan places each size once on a node, however many requests wait."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_aliquot.gateway.scheduling import capacity
from jupyter_aliquot.gateway.scheduling.ledger import Device, Holding, KernelRef, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.planner import Pending, plan
from jupyter_aliquot.gateway.teams.reading import read_quotas
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request

NODES, SIZES = 10, (25, 50, 100)
MEMORY = Bytes(8 << 30)
TEAMS = "teams:\n  a: {users: [ann], nominalQuota: 1000}\n  b: {users: [bob], nominalQuota: 1000}\n"


def a_full_ledger() -> LedgerSnapshot:
    """Return nodes of one device each, all of which ann has."""
    nodes, holdings = [], {}
    for at in range(NODES):
        uuid = f"GPU-{at}"
        nodes.append(
            Node(f"n{at}", "stub", (Device(uuid, 0, "Stub", MEMORY, GpuShare(100), MEMORY),), evicted=frozenset())
        )
        grant = Grant(uuid, "ann", Request(GpuShare(100)), f"n{at}", (Quota(uuid, 0, GpuShare(100), MEMORY),), "", ())
        holdings[uuid] = Holding(grant, KernelRef(uuid, "ann"), 0.0)
    return LedgerSnapshot(others=tuple(nodes), holdings=holdings, quotas=read_quotas(TEAMS, "aliquot.yaml"))


def placements(monkeypatch: pytest.MonkeyPatch, count: int) -> int:
    """Return how often a plan for so many requests places one on a node."""
    calls, place = [], capacity.place

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        return place(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(capacity, "place", counted)
        pending = [
            Pending(f"p{at}", "bob" if at % 2 else "ann", Request(GpuShare(SIZES[at % 3])), float(at))
            for at in range(count)
        ]
        plan(a_full_ledger(), pending, 1e4)
    return len(calls)


def test_ten_times_the_requests_place_no_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    assert placements(monkeypatch, 300) == placements(monkeypatch, 30)
