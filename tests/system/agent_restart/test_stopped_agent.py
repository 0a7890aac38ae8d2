"""An agent that answers nothing for so long that the gateway gives its connection up, under many grants."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.node.connection import AgentLink
from jupyter_aliquot.gateway.scheduling.admission import Admission, AdmissionSettings
from jupyter_aliquot.gateway.scheduling.ledger import KernelRef
from jupyter_aliquot.provisioner.resources import GpuShare, Request

if TYPE_CHECKING:
    from tests.system.agent_restart.agent_node import AgentNode
else:
    from agent_node import AgentNode

LOG = logging.getLogger(__name__)
# Grants of a hundredth fill the software GPU's most devices but for what this test asks meanwhile.
GRANTS, DEVICES = 790, 8
SHARE = Request(GpuShare(1))
SECONDS = 240.0


@pytest.fixture
def a_large_node() -> Iterator[AgentNode]:
    node = AgentNode("--softgpu-devices", str(DEVICES))
    node.start()
    yield node
    node.close()


class Gateway:
    """The part of a gateway that asks the agent: its link and its admission."""

    def __init__(self, node: AgentNode) -> None:
        clock = SystemClock()
        self.link = AgentLink(node.folder, clock, None, LOG)
        self.admission = Admission(self.link, clock, AdmissionSettings(), LOG)
        self.names: set[str] = set()

    async def grant(self, name: str) -> None:
        self.names.add(name)
        await asyncio.wait_for(self.admission.submit(KernelRef(name, f"user-{name}"), SHARE), SECONDS)

    def has_renewed_all(self) -> bool:
        held = self.admission.snapshot().holdings
        return {one.grant.kernel_id for one in held if one.is_confirmed} == self.names


async def until(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not await asyncio.to_thread(claim):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def granted(node: AgentNode) -> set[str]:
    return {kernel["kernel_id"] for kernel in node.status()["kernels"]}


async def stop_and_go_on(node: AgentNode, gateway: Gateway, late: str) -> None:
    """Stop the agent until the gateway has given its connection up, with a start that waits for it."""
    link, before = gateway.link, gateway.link.connections
    node.signal(signal.SIGSTOP)
    asked = asyncio.ensure_future(gateway.grant(late))
    await until(lambda: link.unavailable_since is not None)
    node.signal(signal.SIGCONT)
    await asked
    await until(gateway.has_renewed_all)
    assert link.connections > before


@pytest.mark.soak(alone="takes hundreds of grants, and waits as long as an agent may take to answer")
@pytest.mark.timeout(900)
def test_grants_that_no_kernel_has_joined_outlast_an_agent_that_is_given_up(a_large_node: AgentNode) -> None:
    async def scene() -> None:
        gateway = Gateway(a_large_node)
        await gateway.link.start()
        await gateway.admission.start()
        await asyncio.gather(*(gateway.grant(f"k{number}") for number in range(GRANTS)))
        for turn in range(3):
            await stop_and_go_on(a_large_node, gateway, f"late{turn}")
            # Its connection is lost after those of the others: when the agent gives it up, it has given them up.
            await asyncio.to_thread(a_large_node.reserve, "witness", 1)
            a_large_node.leave("witness")
            await until(lambda: "witness" not in granted(a_large_node))
            assert granted(a_large_node) == gateway.names
            assert "event=released kernel=k" not in a_large_node.log(), "a start meanwhile would have found no grant"
        await gateway.admission.stop()
        await gateway.link.stop()

    asyncio.run(scene())
