"""The agent beside hooks of another protocol version: it refuses them, and tells what to do."""

from __future__ import annotations

import os
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import AgentPage, Credit, Hello, MessageType, RefusalReason, Role


@pytest.fixture(autouse=True)
def _a_kernel(a_holder: Any) -> None:
    assert a_holder.reserve()["ok"]


def of_version(message: protocol.Message, version: int) -> bytes:
    datagram = bytearray(protocol.pack(message))
    datagram[4:6] = version.to_bytes(2, "little")
    return bytes(datagram)


def test_the_page_names_the_version(a_node: Any) -> None:
    hook = a_node.a_hook()
    hook.hello()
    assert int.from_bytes(hook.agent_page[AgentPage.VERSION : AgentPage.VERSION + 4], "little") == protocol.VERSION


@pytest.mark.parametrize("version", [*range(protocol.VERSION), protocol.VERSION + 1])
def test_a_hook_of_another_version_is_told_which_there_is_and_what_to_do(a_node: Any, version: int) -> None:
    hook = a_node.a_hook()
    hook.send(of_version(Hello(Role.PROCESS, os.getpid(), 0, "x"), version))
    refusal = hook.receive()
    assert isinstance(refusal, protocol.Refuse)
    assert (refusal.reason, refusal.text) == (
        RefusalReason.VERSION,
        f"got protocol version {version}; this side speaks version {protocol.VERSION}. Restart the kernel, so that its "
        "hook and the node agent are of one release",
    )
    assert hook.receive() is None


def test_a_connection_may_not_change_its_version(a_node: Any) -> None:
    hook = a_node.a_hook()
    hook.hello()
    hook.send(of_version(Credit(MessageType.CREDIT_REQUEST, 0, 1, 1), protocol.VERSION - 1))
    refusal = hook.receive()
    assert isinstance(refusal, protocol.Refuse)
    assert refusal.reason is RefusalReason.VERSION
