"""The agent beside hooks of the version before its own, which live on in kernels that were started by it."""

from __future__ import annotations

import os
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import AgentPage, Credit, Hello, MessageType, RefusalReason, Role

MIB = 1 << 20
QUOTA = 512 * MIB
NEWER = protocol.VERSION + 1


@pytest.fixture(autouse=True)
def _a_kernel(a_holder: Any) -> None:
    assert a_holder.reserve()["ok"]


@pytest.mark.parametrize("version", range(protocol.OLDEST_VERSION, NEWER))
def test_a_hook_is_welcomed_in_its_own_version(a_node: Any, version: int) -> None:
    hook = a_node.a_hook()
    assert hook.hello(version=version) == protocol.Welcome(1)
    assert hook.last_version == version
    assert int.from_bytes(hook.agent_page[AgentPage.VERSION : AgentPage.VERSION + 4], "little") == version
    assert hook.read(AgentPage.QUOTA) == QUOTA
    assert hook.borrow(100 * MIB) == 100 * MIB
    assert hook.last_version == version
    hook.give_back(100 * MIB)
    a_node.until(lambda: a_node.device()["lent_bytes"] == 0)


def test_a_hook_of_version_1_gets_no_credit_of_host_memory(a_node: Any) -> None:
    hook = a_node.a_hook()
    hook.hello(version=1)
    hook.ask(1, protocol.HOST_MEMORY)
    refusal = hook.receive()
    assert isinstance(refusal, protocol.Refuse)
    assert refusal.reason is RefusalReason.MESSAGE


def test_a_connection_may_not_change_its_version(a_node: Any) -> None:
    hook = a_node.a_hook()
    hook.hello(version=1)
    hook.send(protocol.pack(Credit(MessageType.CREDIT_REQUEST, 0, 1, 1), 2))
    refusal = hook.receive()
    assert isinstance(refusal, protocol.Refuse)
    assert refusal.reason is RefusalReason.VERSION


def test_processes_of_both_versions_share_one_quota(a_node: Any) -> None:
    old, new = a_node.a_hook(), a_node.a_hook()
    old.hello(version=1)
    new.hello()
    assert old.borrow(QUOTA - MIB) == QUOTA - MIB
    sequence = new.ask(2 * MIB)
    recall = old.receive()
    assert isinstance(recall, Credit)
    old.give_back(MIB, sequence=recall.sequence)
    assert new.receive() == Credit(MessageType.CREDIT_GRANT, 0, 2 * MIB, sequence)


def test_a_newer_hook_is_told_which_versions_there_are(a_node: Any) -> None:
    hook = a_node.a_hook()
    hello = bytearray(protocol.pack(Hello(Role.PROCESS, os.getpid(), 0, "x")))
    hello[4] = NEWER
    hook.send(bytes(hello))
    refusal = hook.receive()
    assert isinstance(refusal, protocol.Refuse)
    assert (refusal.reason, refusal.text) == (
        RefusalReason.VERSION,
        f"got version {NEWER}; this agent speaks 1 to {protocol.VERSION}",
    )
