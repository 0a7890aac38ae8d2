"""Kernels that end, and agents that go, while an agent is being asked: the ledger keeps to what was answered."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from jupyter_aliquot.gateway.scheduling.agents.renewal import Renewal
from jupyter_aliquot.gateway.scheduling.ledger import Device, Holding, KernelRef, Ledger, LedgerSnapshot, Node, Others
from jupyter_aliquot.provisioner.errors import GrantError
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request

FULL = (Device("GPU-0", 0, "Stub", Bytes(8 << 30), GpuShare(100), Bytes(8 << 30)),)
NODE = Node("a", "stub", FULL, evicted=frozenset(), leaving={})


def a_holding() -> Holding:
    quotas = (Quota("GPU-0", 0, GpuShare(100), Bytes(8 << 30)),)
    grant = Grant("k1", "ada", Request(GpuShare(100)), "a", quotas, "/k/k1", ())
    return Holding(grant, KernelRef("k1", "ada"), 0.0)


def committed(ledger: Ledger, node: Node, is_own: bool) -> None:
    """Commit what is known of a node: the gateway's own, or another."""
    if is_own:
        ledger.commit(node=node, others=Others())
    else:
        ledger.commit(others=Others((node,), frozenset({node.name})))


@pytest.mark.parametrize("is_own", [True, False], ids=["own", "another"])
def test_an_agent_that_goes_has_not_told_that_a_kernel_ended(is_own: bool) -> None:
    ledger = Ledger()
    committed(ledger, NODE, is_own)
    ledger.commit(granted=[a_holding()])
    ledger.commit(released=["k1"])
    committed(ledger, replace(NODE, is_away=True), is_own)
    assert list(ledger.snapshot().ending) == ["k1"], "its processes may keep memory"
    committed(ledger, replace(NODE), is_own)
    assert list(ledger.snapshot().ending) == []


@pytest.mark.parametrize("is_own", [True, False], ids=["own", "another"])
def test_an_agent_that_goes_evicts_no_kernel_again_by_its_old_answer(is_own: bool) -> None:
    ledger, told = Ledger(), replace(NODE, evicted=frozenset({"k1"}))
    ledger.commit(granted=[a_holding()])
    committed(ledger, told, is_own)
    assert ledger.snapshot().holdings["k1"].is_evicted
    ledger.commit(granted=[replace(ledger.snapshot().holdings["k1"], is_evicted=False)])
    committed(ledger, replace(told, is_away=True), is_own)
    assert not ledger.snapshot().holdings["k1"].is_evicted


def test_a_kernel_that_ends_while_it_returns_keeps_the_lane_going(
    desk: Any, remote: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        node = remote.node(clock, "a")
        node.evicted = set()
        async with remote.place(clock, node) as place:
            assert await place.granted("k1", 100) == "a"
            node.evicted.add("k1")
            may_return, readmit, asked = asyncio.Event(), node.readmit, list[str]()

            async def slow(kernel_id: str) -> None:
                asked.append(kernel_id)
                await may_return.wait()
                await readmit(kernel_id)

            node.readmit = slow
            await node.refresh()
            place.admission.plan_again()
            await desk.settle()
            assert place.admission.snapshot().queue[0].is_return
            assert asked == ["k1"]
            release = asyncio.ensure_future(place.admission.release("k1"))
            await desk.settle()
            assert dict(place.admission.ledger.holdings) == {}
            may_return.set()
            await desk.settle()
            await release
            assert node.held == {}
            assert "lane=failed" not in caplog.text
            assert await place.granted("k2", 100) == "a"

    asyncio.run(scenario())


class RenewingAgent:
    """An agent that answers after a change of the ledger."""

    def __init__(self, ledger: Ledger, refusal: str, **change: Any) -> None:
        self._ledger, self._refusal, self._change = ledger, refusal, change

    async def renew(self, requester: KernelRef, grant: Grant) -> Grant:
        self._ledger.commit(**self._change)
        if self._refusal:
            raise GrantError(self._refusal)
        return grant


def renewed(refusal: str, **change: Any) -> LedgerSnapshot:
    """Return the ledger after a renewal beside which it changed."""
    ledger, told = Ledger(), logging.getLogger(__name__)
    doubtful = replace(a_holding(), is_confirmed=False)
    ledger.commit(granted=[doubtful])
    agent = RenewingAgent(ledger, refusal, **change)
    asyncio.run(Renewal(ledger, (), lambda kernel_id, grant: None, told).renew(agent, [doubtful]))
    return ledger.snapshot()


@pytest.mark.parametrize("refusal", ["", "others have it"], ids=["renewed", "refused"])
def test_a_kernel_that_ends_while_it_is_renewed_does_not_come_back(refusal: str) -> None:
    assert dict(renewed(refusal, released=["k1"]).holdings) == {}


@pytest.mark.parametrize("refusal", ["", "others have it"], ids=["renewed", "refused"])
def test_a_kernel_that_is_told_to_leave_while_it_is_renewed_goes_on_leaving(refusal: str) -> None:
    leaves = replace(a_holding(), is_confirmed=False, leaves_for="k2")
    after = renewed(refusal, granted=[leaves]).holdings["k1"]
    assert (after.leaves_for, after.is_confirmed, after.refusal) == ("k2", not refusal, refusal)


class BusyAgent:
    """An agent that answers no renewal before so many have come."""

    def __init__(self, together: int) -> None:
        self._together = together
        self._is_full = asyncio.Event()
        self.asked: list[str] = []

    async def renew(self, requester: KernelRef, grant: Grant) -> Grant:
        self.asked.append(grant.kernel_id)
        if len(self.asked) >= self._together:
            self._is_full.set()
        await self._is_full.wait()
        return grant


def test_grants_are_renewed_together_and_the_newest_first() -> None:
    ledger, one = Ledger(), a_holding()
    grants = [replace(one.grant, kernel_id=f"k{number}") for number in range(8)]
    ledger.commit(granted=[replace(one, grant=grant, is_confirmed=False) for grant in grants])
    renewal = Renewal(ledger, ("k5",), lambda kernel_id, grant: None, logging.getLogger(__name__))
    ledger.commit(granted=[replace(one, grant=grants[2])])  # it is confirmed
    agent = BusyAgent(together=6)
    asyncio.run(asyncio.wait_for(renewal.renew(agent, list(ledger.snapshot().holdings.values())), 60))
    assert agent.asked == ["k7", "k6", "k4", "k3", "k1", "k0"], "no kernel may have joined the newest yet"
    assert all(held.is_confirmed for name, held in ledger.snapshot().holdings.items() if name != "k5")


def test_a_kernel_whose_eviction_another_gateway_planned_is_told_no_reason_that_may_be_wrong() -> None:
    told = a_holding().told_by(replace(NODE, evicted=frozenset({"k1"})))
    assert told.is_evicted
    assert (told.doubt or "").startswith("Evicted: the GPU of this kernel was taken back.")
    assert "another request" not in (told.doubt or "")
    leaving = a_holding().told_by(replace(NODE, leaving={"k1": "busy"}))
    assert leaving.told_by(replace(NODE, evicted=frozenset({"k1"}))).doubt == told.doubt
    known = replace(a_holding(), is_evicted=True, leaves_for="k2")
    assert "another request" in (known.doubt or "")
