"""Random lives of an admission: it delivers each grant once, and each grant returns.

Requests, cancellations, releases and the agent's troubles come in any order.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from jupyter_aliquot.gateway.scheduling.ledger import KernelRef
from jupyter_aliquot.provisioner.errors import AliquotError, DeviceLostError, NoRoomError
from jupyter_aliquot.provisioner.resources import GpuShare, Request

STEPS = ("submit", "submit", "withdraw", "cancel", "release", "refuse", "lose", "go", "come_back", "restart", "tick")


class Run:
    """One random life of an admission."""

    def __init__(self, desk: Any, seed: int) -> None:
        self.dice = random.Random(seed)
        self.desk = desk
        self.clock = desk.clock()
        self.agent = desk.agent(self.clock, devices=2, dice=self.dice)
        self.futures: dict[str, asyncio.Future[Any]] = {}
        self.releases: list[asyncio.Future[None]] = []
        self.serial = 0

    async def play(self, steps: list[str]) -> None:
        async with self.desk.admission(self.agent, self.clock, agent_loss_seconds=30.0) as admission:
            self.admission = admission
            for step in steps:
                getattr(self, step)()
                for _ in range(self.dice.randrange(6)):
                    await asyncio.sleep(0)
                self.check()
                if step == "tick":
                    await self.clock.advance(self.dice.choice([1.0, 6.0, 31.0]))
            await self.end()

    def submit(self) -> None:
        again = [name for name, future in self.futures.items() if future.done()]
        if again and self.dice.random() < 0.3:
            name = self.dice.choice(again)
        else:
            self.serial += 1
            name = f"k{self.serial}"
        requester = KernelRef(name, self.dice.choice(["ada", "bob"]))
        request = Request(GpuShare(self.dice.choice([10, 25, 50, 100, 150, 200])))
        try:
            self.futures[name] = self.admission.submit(requester, request)
        except AliquotError:
            assert name in self.futures

    def withdraw(self) -> None:
        if self.futures:
            self.admission.withdraw(self.dice.choice(list(self.futures)))

    def cancel(self) -> None:
        if self.futures:
            self.futures[self.dice.choice(list(self.futures))].cancel()

    def release(self) -> None:
        if self.futures:
            name = self.dice.choice(list(self.futures))
            self.releases.append(asyncio.ensure_future(self.admission.release(name)))

    def refuse(self) -> None:
        self.agent.refuse_next = NoRoomError("somebody was faster")

    def lose(self) -> None:
        self.agent.refuse_next = DeviceLostError("it fell off the bus")

    def go(self) -> None:
        if self.agent.unavailable_since is None:
            self.agent.go()

    def come_back(self) -> None:
        if self.agent.unavailable_since is not None:
            self.agent.come_back(forgetful=False)

    def restart(self) -> None:
        self.agent.go()
        self.agent.come_back(forgetful=True)

    def tick(self) -> None:
        """Let time pass: ``play`` advances the clock after this step."""

    def check(self) -> None:
        for index in range(2):
            assert self.agent.reserved(index) <= 100
        queued = {entry.kernel_id for entry in self.admission.snapshot().queue}
        # A canceled request leaves the queue with the loop's next turn.
        assert {name for name in queued if not self.futures[name].cancelled()} == {
            name for name, future in self.futures.items() if not future.done()
        }

    async def end(self) -> None:
        """Bring the agent back and advance the clock.

        Admission grants what can be granted, and after the last release holds nothing.
        """
        self.agent.refuse_next = None
        if self.agent.unavailable_since is not None:
            self.agent.come_back(forgetful=False)
        for _ in range(3):
            await self.clock.advance(6.0)
            await self.desk.settle()
        held = {holding.grant.kernel_id for holding in self.admission.snapshot().holdings}
        assert held == set(self.agent.held), "the ledger and the agent tell the same"
        granted = {n for n, f in self.futures.items() if f.done() and not f.cancelled() and not f.exception()}
        assert held <= granted, "nobody holds what was never delivered"
        self.check()
        if queue := self.admission.snapshot().queue:
            assert queue[0].reason.startswith("Needs ")
        for name in self.futures:
            self.releases.append(asyncio.ensure_future(self.admission.release(name)))
        await asyncio.wait_for(asyncio.gather(*self.releases), 5)
        await self.desk.settle()
        assert self.agent.held == {}
        assert self.admission.snapshot().holdings == self.admission.snapshot().queue == ()
        assert all(future.done() for future in self.futures.values())


SOAK = int(os.environ.get("ALIQUOT_SOAK", "1"))


@pytest.mark.soak
@pytest.mark.timeout(max(300, 120 * SOAK))
@given(st.lists(st.sampled_from(STEPS), min_size=5, max_size=100), st.integers(0, 2**32))
@settings(max_examples=250 * SOAK, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_grant_is_lost_or_given_twice(desk: Any, steps: list[str], seed: int) -> None:
    asyncio.run(Run(desk, seed).play(steps))
