"""Cordoned and drained nodes: nothing starts there, and a drain swaps out what can leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_aliquot.gateway.scheduling.admission import Admission, KernelRef
from jupyter_aliquot.gateway.scheduling.cordons import DRAIN, TAKEN, Cordon
from jupyter_aliquot.gateway.scheduling.dry_run import Candidate, Outcome, QueueState, dry_run
from jupyter_aliquot.gateway.scheduling.wait_reason import WaitCode
from jupyter_aliquot.gateway.status.node_schedule import device_schedule, node_schedule
from jupyter_aliquot.provisioner.errors import NeverFitsError, QueueTimeoutError
from jupyter_aliquot.provisioner.resources import GpuShare, Grant, Request, WorkloadClass

CORDON, DRAINING = Cordon("ada", 1e9, "new driver"), Cordon("ada", 1e9, "new driver", True)


def a_request(gpus: float) -> Request:
    return Request(GpuShare(round(100 * gpus)), None, WorkloadClass.PRODUCTION)


async def starts(
    admission: Admission, kernel_id: str, gpus: float = 1, wait_seconds: float | None = None
) -> asyncio.Future[Grant]:
    return admission.submit(KernelRef(kernel_id, "ann"), a_request(gpus), wait_seconds)


def code(admission: Admission, kernel_id: str) -> tuple[WaitCode, str]:
    entry = admission.waiting(kernel_id) or admission.waiting(kernel_id, grows=True)
    assert entry is not None
    return entry.why.code, entry.reason


@pytest.fixture
def scenes(play: Any) -> Callable[..., None]:
    """Play a scene with a node whose cordon it sets in the list ``cordons``."""

    def run(scene: Any, devices: int = 1) -> None:
        cordons: list[Cordon | None] = [None]

        async def with_cordons(admission: Admission, agent: Any, clock: Any) -> None:
            agent.evicted = set()

            async def cordon(one: Cordon | None) -> None:
                cordons[0] = one
                admission.plan_again()
                await clock.advance(0)

            await scene(admission, agent, clock, cordon)

        play(with_cordons, devices=devices, cordon_of=lambda node: cordons[0] if node == "node" else None)

    return run


def test_nothing_starts_on_a_cordoned_node_and_all_that_runs_goes_on(scenes: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any, cordon: Any) -> None:
        await (await starts(admission, "k1", 0.25))
        await cordon(CORDON)
        waiting = await starts(admission, "k2", 0.25)
        await settle()
        assert code(admission, "k2") == (
            WaitCode.CORDONED,
            "Needs 0.25 GPU; an administrator has cordoned the node node, and nothing starts there: new driver",
        )
        assert not agent.told_to_leave, "no kernel leaves for it"
        grown = await admission.resize("k1", a_request(0.5))
        assert isinstance(grown, Grant), "a kernel that runs there may grow"
        await cordon(None)
        assert waiting.done()

    scenes(scene)


def test_a_dry_run_on_a_cordoned_node_waits_for_the_same_reason(scenes: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any, cordon: Any) -> None:
        await cordon(CORDON)
        snapshot = admission.snapshot()
        state = QueueState(snapshot.ledger, snapshot.pending)
        found = dry_run(state, Candidate("ann", a_request(0.25)), 0.0)
        assert found.outcome is Outcome.QUEUED
        assert "cordoned the node node" in found.message
        with pytest.raises(NeverFitsError):
            await starts(admission, "large", 9)

    scenes(scene)


def test_a_request_that_waits_too_long_for_a_cordoned_node_is_told_so(scenes: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any, cordon: Any) -> None:
        await cordon(CORDON)
        waiting = await starts(admission, "k1", 0.25, wait_seconds=10)
        await clock.advance(11)
        with pytest.raises(QueueTimeoutError, match="cordoned the node node"):
            waiting.result()

    scenes(scene)


def test_a_drain_swaps_kernels_out_and_an_uncordon_brings_them_back(scenes: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any, cordon: Any) -> None:
        for kernel_id in ("k1", "k2", "k3"):
            await (await starts(admission, kernel_id, 0.25))
        agent.busy, agent.pinned = {"k2"}, {"k3"}
        await cordon(DRAINING)
        await settle()
        holdings = admission.snapshot().ledger.holdings
        assert (agent.evicted, holdings["k1"].leaves_for) == ({"k1"}, DRAIN)
        assert "drains the node" in (holdings["k1"].doubt or "")
        assert code(admission, "k1")[0] is WaitCode.CORDONED
        report = node_schedule("node", DRAINING, None, admission.snapshot().ledger)
        assert [(one["kernel_id"], one["state"], one["reason"]) for one in report["kernels"]] == [
            ("k3", "stays", "its memory stays on the GPU"),
            ("k2", "leaving", None),
            ("k1", "evicted", None),
        ]
        agent.busy = set()
        agent.let_leave()
        await settle()
        assert agent.evicted == {"k1", "k2"}
        await clock.advance(10)
        assert agent.evicted == {"k1", "k2"}, "they stay out"
        await cordon(None)
        await settle()
        assert (agent.evicted, admission.snapshot().queue) == (set(), ())

    scenes(scene)


def test_a_drain_that_is_taken_back_lets_those_stay_that_have_not_left(scenes: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any, cordon: Any) -> None:
        await (await starts(admission, "k1"))
        agent.busy = {"k1"}
        await cordon(DRAINING)
        await settle()
        assert agent.told_to_leave == {"k1"}
        await cordon(CORDON)
        await settle()
        assert (agent.told_to_leave, agent.evicted) == (set(), set())

    scenes(scene)


def test_a_drain_goes_on_in_the_next_gateway(scenes: Any, settle: Any, desk: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any, cordon: Any) -> None:
        await (await starts(admission, "k1"))
        await cordon(DRAINING)
        await settle()
        holdings = admission.snapshot().holdings
        await admission.stop(leaves_kernels=True)
        async with desk.admission(agent, clock, cordon_of=lambda node: DRAINING) as again:
            for holding in holdings:
                again.adopt(holding)
            await settle()
            assert code(again, "k1")[0] is WaitCode.CORDONED
            assert agent.evicted == {"k1"}

    scenes(scene)


def test_a_released_kernel_of_which_a_process_keeps_memory_is_told_from_another_program(
    scenes: Any, settle: Any
) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any, cordon: Any) -> None:
        await (await starts(admission, "k1"))
        agent.keeps_memory = {"k1"}
        await admission.release("k1")
        await settle()
        assert list(admission.ledger.ending) == ["k1"]
        ours, other = (SimpleNamespace(kernel_id=one, owner="ann", label="", ending=False) for one in ("k1", "k2"))
        status: Any = SimpleNamespace(kernels=(ours, other))
        rows = node_schedule("node", DRAINING, status, admission.ledger)["kernels"]
        assert [(one["kernel_id"], one["state"], one["reason"]) for one in rows] == [
            ("k1", "stays", "it was released, but a process of it keeps memory: end that process"),
            ("k2", "stays", "another program of that machine has it, and the gateway cannot have it leave"),
        ]

    scenes(scene)


def test_a_kernel_on_a_drained_node_gets_smaller_and_does_not_grow(scenes: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any, cordon: Any) -> None:
        before = await (await starts(admission, "k1"))
        agent.pinned = {"k1"}
        await cordon(DRAINING)
        await settle()
        snapshot = admission.snapshot()
        smaller = Candidate("ann", a_request(0.5), before)
        assert dry_run(QueueState(snapshot.ledger, snapshot.pending), smaller, 0.0).outcome is Outcome.STARTS
        assert isinstance(await admission.resize("k1", a_request(0.5)), Grant)
        assert agent.reserved(0) == 50
        assert not isinstance(await admission.resize("k1", a_request(0.75)), Grant)
        assert code(admission, "k1")[0] is WaitCode.CORDONED

    scenes(scene)


def test_kernels_leave_a_device_that_goes_and_none_starts_there(play: Any, settle: Any) -> None:
    going: set[str] = set()

    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        agent.evicted = set()
        for kernel_id in ("k1", "k2"):
            await (await starts(admission, kernel_id))
        assert sorted(one.grant.quotas[0].uuid for one in admission.snapshot().holdings) == ["GPU-0", "GPU-1"]
        on_first = next(one for one in admission.snapshot().holdings if one.grant.quotas[0].uuid == "GPU-0")
        going.add("GPU-0")
        admission.plan_again()
        await settle()
        assert agent.evicted == {on_first.grant.kernel_id}
        told = admission.snapshot().ledger.holdings[on_first.grant.kernel_id]
        assert told.leaves_for == TAKEN
        assert "the cluster took back this kernel's GPU" in (told.doubt or "")
        third = await starts(admission, "k3")
        await clock.advance(10)
        assert not third.done(), "the device has room, but goes"
        assert agent.evicted == {on_first.grant.kernel_id}, "it stays out"

    play(scene, devices=2, leaving_devices=lambda: frozenset(going))


# ---- one device


@pytest.fixture
def device_scenes(play: Any) -> Callable[..., None]:
    """Play a scene with a node of two devices, whose cordons it sets in a mapping."""

    def run(scene: Any) -> None:
        cordons: dict[str, Cordon] = {}

        async def with_cordons(admission: Admission, agent: Any, clock: Any) -> None:
            agent.evicted = set()

            async def cordon(uuid: str, one: Cordon | None) -> None:
                cordons.update({uuid: one} if one else {})
                if one is None:
                    del cordons[uuid]
                admission.plan_again()
                await clock.advance(0)

            await scene(admission, agent, clock, cordon)

        play(with_cordons, devices=2, cordon_of=cordons.get)

    return run


def devices_of(grant: Grant) -> list[str]:
    return [quota.uuid for quota in grant.quotas]


def test_nothing_starts_on_a_cordoned_device_and_what_runs_there_goes_on(device_scenes: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any, cordon: Any) -> None:
        runs = await (await starts(admission, "runs", 0.25))
        (uuid,) = devices_of(runs)
        await cordon(uuid, CORDON)
        beside = await (await starts(admission, "beside", 0.5))
        assert devices_of(beside) != [uuid], "best fit would have put it there"
        waiting = await starts(admission, "waits", 0.75)
        await settle()
        assert code(admission, "waits") == (
            WaitCode.CORDONED,
            "Needs 0.75 GPU; the GPUs that have room are cordoned",
        )
        assert not agent.told_to_leave
        assert isinstance(await admission.resize("runs", a_request(0.25)), Grant)
        with pytest.raises(NeverFitsError):
            await starts(admission, "large", 3)
        both = await starts(admission, "both", 2)
        await settle()
        assert not both.done(), "it waits: the cordon may end"
        admission.withdraw("both")
        await cordon(uuid, None)
        assert devices_of(waiting.result()) == [uuid]

    device_scenes(scene)


def test_the_kernels_of_a_drained_device_are_swapped_out_and_no_others(device_scenes: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any, cordon: Any) -> None:
        (uuid,) = devices_of(await (await starts(admission, "there", 1)))
        await (await starts(admission, "elsewhere", 1))
        await cordon(uuid, DRAINING)
        assert agent.told_to_leave == {"there"}
        report = device_schedule(uuid, DRAINING, None, admission.ledger)
        assert (report["name"], [one["kernel_id"] for one in report["kernels"]]) == (uuid, ["there"])

    device_scenes(scene)
