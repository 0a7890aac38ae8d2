"""The report of the queue: the requests that a cycle has planned and not granted."""

from __future__ import annotations

import asyncio

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.scheduling.ledger import KernelRef
from jupyter_aliquot.gateway.scheduling.planner import Pending
from jupyter_aliquot.gateway.scheduling.queue import QueueEntry, RequestQueue, Waiting
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gateway.scheduling.wait_reason import WaitCode, WaitReason
from jupyter_aliquot.gateway.status.quota_report import queue_report
from jupyter_aliquot.provisioner.resources import GpuShare, Request

ADA = User("ada", role="admin")


def test_a_kernel_that_simply_starts_is_not_in_the_queue() -> None:
    codes = (WaitCode.GPU, WaitCode.NOT_PLANNED)
    queue = tuple(
        QueueEntry(f"k{place}", "bob", Request(GpuShare(25)), "", place, 2, WaitReason(code), 0.0)
        for place, code in enumerate(codes, 1)
    )
    told = queue_report(AdmissionSnapshot("ok", "", queue), ADA)
    assert told["length"] == 1
    assert [one["kernel_id"] for one in told["requests"]] == ["k1"]


async def test_a_position_and_the_length_count_the_same_requests() -> None:
    queue = RequestQueue()
    for at, (name, code) in enumerate((("starts", WaitCode.NOT_PLANNED), ("waits", WaitCode.GPU))):
        pending = Pending(name, "bob", Request(GpuShare(25)), float(at))
        future = asyncio.get_running_loop().create_future()
        queue.add(Waiting(KernelRef(name, "bob"), pending, float(at), future, WaitReason(code)))
    queue.rank(queue.pending())

    def told() -> list[tuple[str, int, int]]:
        entries = queue.entries()
        found = queue_report(AdmissionSnapshot("ok", "", entries), ADA)
        assert all(found["length"] == one.length for one in entries if one.why.code is not WaitCode.NOT_PLANNED)
        return [(one["kernel_id"], one["position"], found["length"]) for one in found["requests"]]

    assert told() == [("waits", 1, 1)]
    starting = queue.entry("starts")
    assert starting is not None
    assert (starting.position, starting.length) == (2, 2)
    refused = queue.get("starts")
    assert refused is not None
    refused.why = WaitReason(WaitCode.AGENT_REFUSED)
    assert told() == [("starts", 1, 2), ("waits", 2, 2)]
