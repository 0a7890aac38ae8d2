"""The accounting's thread lets the loop have the interpreter at each kernel, in each part of its work."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jupyter_aliquot.gateway.accounting.looks import Teams, parts_of, waiting_of
from jupyter_aliquot.gateway.scheduling.ledger import KernelRef
from jupyter_aliquot.gateway.scheduling.queue import pending_of
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.provisioner.resources import GpuShare, Request
from tests.gateway.history.node import node

from .life import Life, part, settings

KERNELS = 30


def test_a_look_rests_at_each_kernel(tmp_path: Path, rests: Counter[str]) -> None:
    life = Life(settings(tmp_path / "usage.sqlite", write_seconds=0.0), periods=("month",))
    parts = [part(f"k{number}") for number in range(KERNELS)]
    with ThreadPoolExecutor(1, "counts") as thread:
        for _ in range(2):
            thread.submit(life.look, parts).result()
            rests.clear()
            life.go(10_000)
        thread.submit(life.look, parts).result()
    works = ("meter", "sums", "sums since the start", "marks", "rows of marks", "charges of a period")
    days_of_one_subject = 1
    assert rests == {"counts": KERNELS * len(works) + days_of_one_subject}


def test_the_parts_of_kernels_and_requests_are_read_with_rests(rests: Counter[str]) -> None:
    pending = tuple(pending_of(KernelRef(f"k{one}", "ada"), Request(GpuShare(25)), 0.0, None) for one in range(KERNELS))
    admission = AdmissionSnapshot("ok", "", (), pending=pending)
    status = node(kernels=KERNELS)
    with ThreadPoolExecutor(1, "counts") as thread:
        thread.submit(parts_of, status, "1.0", admission, Teams(None)).result()
        assert rests == {"counts": KERNELS}
        thread.submit(waiting_of, [status], admission, Teams(None)).result()
    assert rests == {"counts": 2 * KERNELS}
