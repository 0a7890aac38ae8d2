"""Kernels whose GPU calls are not seen."""

from __future__ import annotations

import logging
from typing import Any

from aliquot.gateway.interception_guard import InterceptionGuard
from aliquot.gateway.status import NodeView
from aliquot.gpu_hook.client import NodeStatus, read_status

from .fake_agent import kernel


class Manager:
    """Kernels that end when they are told to."""

    def __init__(self, *kernels: str) -> None:
        self.kernels = set(kernels)

    def __contains__(self, kernel_id: Any) -> bool:
        return kernel_id in self.kernels

    async def shutdown_kernel(self, kernel_id: str, now: bool = False) -> None:
        self.kernels.remove(kernel_id)


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
    guard.look(view)
    guard.look(view)
    await guard.stop()
    assert manager.kernels == {"k2"}
    [ended] = guard.ended()
    assert (ended.id, ended.owner, ended.state) == ("k1", "alice", "ended")
    assert failed in (ended.reason or "")


async def test_an_agent_that_is_away_ends_nobody() -> None:
    manager = Manager("k1")
    guard = InterceptionGuard(manager, logging.getLogger("test"))
    guard.look(NodeView())
    await guard.stop()
    assert manager.kernels == {"k1"}


async def test_a_kernel_that_could_not_be_ended_is_not_called_ended_and_is_tried_again() -> None:
    class StubbornManager(Manager):
        async def shutdown_kernel(self, kernel_id: str, now: bool = False) -> None:
            attempts.append(kernel_id)
            if len(attempts) == 1:
                raise OSError("it would not go")
            await super().shutdown_kernel(kernel_id, now)

    attempts: list[str] = []
    manager = StubbornManager("k1")
    guard = InterceptionGuard(manager, logging.getLogger("test"))
    view = node(kernel("k1", "alice", interception="failed: cuInit reached the driver"))
    guard.look(view)
    await guard.stop()
    assert (manager.kernels, guard.ended()) == ({"k1"}, ())
    guard.look(view)
    await guard.stop()
    assert (manager.kernels, [ended.id for ended in guard.ended()]) == (set(), ["k1"])
