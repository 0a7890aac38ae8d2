"""The accounting's thread lets the loop have the interpreter at each kernel, and looks at no kernel too often."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_aliquot.gateway.accounting.looks import KernelParts, Part, Place, Teams, waiting_of
from jupyter_aliquot.gateway.accounting.recorder import AccountingSources, UsageAccounting
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gateway.scheduling.ledger import KernelRef
from jupyter_aliquot.gateway.scheduling.queue import pending_of
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gpu_hook.client.reports import NodeStatus
from jupyter_aliquot.provisioner.resources import GpuShare, Request
from tests.gateway.history.node import node

from .life import Life, part, settings
from .test_nodes_that_end import Hands

LOG = logging.getLogger("accounting")
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
    works = ("meter", "marks", "rows of marks")
    of_one_subject = ("sums", "sums since the start", "charges of a period", "days")
    assert rests == {"counts": KERNELS * len(works) + len(of_one_subject)}


def test_the_parts_of_kernels_and_requests_are_read_with_rests(rests: Counter[str]) -> None:
    pending = tuple(pending_of(KernelRef(f"k{one}", "ada"), Request(GpuShare(25)), 0.0, None) for one in range(KERNELS))
    admission = AdmissionSnapshot("ok", "", (), pending=pending)
    status = node(kernels=KERNELS)
    with ThreadPoolExecutor(1, "counts") as thread:
        thread.submit(KernelParts().of, status, "1.0", admission, Teams(None)).result()
        assert rests == {"counts": KERNELS}
        thread.submit(waiting_of, [status], admission, Teams(None)).result()
    assert rests == {"counts": 2 * KERNELS}


def test_the_parts_of_a_kernel_are_made_again_only_when_it_changed() -> None:
    known, teams, admission = KernelParts(), Teams(None), AdmissionSnapshot("ok", "", ())
    status = node(kernels=2)

    def look(told: NodeStatus) -> tuple[Part, ...]:
        found = known.of(told, "1.0", admission, teams)
        assert found == KernelParts().of(told, "1.0", admission, teams)
        return found

    first = look(status)
    assert [one is other for one, other in zip(look(status), first, strict=True)] == [True, True]
    changed = replace(status, kernels=(status.kernels[0], replace(status.kernels[1], hundredths=50)))
    assert [one is other for one, other in zip(look(changed), first, strict=True)] == [True, False]
    renamed = replace(status, devices=tuple(replace(one, name="another model") for one in status.devices))
    assert {one.subject.model for one in look(renamed)} == {"another model"}
    evicted = replace(status, evicted=(status.kernels[0].kernel_id,))
    assert [one.place for one in look(evicted)] == [Place.WAITING, Place.ON_GPU]
    known.forget_others(())
    assert look(status)[0] is not first[0]


async def test_a_kernel_that_comes_is_looked_at_alone_and_counts_though_it_goes_at_once(rests: Counter[str]) -> None:
    clock = Hands()
    sources = AccountingSources(lambda: AdmissionSnapshot("ok", "", ()), lambda: None, "boot 1")
    accounting = UsageAccounting(settings(None), sources, clock, LOG)

    async def look(seconds: float, *numbers: int) -> int:
        """Look after so many seconds; return how many kernels were read."""
        clock.seconds += seconds
        status = node(kernels=KERNELS + 1)
        kernels = tuple(replace(status.kernels[number], created=clock.wall() - 1.5) for number in numbers)
        rests.clear()
        accounting.record(NodeView(replace(status, kernels=kernels)))
        await asyncio.get_running_loop().run_in_executor(accounting._thread, lambda: None)
        return rests["aliquot-accounting"]

    others = range(KERNELS)
    assert await look(0.0, *others) >= KERNELS
    assert await look(1.5, *others, KERNELS) < KERNELS, "one came"
    assert await look(0.1, *others) == 0, "it went"
    [counted] = [one for one in accounting.counters() if one.on_gpu]
    assert counted.on_gpu == pytest.approx(0.25 * 1.5)
    assert await look(1.0, *others) >= KERNELS
    await accounting.stop()
