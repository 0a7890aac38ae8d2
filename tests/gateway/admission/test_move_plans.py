"""Plans of moves as handlers get them: of what they are made, when they are stale, and how they run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from jupyter_aliquot.gateway.base.lead import CUT_OFF
from jupyter_aliquot.gateway.scheduling.defragmentation.plan import make_plan
from jupyter_aliquot.gateway.scheduling.defragmentation.service import Defragmentation, MoveSources
from jupyter_aliquot.gateway.scheduling.defragmentation.state import open_nodes
from jupyter_aliquot.gateway.scheduling.ledger import Device, Holding, KernelRef, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gpu_hook.client.reports import KernelDeviceStatus, KernelStatus, NodeStatus
from jupyter_aliquot.gpu_hook.client.residency_reports import ResidencyStatus
from jupyter_aliquot.provisioner.errors import EngineUnavailableError, GrantError, RequestError
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request

from .conftest import MEMORY, HandClock

UUIDS = ("GPU-0", "GPU-1")


def a_grant(name: str, at: int, hundredths: int = 50) -> Grant:
    quota = Quota(UUIDS[at], at, GpuShare(hundredths), Bytes(MEMORY * hundredths // 100))
    return Grant(name, "ada", Request(GpuShare(hundredths)), "gpu-1", (quota,), "", ())


def a_status(grant: Grant, why: str | None, charged: int = 1 << 30) -> KernelStatus:
    device = KernelDeviceStatus(
        grant.quotas[0].uuid, grant.quotas[0].index, grant.quotas[0].share.hundredths, 0, charged, 0, 0, 0.0, 0
    )
    residency = ResidencyStatus(immovable_because=why)
    words = (grant.kernel_id, "ada", grant.kernel_id, 50, None, "production", 1, (), 0.0, "holds", (), False)
    return KernelStatus(*words, (device,), residency=residency)


class Scene:
    """Two GPUs of one node, with half of each in use; what the test changes is seen at once."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.grants = {"a": a_grant("a", 0), "b": a_grant("b", 1)}
        self.why: dict[str, str | None] = {"a": "", "b": ""}
        self.fails = ""
        self.labels: dict[str, str] = {}
        self.moved: list[tuple[str, str]] = []
        self.audit: list[tuple[str, str, str]] = []
        self.waits: asyncio.Event | None = None
        self.leads = True
        self.change: Callable[[LedgerSnapshot], LedgerSnapshot] = lambda ledger: ledger
        sources = MoveSources(
            lambda: AdmissionSnapshot("ok", "", (), ledger=self.ledger()),
            lambda: [self.status()],
            lambda request: "vmm",
            self.move,
            lambda *told: self.audit.append(told),
            lambda: self.labels,
            self,
        )
        self.plans = Defragmentation(sources, self.clock, logging.getLogger("test"))

    def is_current(self) -> bool:
        """Return whether the replica leads. Called by Defragmentation."""
        return self.leads

    def ledger(self) -> LedgerSnapshot:
        devices = []
        for at, uuid in enumerate(UUIDS):
            share = sum(q.share.hundredths for g in self.grants.values() for q in g.quotas if q.uuid == uuid)
            used = Bytes(MEMORY * share // 100)
            devices.append(Device(uuid, at, "card", MEMORY, GpuShare(share), used, kernels=1))
        holdings = {
            name: Holding(grant, KernelRef(name, "ada", f"{name}.ipynb"), 0.0) for name, grant in self.grants.items()
        }
        return self.change(LedgerSnapshot(node=Node("gpu-1", "softgpu", tuple(devices)), holdings=holdings))

    def status(self) -> NodeStatus:
        kernels = tuple(a_status(grant, self.why[name]) for name, grant in self.grants.items())
        return NodeStatus("gpu-1", "softgpu", "hook", (), kernels, 1)

    async def move(self, kernel_id: str, device: str) -> None:
        if self.waits is not None:
            await self.waits.wait()
        if self.fails:
            raise GrantError(self.fails)
        self.moved.append((kernel_id, device))
        self.grants[kernel_id] = a_grant(kernel_id, UUIDS.index(device))

    async def run(self) -> Any:
        """Run the plan for a whole GPU, and return how it went."""
        plan = await self.plans.report("1")
        await self.plans.begin(plan["digest"] or "", "root", "1")
        for _ in range(1000):
            run = (await self.plans.report("1"))["run"]
            if run is not None and run["state"] == "over":
                break
        return run


@pytest.fixture
def a_scene() -> Scene:
    return Scene()


async def test_the_plan_that_was_shown_runs_and_is_audited(a_scene: Scene) -> None:
    plan = await a_scene.plans.report("gpu-1")
    (move,) = plan["moves"]
    assert (move["kernel_id"], move["owner"], move["label"]) == ("a", "ada", "a.ipynb")
    a_scene.labels["a"] = "renamed.ipynb"
    [move] = (await a_scene.plans.report("gpu-1"))["moves"]
    assert move["label"] == "renamed.ipynb"
    assert (move["source_index"], move["target_index"], move["memory_bytes"]) == (0, 1, 1 << 30)
    assert [(gpu["free_gpus"], gpu["free_gpus_after"]) for gpu in plan["gpus"]] == [(0.5, 1.0), (0.5, 0.0)]
    assert a_scene.moved == []
    run = await a_scene.run()
    assert a_scene.moved == [("a", "GPU-1")]
    assert [(one["outcome"], one["reason"]) for one in run["moves"]] == [("done", None)]
    assert (run["digest"], run["reason"]) == (plan["digest"], None)
    assert a_scene.audit == [("gpu-1", "root", "a from gpu0 to gpu1: done")]
    after = await a_scene.plans.report("1")
    assert (after["moves"], after["reason"], after["digest"]) == ([], None, None)


async def test_a_plan_whose_cluster_has_changed_is_refused(a_scene: Scene) -> None:
    digest = (await a_scene.plans.report("1"))["digest"] or ""
    assert (await a_scene.plans.report("1"))["digest"] == digest
    a_scene.grants["c"], a_scene.why["c"] = a_grant("c", 1, 10), ""
    with pytest.raises(GrantError, match="is not made any more"):
        await a_scene.plans.begin(digest, "root", "1")
    del a_scene.grants["c"]
    with pytest.raises(GrantError, match="is not made any more"):
        await a_scene.plans.begin(digest, "root")  # of another size
    a_scene.why["a"] = "it is busy: a cell runs"
    with pytest.raises(GrantError, match="is not made any more"):
        await a_scene.plans.begin(digest, "root", "1")
    assert (a_scene.moved, a_scene.audit) == ([], [])


async def test_a_second_plan_waits_for_the_end_of_the_first(a_scene: Scene) -> None:
    a_scene.waits = asyncio.Event()
    plan = await a_scene.plans.report("1")
    await a_scene.plans.begin(plan["digest"] or "", "root", "1")
    with pytest.raises(GrantError, match="Another plan"):
        await a_scene.plans.begin(plan["digest"] or "", "root", "1")
    await a_scene.plans.stop()


async def test_a_move_that_fails_ends_the_run_with_its_reason(a_scene: Scene) -> None:
    a_scene.fails = "the driver answers to restore process 7: invalid value"
    run = await a_scene.run()
    assert (run["moves"][0]["outcome"], run["moves"][0]["reason"]) == ("failed", a_scene.fails)
    assert run["reason"] == "a move failed"
    assert a_scene.audit[0][2].endswith("invalid value")


async def test_kernels_that_stay_are_told_with_their_reasons(a_scene: Scene) -> None:
    a_scene.why.update(a="it is busy: a cell runs", b=None)
    plan = await a_scene.plans.report("1")
    assert {one["kernel_id"]: one["reason"] for one in plan["stays"]} == {
        "a": "it is busy: a cell runs",
        "b": "its node agent is of a version that moves no kernels",
    }
    assert "no kernel can move" in (plan["reason"] or "")


async def test_bad_sizes_are_refused(a_scene: Scene) -> None:
    with pytest.raises(RequestError):
        await a_scene.plans.report("huge")


@pytest.mark.parametrize("size", ["3", "gpu-0.5-900g"])
async def test_a_size_that_fits_no_node_is_refused_with_the_largest_one(size: str, a_scene: Scene) -> None:
    want = (
        rf"room for gpu-{size.removeprefix('gpu-')}, but no open node fits it .*: the largest, gpu-1, has 2 GPUs of 8"
    )
    with pytest.raises(RequestError, match=want):
        await a_scene.plans.report(size)
    with pytest.raises(RequestError, match=want):
        await a_scene.plans.begin("3f9c1b52a077", "root", size)
    a_scene.change = lambda ledger: replace(ledger, leaving_devices=frozenset(UUIDS[:1]))
    assert (await a_scene.plans.report("2"))["reason"], "a GPU that is closed now may be open later"
    a_scene.change = lambda ledger: replace(ledger, node=replace(ledger.node, is_away=True))
    assert (await a_scene.plans.report(size))["reason"] == "no node is open"


async def test_a_size_that_fits_another_node_is_refused_of_the_named_one_alone(a_scene: Scene) -> None:
    def with_one(ledger: LedgerSnapshot) -> LedgerSnapshot:
        [first, *_] = ledger.node.devices
        return replace(ledger, others=(Node("small", devices=(replace(first, uuid="GPU-9"),)),))

    a_scene.change = with_one
    assert (await a_scene.plans.report("2"))["size"] is not None, "it fits gpu-1"
    with pytest.raises(RequestError) as caught:
        await a_scene.plans.report("2", "small")
    assert str(caught.value) == (
        "Requested moves on small that make room for gpu-2, but it does not fit that node even without kernels: the "
        "node has 1 GPU of 8.0 GiB. Choose a smaller size, or another node"
    )


async def test_a_replica_that_may_not_lead_begins_no_plan(a_scene: Scene) -> None:
    digest, a_scene.leads = (await a_scene.plans.report("1"))["digest"] or "", False
    with pytest.raises(EngineUnavailableError, match="another one may have taken over"):
        await a_scene.plans.begin(digest, "root", "1")
    assert (await a_scene.plans.report("1"))["run"] is None


async def test_a_run_ends_before_the_next_move_once_another_replica_may_lead(a_scene: Scene) -> None:
    a_scene.grants = {"a": a_grant("a", 0, 20), "c": a_grant("c", 0, 20), "b": a_grant("b", 1, 50)}
    a_scene.why, a_scene.waits = {"a": "", "b": "it is busy", "c": ""}, asyncio.Event()
    plan = await a_scene.plans.report("1")
    await a_scene.plans.begin(plan["digest"] or "", "root", "1")
    await asyncio.sleep(0)
    a_scene.leads = False
    a_scene.waits.set()
    while (run := (await a_scene.plans.report("1"))["run"]) is None or run["state"] != "over":
        pass
    assert [(move["outcome"], move["reason"]) for move in run["moves"]] == [("done", None), ("dropped", CUT_OFF)]
    assert (run["reason"], len(a_scene.moved)) == (CUT_OFF, 1)


async def test_without_a_size_moves_make_larger_sizes_fit(a_scene: Scene) -> None:
    a_scene.grants = {"a": a_grant("a", 0), "b": a_grant("b", 0, 30), "c": a_grant("c", 1, 30)}
    a_scene.why["c"] = ""
    plan = await a_scene.plans.report()
    assert (plan["size"], [move["kernel_id"] for move in plan["moves"]]) == (None, ["b"])
    assert [gpu["free_gpus_after"] for gpu in plan["gpus"]] == [0.5, 0.4]


def test_a_cordoned_node_has_no_plan(a_scene: Scene) -> None:
    ledger = a_scene.ledger()
    assert len(open_nodes(ledger, [a_scene.status()])) == 1
    assert open_nodes(ledger, [a_scene.status()], "another") == ()
    away = replace(ledger, node=replace(ledger.node, is_away=True))
    assert make_plan(open_nodes(away, [a_scene.status()]), None).plan.reason == "no node is open"


async def test_a_run_ends_before_a_gpu_that_goes_to_another_program_meanwhile(a_scene: Scene) -> None:
    a_scene.grants = {"a": a_grant("a", 0, 20), "c": a_grant("c", 0, 20), "b": a_grant("b", 1, 50)}
    a_scene.why, a_scene.waits = {"a": "", "b": "it is busy", "c": ""}, asyncio.Event()
    plan = await a_scene.plans.report("1")
    assert len(plan["moves"]) == 2
    target = UUIDS[plan["moves"][0]["target_index"]]
    await a_scene.plans.begin(plan["digest"] or "", "root", "1")
    await asyncio.sleep(0)
    a_scene.change = lambda ledger: replace(ledger, leaving_devices=frozenset({target}))
    a_scene.waits.set()
    while (run := (await a_scene.plans.report("1"))["run"]) is None or run["state"] != "over":
        pass
    assert [move["outcome"] for move in run["moves"]] == ["done", "failed"]
    assert "takes no kernels any more" in (run["moves"][1]["reason"] or "")
    assert len(a_scene.moved) == 1
