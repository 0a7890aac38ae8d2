"""A call that waits for its memory, and an interrupt that ends the wait.

The agent's residency handles both.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.gpu_hook.agent.residency_node import ANodeHere, until
else:
    from residency_node import ANodeHere, until


def test_a_wait_that_an_interrupt_ended_is_withdrawn_unless_another_call_waits(a_folder: Path) -> None:
    async def scenario() -> None:
        node = ANodeHere(a_folder)
        first, second = await node.a_hook(4), await node.a_hook(4, seed=2)
        assert (await node.residency.swap_out("test")).is_done
        for hook in (first, second):
            hook.wait()
        await until(lambda: node.residency.facts().waits_since is not None)
        node.kernel.credit_queues.interrupt()
        assert (first.interrupts, second.interrupts) == (1, 1)
        first.give_up()
        await node.a_hook(0)  # the agent has handled earlier messages
        assert node.residency.facts().waits_since is not None
        second.give_up()
        await until(lambda: node.residency.facts().gave_up_at is not None)
        assert node.residency.facts().waits_since is None
        node.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))
