"""Kernels that cannot leave a GPU which the cluster takes back: warned of, ended when it is due, or spared."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from lead_by_hand import LeadByHand

from jupyter_aliquot.gateway.culling.taken_gpus import WARNING_SECONDS, TakenGpus
from jupyter_aliquot.provisioner.terminations import Asked, EndingCode


class Scene:
    """A clock, a kernel manager with two kernels, and a lead, all by hand."""

    def __init__(self) -> None:
        self.seconds, self.lead = 1000.0, LeadByHand()
        self.ended: dict[str, Asked] = {}
        self.taken = TakenGpus(self, self, logging.getLogger("test"), self.lead)

    def now(self) -> float:
        return self.seconds

    wall = now

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("its caller looks again")

    def __contains__(self, kernel_id: Any) -> bool:
        return kernel_id in ("k1", "k2") and kernel_id not in self.ended

    def is_in_container(self, kernel_id: str) -> bool:
        return True

    async def end_kernel(self, kernel_id: str, asked: Asked, now: bool = False) -> None:
        self.ended[kernel_id] = asked

    async def look(self, seconds: float, **stuck: str) -> set[str]:
        self.seconds += seconds
        self.taken.note(stuck)
        await asyncio.sleep(0)
        await self.taken.stop()
        return set(self.taken.announced())


async def test_a_kernel_that_cannot_leave_is_announced_and_then_ended_with_the_reason() -> None:
    scene = Scene()
    assert await scene.look(0, k1="it has unified memory", another="gateway's") == {"k1"}
    told = scene.taken.announced()["k1"]
    assert (told.at, told.can_keep) == (1000.0 + WARNING_SECONDS, False)
    assert told.reason == "the cluster takes its GPU back, and it cannot leave it: it has unified memory"
    await scene.look(WARNING_SECONDS - 1, k1="it has unified memory")
    assert not scene.ended
    await scene.look(1, k1="it has unified memory")
    assert scene.ended["k1"].code is EndingCode.NODE_LOST
    assert scene.ended["k1"].message.endswith(
        "the cluster took its GPU back, and it could not leave it: it has unified memory"
    )


async def test_a_kernel_that_leaves_in_time_and_one_of_a_replica_without_the_lead_stay() -> None:
    scene = Scene()
    assert await scene.look(0, k1="busy", k2="busy") == {"k1", "k2"}
    assert await scene.look(WARNING_SECONDS / 2, k2="busy") == {"k2"}
    scene.lead.is_held = False
    assert await scene.look(WARNING_SECONDS, k2="busy") == set()
    scene.lead.is_held = True
    assert await scene.look(1, k2="busy") == {"k2"}, "its owner is warned anew"
    assert not scene.ended
