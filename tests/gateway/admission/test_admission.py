from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from jupyter_aliquot.gateway.scheduling.admission import Admission
from jupyter_aliquot.gateway.scheduling.ledger import KernelRef
from jupyter_aliquot.gateway.scheduling.quotas import GpuCaps
from jupyter_aliquot.provisioner import errors
from jupyter_aliquot.provisioner.resources import GpuShare, Grant, Request, WorkloadClass

Scene = Callable[[Admission, Any, Any], Awaitable[None]]


def submit(admission: Admission, name: str, hundredths: int = 50, owner: str = "ada", **rest: Any) -> Any:
    return admission.submit(KernelRef(name, owner, f"{name}.ipynb", "python3"), Request(GpuShare(hundredths)), **rest)


def queue_of(admission: Admission) -> list[str]:
    return [entry.kernel_id for entry in admission.snapshot().queue]


def held_by(admission: Admission) -> set[str]:
    return {holding.grant.kernel_id for holding in admission.snapshot().holdings}


def test_a_request_that_fits_is_granted(play: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        grant = await submit(admission, "a")
        assert (grant.kernel_id, grant.owner, grant.quotas[0].share) == ("a", "ada", GpuShare(50))
        assert held_by(admission) == {"a"} == set(agent.held)

    play(scene)


def test_first_come_is_first_served(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "holder", 75)
        large, small = submit(admission, "large", 100), submit(admission, "small", 10)
        await settle()
        assert queue_of(admission) == ["large", "small"]
        assert admission.waiting("large").reason == "Needs 1 GPU; 0.25 GPU is free on gpu0"
        await admission.release("holder")
        assert (await large).kernel_id == "large"
        await admission.release("large")
        assert (await small).kernel_id == "small"

    play(scene)


def test_a_class_that_its_owner_may_not_have_is_refused_whoever_submits_it(play: Any) -> None:
    """Admission checks each start: a requeued one and one of the local socket, too."""

    def check_class(owner: str, request: Request, kernelspec: str) -> None:
        if request.workload_class is WorkloadClass.PRODUCTION and owner != "ada":
            raise errors.LimitError(f"not {owner}, not {kernelspec}")

    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        with pytest.raises(errors.LimitError, match="not bob, not python3"):
            submit(admission, "a", owner="bob")
        with pytest.raises(errors.LimitError):
            submit(admission, "a", owner="bob", waits_since=0.0)
        assert (queue_of(admission), admission.snapshot().counts["refused"]) == ([], 2)
        low = Request(GpuShare(50), workload_class=WorkloadClass.OPPORTUNISTIC)
        await admission.submit(KernelRef("b", "bob", "b.ipynb", "python3"), low)
        grant = await admission.resize("b", Request(GpuShare(50)))
        assert isinstance(grant, Grant), "who asks for a change may be an administrator: his right was checked"
        assert (await submit(admission, "c")).owner == "ada"

    play(scene, check_class=check_class)


def test_what_can_never_fit_is_refused_at_submission(play: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        with pytest.raises(errors.NeverFitsError, match="Requested 2 GPUs"):
            submit(admission, "a", 200)
        assert admission.snapshot().counts["refused"] == 1
        assert queue_of(admission) == []

    play(scene)


def test_a_withdrawn_request_makes_way_at_once(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "holder", 50)
        blocking, behind = submit(admission, "blocking", 100), submit(admission, "behind", 50)
        await settle()
        assert admission.withdraw("blocking")
        assert not admission.withdraw("blocking")
        with pytest.raises(errors.WithdrawnError, match="The request for 1 GPU was withdrawn: the start was canceled"):
            await blocking
        assert (await behind).kernel_id == "behind"

    play(scene)


def test_cancelling_the_wait_withdraws(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "holder", 100)
        waiter = asyncio.ensure_future(submit(admission, "a"))
        await settle()
        waiter.cancel()
        await settle()
        assert queue_of(admission) == []
        await admission.release("holder")
        assert agent.held == {}

    play(scene)


def test_a_kernel_does_not_ask_twice(play: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a")
        with pytest.raises(errors.GrantError, match="holds one already"):
            submit(admission, "a")

    play(scene)


def test_a_released_kernel_may_ask_again_at_once(play: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 100)
        release = asyncio.ensure_future(admission.release("a"))
        await asyncio.sleep(0)
        again = submit(admission, "a", 100)
        await release
        assert (await again).kernel_id == "a"
        assert set(agent.held) == held_by(admission) == {"a"}

    play(scene)


def test_release_is_idempotent_and_knows_waiting_ones(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 100)
        waiting = submit(admission, "b", 100)
        await settle()
        await asyncio.gather(*(admission.release(name) for name in ("b", "a", "a", "nobody")))
        assert isinstance(waiting.exception(), errors.WithdrawnError)
        assert agent.held == {}
        assert held_by(admission) == set()

    play(scene)


def test_a_user_over_the_limit_is_refused(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 75)
        submit(admission, "b", 75)
        with pytest.raises(errors.LimitError, match=r"ada holds 0.75, waits for 0.75 and may have 1.5"):
            submit(admission, "c", 1)
        submit(admission, "d", 25, owner="bob")

    play(scene, caps=GpuCaps(GpuShare(150)))


def test_the_queue_time_out_names_the_queue(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "holder", 100)
        future = submit(admission, "a", 25, wait_seconds=50)
        await settle()
        await clock.advance(49)
        assert not future.done()
        await clock.advance(1.5)
        want_words = r"Needs 0.25 GPU; none is free.* waited 50 s .* no request ahead"
        with pytest.raises(errors.QueueTimeoutError, match=want_words):
            await future

    play(scene)


def test_an_agent_that_says_no_room_is_believed(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        agent.refuse_next = errors.NoRoomError("somebody was faster")
        future = submit(admission, "a")
        await settle()
        assert queue_of(admission) == ["a"]
        assert "somebody was faster" in admission.waiting("a").reason
        agent.tell()
        assert (await future).kernel_id == "a"

    play(scene)


def test_an_event_that_was_missed_delays_and_does_not_hang(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        agent.refuse_next = errors.NoRoomError("somebody was faster")
        future = submit(admission, "a")
        await settle()
        await clock.advance(5)
        assert (await future).kernel_id == "a"

    play(scene)


def test_pending_requests_wait_for_an_agent_that_is_away(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        agent.go()
        future = submit(admission, "a")
        await settle()
        assert admission.snapshot().agent_state == "unavailable"
        assert admission.waiting("a").reason.startswith("The node agent does not answer")
        await clock.advance(29)
        agent.come_back()
        assert (await future).kernel_id == "a"
        assert admission.snapshot().agent_state == "ok"

    play(scene)


def test_pending_requests_do_not_wait_for_ever(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        agent.go()
        first = submit(admission, "a")
        await clock.advance(20)
        second = submit(admission, "b")
        await clock.advance(10)
        with pytest.raises(errors.AgentUnavailableError, match="waited 30 s, but the node agent is unavailable"):
            await first
        assert not second.done()
        await clock.advance(20)
        assert isinstance(second.exception(), errors.AgentUnavailableError)

    play(scene, agent_loss_seconds=30.0)


def test_holders_come_before_waiters_when_the_agent_is_back(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "holder", 75)
        agent.go()
        waiting = submit(admission, "waiter", 75)
        await settle()
        agent.come_back(forgetful=True)
        await settle()
        assert set(agent.held) == {"holder"}
        assert not waiting.done()
        await admission.release("holder")
        await waiting

    play(scene)


def test_a_release_that_the_agent_missed_is_told_when_it_is_back(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 100)
        agent.go()
        await admission.release("a")
        assert held_by(admission) == set()
        agent.come_back(forgetful=False)
        await settle()
        assert agent.held == {}

    play(scene)


def test_a_stopped_admission_withdraws_and_still_releases(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 100)
        waiting = submit(admission, "b", 100)
        await settle()
        await admission.stop()
        assert isinstance(waiting.exception(), errors.WithdrawnError)
        with pytest.raises(errors.WithdrawnError):
            submit(admission, "c")
        await admission.release("a")
        assert agent.held == {}

    play(scene)
