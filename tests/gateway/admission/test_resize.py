"""Running kernels that change their size: at once without new capacity, else in queue order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jupyter_aliquot.gateway.scheduling.admission import Admission
from jupyter_aliquot.gateway.scheduling.ledger import KernelRef
from jupyter_aliquot.gateway.scheduling.queue import QueueEntry
from jupyter_aliquot.gateway.scheduling.quotas import GpuCaps
from jupyter_aliquot.gateway.scheduling.wait_reason import WaitCode
from jupyter_aliquot.provisioner import errors
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Request, WorkloadClass


def size(hundredths: int, **rest: Any) -> Request:
    return Request(GpuShare(hundredths), **rest)


def submit(admission: Admission, name: str, hundredths: int, owner: str = "ada") -> Any:
    return admission.submit(KernelRef(name, owner, f"{name}.ipynb", "python3"), size(hundredths))


def held(admission: Admission) -> dict[str, int]:
    return {h.grant.kernel_id: h.grant.request.gpus.hundredths for h in admission.snapshot().holdings}


def queue_of(admission: Admission) -> list[tuple[str, bool]]:
    return [(entry.kernel_id, entry.is_growth) for entry in admission.snapshot().queue]


def test_growing_into_free_room_is_granted_at_once(play: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        before = await submit(admission, "a", 25)
        told: list[Any] = []
        admission.observe_resizes(lambda *what: told.append(what))
        grant = await admission.resize("a", size(50))
        assert isinstance(grant, Grant)
        assert (grant.request, grant.generation) == (size(50), before.generation + 1)
        assert held(admission) == {"a": 50}
        assert agent.reserved(0) == 50
        assert told == [("a", grant)]
        assert admission.snapshot().counts["resized"] == 1

    play(scene)


def test_growing_waits_for_room_and_is_granted_when_there_is_some(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 50)
        await submit(admission, "b", 50)
        entry = await admission.resize("a", size(75))
        assert isinstance(entry, QueueEntry)
        assert (entry.position, entry.is_growth) == (1, True)
        assert entry.reason == "Needs 0.25 GPU more; none is free on gpu0"
        assert admission.waiting("a") is None, "it runs, and does not wait to start"
        assert admission.snapshot().resizes["a"].request == size(75)
        await admission.release("b")
        await settle()
        assert held(admission) == {"a": 75}
        assert queue_of(admission) == []

    play(scene)


def test_shrinking_goes_before_everybody_and_makes_room(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 75)
        waits = submit(admission, "b", 50)
        await settle()
        grant = await admission.resize("a", size(50))
        assert isinstance(grant, Grant)
        assert (await waits).kernel_id == "b"
        assert held(admission) == {"a": 50, "b": 50}

    play(scene)


def test_a_position_is_the_planners_and_not_that_of_arrival(play: Any, settle: Any) -> None:
    """The planner serves a kernel that shrinks first, and shows it first if the agent refuses."""

    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 75)
        submit(admission, "b", 50)
        submit(admission, "c", 60)
        await settle()
        agent.refuse_next = errors.NoRoomError("busy")
        entry = await admission.resize("a", size(70))
        assert isinstance(entry, QueueEntry)
        assert (entry.position, entry.length, entry.why.code) == (1, 3, WaitCode.AGENT_REFUSED)
        assert [(one.kernel_id, one.position) for one in admission.snapshot().queue] == [("a", 1), ("b", 2), ("c", 3)]
        assert admission.waiting("b") == admission.snapshot().queue[1]
        agent.go()
        await settle()
        assert [one.kernel_id for one in admission.snapshot().queue] == ["a", "b", "c"], "without an agent as well"

    play(scene)


def test_another_class_alone_needs_no_room(play: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 50)
        await submit(admission, "b", 50)
        low = size(50, workload_class=WorkloadClass.OPPORTUNISTIC)
        grant = await admission.resize("a", low)
        assert isinstance(grant, Grant)
        assert grant.request == low

    play(scene)


def test_who_waits_to_grow_keeps_his_place_and_only_his_own_devices(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 60)
        await submit(admission, "b", 30)
        assert isinstance(await admission.resize("a", size(90)), QueueEntry)
        other = await submit(admission, "elsewhere", 100)
        assert other.quotas[0].index == 1, "room on another device is none of his"
        late = submit(admission, "late", 10)
        await settle()
        assert queue_of(admission) == [("a", True), ("late", False)], "nobody takes what he waits for"
        await admission.release("b")
        assert (await late).kernel_id == "late"
        assert held(admission) == {"a": 90, "elsewhere": 100, "late": 10}

    play(scene, devices=2)


def test_a_start_that_waits_is_not_overtaken_by_who_grows_later(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 50)
        await submit(admission, "b", 30)
        first = submit(admission, "first", 50)
        assert isinstance(await admission.resize("a", size(60)), QueueEntry)
        assert queue_of(admission) == [("first", False), ("a", True)]
        await admission.release("b")
        assert (await first).kernel_id == "first"
        await settle()
        assert held(admission) == {"a": 50, "first": 50}

    play(scene)


def test_another_wish_replaces_the_one_that_waits(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 50)
        await submit(admission, "b", 50)
        await admission.resize("a", size(75))
        entry = await admission.resize("a", size(60))
        assert isinstance(entry, QueueEntry)
        assert [waiting.request for waiting in admission.snapshot().queue] == [size(60)]
        assert await admission.resize("a", size(50)) == admission.snapshot().holdings[0].grant
        assert queue_of(admission) == [], "the size that it has is a withdrawal"

    play(scene)


@pytest.mark.parametrize("ends", ["withdrawn", "kernel ended"])
def test_a_wish_ends_with_its_withdrawal_and_with_its_kernel(play: Any, settle: Any, ends: str) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 50)
        await submit(admission, "b", 50)
        await admission.resize("a", size(75))
        if ends == "withdrawn":
            assert await admission.withdraw_resize("a")
            assert not await admission.withdraw_resize("a")
        else:
            await admission.release("a")
        await admission.release("b")
        await settle()
        assert queue_of(admission) == []
        assert held(admission) == ({"a": 50} if ends == "withdrawn" else {})

    play(scene)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (size(125), errors.GrantError, "takes 2 devices; the kernel has 0.5 GPU on 1 device"),
        (size(50, memory_limit=Bytes(9 << 30)), errors.NeverFitsError, "the device has 8.0 GiB"),
        (size(50, memory_limit=Bytes(1)), errors.RequestError, "Ask for at least 2 MiB"),
        (size(95), errors.LimitError, "may have 0.9 in all"),
    ],
)
def test_what_waiting_cannot_help_is_refused_and_changes_nothing(
    play: Any, change: Request, error: type[Exception], message: str
) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 50)
        with pytest.raises(error, match=message):
            await admission.resize("a", change)
        assert held(admission) == {"a": 50}
        assert queue_of(admission) == []

    play(scene, devices=2, caps=GpuCaps(GpuShare(90)))


@pytest.mark.parametrize("change", [size(125), size(50, memory_limit=Bytes(9 << 30)), size(95)])
def test_a_refused_wish_leaves_the_one_that_waits_in_its_place(play: Any, settle: Any, change: Request) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 50, owner="ada")
        await submit(admission, "b", 50, owner="bob")
        before = await admission.resize("a", size(75))
        waits_too = submit(admission, "c", 10, owner="bob")
        await settle()
        with pytest.raises(errors.AliquotError):
            await admission.resize("a", change)
        after = admission.waiting("a", grows=True)
        assert isinstance(before, QueueEntry)
        assert after is not None
        assert (after.request, after.since, after.position) == (before.request, before.since, 1)
        assert queue_of(admission) == [("a", True), ("c", False)]
        await admission.release("b")
        assert (await waits_too).kernel_id == "c"
        assert held(admission) == {"a": 75, "c": 10}

    play(scene, caps=GpuCaps(GpuShare(90)))


def test_a_wish_does_not_count_against_the_limit_of_the_one_that_replaces_it(play: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 50)
        await submit(admission, "other", 50, owner="bob")
        assert isinstance(await admission.resize("a", size(80)), QueueEntry)
        entry = await admission.resize("a", size(90))
        assert isinstance(entry, QueueEntry)
        assert entry.request == size(90)

    play(scene, caps=GpuCaps(GpuShare(90)))


def test_a_whole_device_stays_whole_when_the_part_beside_it_shrinks(play: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 150)
        grant = await admission.resize("a", size(125))
        assert isinstance(grant, Grant)
        assert [quota.share.hundredths for quota in grant.quotas] == [100, 25]
        with pytest.raises(errors.GrantError, match=r"takes 1 device; the kernel has 1.25 GPUs on 2 devices"):
            await admission.resize("a", size(100))

    play(scene, devices=2)


def test_the_limit_counts_what_a_wish_adds_and_lets_shrink(play: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 50)
        await submit(admission, "b", 40)
        assert isinstance(await admission.resize("a", size(60)), Grant)
        with pytest.raises(
            errors.LimitError, match=r"Requested 0.45 GPU, but ada holds 1, waits for 0 and may have 1 in all"
        ):
            await admission.resize("b", size(45))
        assert isinstance(await admission.resize("b", size(10)), Grant)

    play(scene, caps=GpuCaps(GpuShare(100)))


def test_what_holds_nothing_here_cannot_be_resized(play: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        with pytest.raises(errors.GrantError, match="holds no GPU that this server granted"):
            await admission.resize("a", size(50))

    play(scene)


def test_a_wish_waits_for_an_agent_that_is_away_as_long_as_it_takes(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 50)
        agent.go()
        entry = await admission.resize("a", size(75))
        assert isinstance(entry, QueueEntry)
        assert "node agent does not answer" in entry.reason
        await clock.advance(3600)
        assert queue_of(admission) == [("a", True)]
        agent.come_back()
        await settle()
        assert held(admission) == {"a": 75}

    play(scene)


def test_an_agent_that_refuses_tells_the_observer_why(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 50)
        told: list[Any] = []
        admission.observe_resizes(lambda *what: told.append(what))
        agent.refuse_next = errors.RequestError("not this one")
        with pytest.raises(errors.RequestError, match="not this one"):
            await admission.resize("a", size(75))
        assert [(kernel, str(error)) for kernel, error in told] == [("a", "not this one")]
        assert held(admission) == {"a": 50}

    play(scene)


def test_no_room_at_the_agent_lets_the_wish_wait_and_others_go_on(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 50)
        agent.refuse_next = errors.NoRoomError("somebody was faster")
        entry = await admission.resize("a", size(75))
        assert isinstance(entry, QueueEntry)
        assert "somebody was faster" in entry.reason
        await clock.advance(5)
        assert held(admission) == {"a": 75}

    play(scene)


def test_a_kernel_that_ends_while_the_agent_answers_leaves_nothing(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 50)
        changing = asyncio.ensure_future(admission.resize("a", size(75)))
        await asyncio.sleep(0)
        await admission.release("a")
        await asyncio.wait({changing})
        await settle()
        assert held(admission) == {} == agent.held
        assert queue_of(admission) == []

    play(scene)


def test_a_larger_limit_is_burstable_and_waits_for_nobody(play: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 50)
        await submit(admission, "b", 50)
        grant = await admission.resize("a", size(50, memory_limit=Bytes(8 << 30)))
        assert isinstance(grant, Grant)
        assert int(grant.quotas[0].memory) == 8 << 30

    play(scene)


def test_a_size_that_another_gateway_changed_can_be_had_back(play: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 25)
        await agent.resize("a", size(50))
        grant = await admission.resize("a", size(25))
        assert isinstance(grant, Grant)
        assert agent.reserved(0) == 25

    play(scene)
