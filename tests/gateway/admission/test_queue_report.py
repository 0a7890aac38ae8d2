"""The report of the queue: the requests that a cycle has planned and not granted."""

from __future__ import annotations

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.scheduling.queue import QueueEntry
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
