"""Sums over kernels in a device's report, and the time since which a kernel is idle.

The tests are pure: they use reports of the agent.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.node.view import NodeView, lacked_bytes, needed_bytes
from jupyter_aliquot.gateway.relays.activity import Activity
from jupyter_aliquot.gateway.status.devices import DeviceSums
from jupyter_aliquot.gateway.status.report import StatusSnapshot, status_report
from jupyter_aliquot.gateway.status.report_cache import ReportMemo
from jupyter_aliquot.gateway.status.usage import idle_since
from jupyter_aliquot.gpu_hook.client.client import read_status
from jupyter_aliquot.gpu_hook.client.reports import KernelActivity, KernelStatus
from jupyter_aliquot.gpu_hook.client.status_reader import StatusReader

from .fake_agent import GIB, device, kernel

NODE = {"node": "n", "driver": "softgpu", "enforcer": "hook", "connections": 1, "devices": [device()]}


def a_kernel(kernel_id: str, owner: str, *, used: int, swapped: int = 0, guarantee: int = 4) -> dict[str, Any]:
    found = kernel(kernel_id, owner)
    found["devices"][0].update(charged_bytes=used * GIB, swapped_bytes=swapped * GIB, guarantee_bytes=guarantee * GIB)
    return found


def test_a_device_tells_the_askers_and_everybodys_parts_of_it() -> None:
    kernels = [
        a_kernel("k1", "alice", used=3, swapped=2),
        a_kernel("k2", "alice", used=6),  # 2 beyond its guaranteed memory
        a_kernel("k3", "bob", used=9, swapped=4, guarantee=2),  # 5 on the device, 3 beyond
    ]
    snapshot = StatusSnapshot("", node=NodeView(read_status({**NODE, "kernels": kernels})))
    [seen] = status_report(snapshot, User("alice", "user"))["devices"]
    told = {name: seen[name] // GIB for name in seen if name.endswith("_bytes") and name != "memory_bytes"}
    assert told == {
        "reserved_bytes": 4,
        "used_bytes": 1,
        "mine_bytes": 9,
        "mine_reserved_bytes": 8,
        "swapped_bytes": 6,
        "mine_swapped_bytes": 2,
        "burstable_bytes": 5,
    }


def test_sums_that_follow_a_node_are_those_of_its_last_status() -> None:
    dice, reader, memo = random.Random(20_261_130), StatusReader(), ReportMemo()
    kernels: dict[str, dict[str, Any]] = {}
    for _ in range(60):
        kernel_id, owner = f"k{dice.randrange(12)}", dice.choice(("alice", "bob", "cleo"))
        kernels.pop(kernel_id, None)
        if dice.random() < 0.7:
            kernels[kernel_id] = a_kernel(kernel_id, owner, used=dice.randrange(9), swapped=dice.randrange(4))
        node = {**NODE, "devices": [device(), *([device(index=1, uuid="GPU-1")] if dice.random() < 0.1 else [])]}
        status = reader.read(json.loads(json.dumps({**node, "kernels": list(kernels.values())})))
        for owner in ("alice", "bob", "cleo"):
            assert memo.devices(status).reports(owner) == DeviceSums(status).reports(owner)
            assert {*memo.owned(status, owner)} == {one for one in status.kernels if one.owner == owner}
    assert not memo.devices(reader.read({**NODE, "kernels": []}))._owners


def test_a_users_kernels_can_be_read_while_a_status_arrives() -> None:
    reader, memo = StatusReader(), ReportMemo()
    one, two = (a_kernel(name, "alice", used=1, swapped=0) for name in ("k1", "k2"))
    seen = memo.owned(reader.read({**NODE, "kernels": [one]}), "alice")
    read = iter(seen)
    memo.owned(reader.read({**NODE, "kernels": [one, two]}), "alice")
    assert [kernel.kernel_id for kernel in read] == ["k1"]


def known(residency: dict[str, Any] | None = None, activity: KernelActivity | None = None) -> KernelStatus:
    report = kernel("k", "alice", residency=residency)
    if activity is not None:
        report["activity"] = vars(activity)
    return read_status({**NODE, "kernels": [report]}).kernels[0]


QUIET = Activity(open=0, work=0, busy_since=None, idle_since=100.0, last_activity=100.0)
BUSY = Activity(open=1, work=1, busy_since=90.0, idle_since=None, last_activity=90.0)
RESIDENCY = {"state": "resident", "mode": "vmm"}


@pytest.mark.parametrize(
    ("relay", "agent", "want"),
    [
        (QUIET, None, 100.0),
        (BUSY, None, None),
        (None, None, None),
        # A thread uses the device, though Jupyter calls the kernel idle.
        (QUIET, known({**RESIDENCY, "idle_seconds": None, "idle_since": None}), None),
        (QUIET, known({**RESIDENCY, "idle_seconds": 5.0, "idle_since": 130.0}), 130.0),
        # A cell made no call for a minute: the agent may swap it out, but it runs all the same.
        (BUSY, known({**RESIDENCY, "idle_seconds": 5.0, "idle_since": 130.0}), None),
        (None, known(RESIDENCY, KernelActivity(open=1, work=1, since=90.0)), None),
        (None, known(RESIDENCY, KernelActivity(open=0, work=0, since=95.0)), 95.0),
        # An older agent does not report the time.
        (QUIET, known({**RESIDENCY, "idle_seconds": 5.0}), 100.0),
    ],
)
def test_a_kernel_is_idle_since_nothing_of_it_runs(
    relay: Activity | None, agent: KernelStatus | None, want: float | None
) -> None:
    assert idle_since(relay, agent) == want


def test_the_needed_quota_is_one_with_which_each_device_would_have_had_enough() -> None:
    report = kernel("k", "alice")
    [part] = report["devices"]
    small, large = {**part, "uuid": "GPU-2", "hundredths": 50}, {**part, "hundredths": 100}

    def needed(*of_devices: int | None) -> int | None:
        parts = [{**one, "needed_bytes": amount} for one, amount in zip((large, small), of_devices, strict=True)]
        status = read_status({**NODE, "kernels": [{**report, "devices": parts}]})
        return needed_bytes(status.kernels[0])

    assert needed(None, None) is None
    assert needed(6 * GIB, None) == 9 * GIB  # the smaller device has a third of the limit
    assert needed(6 * GIB, 4 * GIB) == 12 * GIB
    assert needed(1, None) == 2  # never less than the kernel takes


def test_a_kernel_lacked_what_it_needed_beyond_its_quota() -> None:
    def lacked(amount: int | None) -> int | None:
        report = kernel("k", "alice")
        report["devices"][0]["needed_bytes"] = amount
        return lacked_bytes(read_status({**NODE, "kernels": [report]}).kernels[0])

    assert (lacked(None), lacked(4 * GIB), lacked(5 * GIB)) == (None, None, 5 * GIB)
    assert lacked_bytes(None) is None
