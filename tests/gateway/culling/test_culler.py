"""The culler: what it counts as use of a kernel, and its caution where it cannot know."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from lead_by_hand import LeadByHand

from jupyter_aliquot.gateway.culling.culler import Culler
from jupyter_aliquot.gateway.culling.policy import Policy
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gateway.relays.activity import Activity
from jupyter_aliquot.gpu_hook.client.client import read_status
from jupyter_aliquot.provisioner.terminations import Asked

LOG = logging.getLogger("test")
POLICY = Policy(idle=100.0, low_priority_idle=100.0, warning=10.0)
SIZED = {"kernel_provisioner": {"provisioner_name": "aliquot", "config": {"gpus": "0.25"}}}


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("a test looks by itself")


class Kernels:
    """A kernel manager with running kernels, all of which are the same one."""

    def __init__(self, clock: Clock, metadata: dict[str, Any] | None = None, count: int = 1) -> None:
        self.links: Any = None
        self.ids = [f"k{number}" for number in range(1, count + 1)]
        self.state = "on_gpu"
        self.seen = set[str]()
        self.ended: list[Asked] = []
        self.refuses = False
        self.kernel = SimpleNamespace(
            execution_state="idle",
            last_activity=datetime.fromtimestamp(clock.wall(), timezone.utc),
            kernel_spec=SimpleNamespace(metadata=metadata or {}),
        )

    def list_kernel_ids(self) -> list[str]:
        return [] if self.ended else list(self.ids)

    def __contains__(self, kernel_id: str, /) -> bool:
        return kernel_id in self.list_kernel_ids()

    def get_kernel(self, kernel_id: str) -> Any:
        return self.kernel

    def kernel_state(self, kernel_id: str) -> tuple[str, str]:
        assert kernel_id in self.ids, "it ended"
        self.seen.add(kernel_id)
        return self.state, ""

    def owner_of(self, kernel_id: str) -> str | None:
        return "alice"

    def connections(self, kernel_id: str) -> int:
        return 0

    async def end_kernel(self, kernel_id: str, asked: Asked, now: bool = False) -> None:
        if self.refuses:
            raise OSError("it would not go")
        self.ended.append(asked)

    def relay(self, activity: Activity | None, is_up: bool = True) -> None:
        link = SimpleNamespace(activity=activity, is_up=is_up)
        self.links = SimpleNamespace(get=lambda _: link)


def node(busy_seconds: float, charged: int = 0) -> NodeView:
    """Return the agent's report of k1, which has a quarter of a device."""
    device = {
        "uuid": "GPU-1",
        "index": 0,
        "hundredths": 25,
        "quota_bytes": 1 << 30,
        "charged_bytes": charged,
        "lent_bytes": 0,
        "peak_bytes": charged,
        "busy_seconds": busy_seconds,
        "refusals": 0,
    }
    kernel = {
        "kernel_id": "k1",
        "owner": "alice",
        "label": "",
        "hundredths": 25,
        "memory_limit": None,
        "workload_class": "production",
        "generation": 1,
        "attributes": {},
        "created": 1000.0,
        "interception": "holds",
        "pids": [1],
        "ending": False,
        "devices": [device],
    }
    report = {"node": "n", "driver": "softgpu", "enforcer": "hook", "devices": [], "connections": 1}
    return NodeView(read_status({**report, "kernels": [kernel]}))


def a_scene(metadata: dict[str, Any] | None = None) -> tuple[Clock, Kernels, Culler]:
    clock = Clock()
    kernels = Kernels(clock, metadata)
    return clock, kernels, Culler(kernels, POLICY, clock, LOG)


async def test_a_replica_that_may_not_lead_ends_no_kernel_and_announces_it_anew_later() -> None:
    clock, lead = Clock(), LeadByHand()
    kernels = Kernels(clock)
    culler = Culler(kernels, POLICY, clock, LOG, lead=lead)
    clock.seconds = 1090.0
    await culler.check()
    assert "k1" in culler.announced()
    lead.is_held = False
    clock.seconds = 5000.0
    await culler.check()
    assert (culler.announced(), kernels.ended) == ({}, [])
    lead.is_held = True
    await culler.check()
    assert (culler.announced()["k1"].at, kernels.ended) == (5010.0, [])
    clock.seconds = 5010.0
    await culler.check()
    assert len(kernels.ended) == 1


async def test_a_plain_kernel_without_a_relay_is_ended_by_what_jupyter_saw() -> None:
    clock, kernels, culler = a_scene()
    clock.seconds = 1089.0
    await culler.check()
    assert culler.announced() == {}
    clock.seconds = 1090.0
    await culler.check()
    assert culler.announced()["k1"].at == 1100.0
    kernels.kernel.execution_state = "busy"
    clock.seconds = 1100.0
    await culler.check()
    assert (culler.announced(), kernels.ended) == ({}, [])
    kernels.kernel.execution_state = "idle"
    await culler.check()
    clock.seconds = 1110.0
    await culler.check()
    assert [asked.message for asked in kernels.ended] == ["the kernel was ended after 100 s idle"]


@pytest.mark.parametrize("state", ["queued", "starting", "ended"])
async def test_a_kernel_that_does_not_run_is_left_alone(state: str) -> None:
    clock, kernels, culler = a_scene()
    kernels.state = state
    clock.seconds = 1e6
    await culler.check()
    assert culler.announced() == {}


@pytest.mark.parametrize(
    ("activity", "is_up", "want"),
    [
        (Activity(1, 1, 1000.0, None, 1000.0), True, False),
        (Activity(2, 0, None, 1000.0, 1000.0), True, True),
        (Activity(0, 0, None, 1000.0, 1000.0), False, False),
        (None, True, False),
    ],
)
async def test_a_relays_word_counts_and_one_that_is_away_spares_its_kernel(
    activity: Activity | None, is_up: bool, want: bool
) -> None:
    clock, kernels, culler = a_scene()
    kernels.relay(activity, is_up)
    # The culler does not ask Jupyter's tracker then: it is wrong where subshells are at work.
    kernels.kernel.execution_state = "idle" if not want else "busy"
    clock.seconds = 1095.0
    await culler.check()
    assert bool(culler.announced()) is want


async def test_use_of_the_gpu_without_a_cell_is_use_and_an_agent_that_is_away_spares_its_kernels() -> None:
    clock, kernels, culler = a_scene(SIZED)
    culler.watch(node(0.0))
    clock.seconds = 1080.0
    culler.watch(node(2.5))
    clock.seconds = 1100.0
    await culler.check()
    assert culler.announced() == {}, "a thread of it uses the GPU"
    clock.seconds = 1150.0
    culler.watch(node(2.5, charged=1 << 20))
    clock.seconds = 1245.0
    culler.watch(NodeView())
    await culler.check()
    assert culler.announced() == {}, "nobody knows what it does"
    culler.watch(node(2.5, charged=1 << 20))
    await culler.check()
    assert culler.announced()["k1"].at == 1255.0
    clock.seconds = 1255.0
    await culler.check()
    assert len(kernels.ended) == 1


async def test_a_kernel_that_its_owner_keeps_begins_anew() -> None:
    clock, kernels, culler = a_scene()
    clock.seconds = 1095.0
    await culler.check()
    assert culler.keep("k1") is None
    assert culler.announced() == {}
    clock.seconds = 1184.0
    await culler.check()
    assert (culler.announced(), kernels.ended) == ({}, [])
    clock.seconds = 1186.0
    await culler.check()
    assert culler.announced()["k1"].at == 1196.0


@pytest.mark.parametrize(("metadata", "want"), [(10, True), (0, False), (-1, False), (1000, False), (True, True)])
async def test_a_kernelspecs_own_time_counts(metadata: Any, want: bool) -> None:
    clock, _, culler = a_scene({"cull_idle_timeout": metadata})
    clock.seconds = 1150.0
    await culler.check()
    assert bool(culler.announced()) is want


async def test_one_that_could_not_be_ended_is_announced_again() -> None:
    clock, kernels, culler = a_scene()
    kernels.refuses = True
    clock.seconds = 1100.0
    await culler.check()
    clock.seconds = 1110.0
    await culler.check()
    assert culler.announced() == {}
    await culler.check()
    assert culler.announced()["k1"].at == 1120.0


async def test_a_check_of_many_kernels_serves_others_meanwhile_who_end_and_keep_kernels() -> None:
    clock = Clock()
    kernels = Kernels(clock, count=2000)
    culler = Culler(kernels, POLICY, clock, LOG)
    clock.seconds = 1095.0
    check = asyncio.create_task(culler.check())
    await asyncio.sleep(0)  # the check does its first step
    assert not check.done(), "two thousand kernels take longer than one step"
    looked_at = [name for name in kernels.ids if name in kernels.seen]
    assert 0 < len(looked_at) < 2000
    assert culler.keep(looked_at[0]) is None
    gone = next(name for name in kernels.ids if name not in kernels.seen)
    kernels.ids.remove(gone)
    await check
    assert culler.announced().keys() == {*kernels.ids} - {looked_at[0]}
