"""Agents learn which GPUs the cluster takes back, also those that did not answer for a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from jupyter_aliquot.gateway.base.clock import SystemClock, iso_moment
from jupyter_aliquot.gateway.nodes.vacating import LAST_SECONDS, GoingGpu, HolderEnds, Vacating
from jupyter_aliquot.gateway.scheduling.ledger import Holding, KernelRef
from jupyter_aliquot.provisioner.errors import AgentUnavailableError
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request

GOES = GoingGpu("GPU-a", "gpu-1", 700.0)


class HandAgent:
    """The agent of one node."""

    def __init__(self) -> None:
        self.is_there = True
        self.told: list[list[str]] = []

    async def vacate(self, devices: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        if not self.is_there:
            raise AgentUnavailableError("it does not answer")
        self.told.append(list(devices))
        return {one: {} for one in devices}


def test_an_agent_that_was_away_is_told_later_that_none_of_its_gpus_goes() -> None:
    agent = HandAgent()

    async def scene() -> None:
        vacating = Vacating(lambda node: {"gpu-1": agent}[node], SystemClock(), logging.getLogger("test"))
        await vacating.look([GOES])
        agent.is_there = False
        await vacating.look([])
        agent.is_there = True
        for _ in range(2):
            await vacating.look([])

    asyncio.run(scene())
    assert agent.told == [["GPU-a"], []], "else it takes contexts from a GPU that is the gateway's again"


def test_an_agent_that_stays_away_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    agent = HandAgent()
    agent.is_there = False

    async def scene() -> None:
        vacating = Vacating(lambda node: {"gpu-1": agent}[node], SystemClock(), logging.getLogger("test"))
        for _ in range(3):
            await vacating.look([GOES])
        assert not vacating.is_empty("GPU-a")

    with caplog.at_level(logging.INFO):
        asyncio.run(scene())
    assert caplog.text.count("vacate=later") == 1


class HandClock(SystemClock):
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return 1e9 + self.seconds


def holder(uid: str, ends: float | None = None, grace: float = 0.0) -> dict[str, Any]:
    going = {} if ends is None else {"deletionTimestamp": iso_moment(ends), "deletionGracePeriodSeconds": grace}
    return {"metadata": {"uid": uid, **going}}


def test_a_holder_that_went_before_the_gateway_started_keeps_the_rest_of_its_grace_period() -> None:
    clock = HandClock()
    ends = HolderEnds(clock)
    assert ends.look([holder("a"), holder("b", clock.wall() + 50, 120), holder("c", clock.wall() - 9, 120)]) == {
        "b": clock.now() + 50,
        "c": clock.now(),
    }
    # The server's clock, which is behind by far, does not count for one that this gateway saw before.
    told = [holder("a", clock.wall() - 3600, 120)]
    assert ends.look(told) == {"a": clock.now() + 120}
    clock.seconds += 10
    assert ends.look(told) == {"a": clock.now() + 110}
    assert ends.look([holder("a", clock.wall() - 3700, 20)]) == {"a": clock.now() + 20}
    assert ends.look([]) == {}
    assert ends.look([holder("a", clock.wall() + 9999, 120)]) == {"a": clock.now() + 120}


def test_a_holder_that_went_while_the_watch_was_away_has_what_is_left_since_the_last_look() -> None:
    clock = HandClock()
    ends = HolderEnds(clock)
    assert ends.look([holder("a"), holder("b")]) == {}
    began = clock.now()
    for _ in range(2):
        clock.seconds += 50
        assert ends.look([holder("a"), holder("b")], is_current=False) == {}
    told = [holder("a", clock.wall() - 3600, 120), holder("b", clock.wall() - 3600, 60)]
    assert ends.look(told) == {"a": began + 120, "b": clock.now()}


def test_a_kernel_whose_pod_has_the_claim_keeps_its_gpu_for_the_grace_period() -> None:
    clock = HandClock()
    vacating = Vacating(lambda node: {"gpu-1": HandAgent()}[node], clock, logging.getLogger("test"))
    quota = Quota(GOES.uuid, 0, GpuShare(100), Bytes(1 << 30))
    held = Holding(Grant("k", "ann", Request(GpuShare(100)), "gpu-1", (quota,), "/k", ()), KernelRef("k", "ann"), 0.0)
    asyncio.run(vacating.look([GOES]))
    assert vacating.stuck([held], keeps_pods=False) == {}
    clock.seconds = GOES.ends_at - LAST_SECONDS
    assert vacating.stuck([held], keeps_pods=True) == {}
    assert "ResourceClaim" in vacating.stuck([held], keeps_pods=False)["k"]
