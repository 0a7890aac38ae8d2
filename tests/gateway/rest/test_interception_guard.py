"""The guard that ends kernels whose GPU calls the hook does not see."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from lead_by_hand import LeadByHand

from jupyter_aliquot.gateway.culling.interception import GuardRules, InterceptionGuard
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gpu_hook.client.client import NodeStatus, read_status
from jupyter_aliquot.provisioner.terminations import Asked, EndingCode

from .fake_agent import escaped, kernel


class Manager:
    """A manager whose kernels end on request."""

    def __init__(self, *kernels: str, in_containers: tuple[str, ...] = ()) -> None:
        self.kernels = set(kernels)
        self.in_containers = in_containers
        self.ended: dict[str, Asked] = {}

    def is_in_container(self, kernel_id: str) -> bool:
        return kernel_id in self.in_containers

    def __contains__(self, kernel_id: Any) -> bool:
        return kernel_id in self.kernels

    async def end_kernel(self, kernel_id: str, asked: Asked, now: bool = False) -> None:
        self.kernels.remove(kernel_id)
        self.ended[kernel_id] = asked


def node(*kernels: dict[str, Any]) -> NodeView:
    report = {"node": "n", "driver": "softgpu", "enforcer": "hook", "devices": [], "connections": 1}
    status: NodeStatus = read_status({**report, "kernels": list(kernels)})
    return NodeView(status)


async def test_only_our_own_uncontrolled_kernels_are_ended_and_their_owner_learns_why() -> None:
    manager = Manager("k1", "k2")
    guard = InterceptionGuard(manager, logging.getLogger("test"))
    failed = "failed: cuInit reached the driver"
    view = node(
        kernel("k1", "alice", interception=failed), kernel("k2", "bob"), kernel("k3", "ada", interception=failed)
    )
    guard.check(view)
    guard.check(view)
    await guard.stop()
    assert manager.kernels == {"k2"}
    assert manager.ended["k1"].code is EndingCode.INTERCEPTION
    assert failed in manager.ended["k1"].message


async def test_a_kernel_in_a_container_is_ended_whatever_the_policy_says() -> None:
    manager = Manager("process", "contained", in_containers=("contained",))
    guard = InterceptionGuard(manager, logging.getLogger("test"), GuardRules(False, False))
    failed = "failed: cuInit reached the driver"
    guard.check(node(kernel("process", "alice", interception=failed), kernel("contained", "bob", interception=failed)))
    await guard.stop()
    assert manager.kernels == {"process"}
    assert "it runs in a container" in manager.ended["contained"].message


async def test_an_agent_that_is_away_ends_nobody() -> None:
    manager = Manager("k1")
    guard = InterceptionGuard(manager, logging.getLogger("test"))
    guard.check(NodeView())
    await guard.stop()
    assert manager.kernels == {"k1"}


async def test_a_kernel_that_could_not_be_ended_is_not_called_ended_and_is_tried_again() -> None:
    class StubbornManager(Manager):
        async def end_kernel(self, kernel_id: str, asked: Asked, now: bool = False) -> None:
            attempts.append(kernel_id)
            if len(attempts) == 1:
                raise OSError("it would not go")
            await super().end_kernel(kernel_id, asked, now)

    attempts: list[str] = []
    manager = StubbornManager("k1")
    guard = InterceptionGuard(manager, logging.getLogger("test"))
    view = node(kernel("k1", "alice", interception="failed: cuInit reached the driver"))
    guard.check(view)
    await guard.stop()
    assert manager.kernels == {"k1"}
    guard.check(view)
    await guard.stop()
    assert (manager.kernels, len(attempts)) == (set(), 2)


@pytest.mark.parametrize(("ends", "want"), [(True, {"k2"}), (False, {"k1", "k2"})])
async def test_kernels_with_processes_past_the_hook_are_ended_where_the_policy_says_so(
    ends: bool, want: set[str]
) -> None:
    manager = Manager("k1", "k2")
    guard = InterceptionGuard(manager, logging.getLogger("test"), GuardRules(False, ends))
    failed = "failed: cuInit reached the driver"
    guard.check(node(kernel("k1", "alice", unhooked_processes=[escaped()]), kernel("k2", "bob", interception=failed)))
    await guard.stop()
    assert manager.kernels == want
    reasons = [(asked.code, asked.message) for asked in manager.ended.values()]
    assert len(reasons) == (1 if ends else 0)
    for code, message in reasons:
        assert code is EndingCode.UNCONTROLLED
        assert "process 77 (python3) has 3.0 GiB on gpu0: not registered" in message


async def test_a_replica_that_may_not_lead_ends_no_kernel() -> None:
    manager = Manager("k1")
    guard = InterceptionGuard(manager, logging.getLogger("test"), lead=LeadByHand(False))
    guard.check(node(kernel("k1", "alice", interception="failed: cuInit reached the driver")))
    await guard.stop()
    assert manager.kernels == {"k1"}
