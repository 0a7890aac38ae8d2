"""Dry runs count the kernels that share a GPU's memory, and say what a user loses by it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jupyter_aliquot.gateway.api.dry_run import dry_run_report
from jupyter_aliquot.gateway.node.agent_calls import read_node
from jupyter_aliquot.gateway.scheduling.dry_run import Candidate, DryRun, Outcome, QueueState, dry_run
from jupyter_aliquot.gateway.scheduling.ledger import LedgerSnapshot
from jupyter_aliquot.gateway.scheduling.memory_sharing import MemorySharing
from jupyter_aliquot.gpu_hook.client.reports import NodeStatus, read_status
from jupyter_aliquot.provisioner.resources import GpuShare, Request

GIB = 1 << 30
MEMORY = 12 * GIB


def a_device(index: int, reserved: int, **changes: Any) -> dict[str, Any]:
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "a GPU",
        "memory_bytes": MEMORY,
        "reserved_bytes": MEMORY * reserved // 100,
        "reserved_hundredths": reserved,
        "used_bytes": 0,
        "charged_bytes": 0,
        "utilization_percent": 0,
        "temperature_celsius": None,
        "power_watts": None,
        "lost": False,
        "copy_out_rate": 20 * GIB,
        "copy_in_rate": 10 * GIB,
        **changes,
    }


def a_kernel(name: str, hundredths: int, device: int = 0, *, is_busy: bool = False) -> dict[str, Any]:
    part = {
        "uuid": f"GPU-{device}",
        "index": device,
        "hundredths": hundredths,
        "quota_bytes": MEMORY * hundredths // 100,
        "guarantee_bytes": MEMORY * hundredths // 100,
        "charged_bytes": 0,
        "lent_bytes": 0,
        "peak_bytes": 0,
        "busy_seconds": 0.0,
        "refusals": 0,
    }
    since = None if is_busy else 1.0
    return {
        "kernel_id": name,
        "owner": "bob",
        "label": name,
        "hundredths": hundredths,
        "memory_limit": None,
        "workload_class": "production",
        "generation": 1,
        "attributes": {},
        "created": 0.0,
        "interception": "holds",
        "pids": [],
        "activity": None,
        "enforcement": "holds",
        "ending": False,
        "devices": [part],
        "residency": {"state": "resident", "mode": "vmm", "idle_since": since},
    }


def a_status(kernels: list[dict[str, Any]], *devices: dict[str, Any]) -> NodeStatus:
    told = {"node": "n", "driver": "nvidia", "enforcer": "hook", "connections": 1, "kernels": kernels}
    rule = {"production": 4.0, "opportunistic": 4.0, "host_bytes": None}
    return read_status({**told, "devices": list(devices), "oversubscription_rule": rule})


def tried(status: NodeStatus, hundredths: int, residency: str = "", replaces: frozenset[str] = frozenset()) -> DryRun:
    state = QueueState(LedgerSnapshot(node=read_node(status)), status=status)
    return dry_run(
        state, Candidate("ada", Request(GpuShare(hundredths), None, residency=residency), replaces=replaces), 0.0
    )


def test_a_kernel_beside_idle_ones_is_told_how_many_and_how_long_its_memory_takes() -> None:
    found = tried(a_status([a_kernel("k", 50), a_kernel("l", 50)], a_device(0, 100)), 100)
    assert (found.outcome, found.sharing) == (Outcome.STARTS, MemorySharing(2, 0, 1.8))  # 12 GiB out and in


def test_busy_kernels_are_told_apart() -> None:
    kernels = [a_kernel("k", 50), a_kernel("l", 50, is_busy=True)]
    assert tried(a_status(kernels, a_device(0, 100)), 50).sharing == MemorySharing(1, 1, 0.9)


def test_a_kernel_that_has_its_memory_alone_shares_none() -> None:
    assert tried(a_status([a_kernel("k", 50)], a_device(0, 50)), 50).sharing is None


def test_only_kernels_of_the_gpu_that_it_gets_count() -> None:
    status = a_status([a_kernel("k", 100), a_kernel("l", 100, 1)], a_device(0, 100), a_device(1, 100))
    assert tried(status, 50).sharing == MemorySharing(1, 0, 0.9)


def test_a_kernel_that_it_replaces_does_not_count() -> None:
    found = tried(a_status([a_kernel("k", 100)], a_device(0, 100)), 50, replaces=frozenset({"k"}))
    assert found.sharing is None


def test_an_agent_that_tells_no_speed_leaves_the_time_open() -> None:
    device = a_device(0, 100, copy_in_rate=0.0)
    assert tried(a_status([a_kernel("k", 100)], device), 50).sharing == MemorySharing(1, 0, None)


@pytest.mark.parametrize(("residency", "want"), [("off", True), ("vmm", False), ("", False)])
def test_a_size_that_keeps_its_memory_shares_none_and_says_so(residency: str, want: bool) -> None:
    """Such a kernel starts only where no other kernel was promised the memory."""
    full = tried(a_status([a_kernel("k", 100)], a_device(0, 100)), 50, residency)
    assert (full.outcome is Outcome.QUEUED, dry_run_report(full)["keeps_memory"]) == (want, want)
    free = tried(a_status([a_kernel("k", 50)], a_device(0, 50)), 50, residency)
    assert (free.outcome, dry_run_report(free)["memory_sharing"]) == (Outcome.STARTS, None)


def test_the_report_has_the_figures() -> None:
    found = replace(tried(a_status([], a_device(0, 0)), 50), sharing=MemorySharing(2, 1, 1.2))
    assert dry_run_report(found)["memory_sharing"] == {"idle_kernels": 2, "busy_kernels": 1, "restore_seconds": 1.2}
