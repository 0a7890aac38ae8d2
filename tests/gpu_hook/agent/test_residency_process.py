"""One process's answers to an order to move, and the meaning of a missing answer."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jupyter_aliquot.gpu_hook.agent.host_copies.segments import Segment
from jupyter_aliquot.gpu_hook.agent.swap.facts import MoveResult
from jupyter_aliquot.gpu_hook.agent.swap.process import Absence, Patience, move_of
from jupyter_aliquot.gpu_hook.protocol.codec import MessageType, Moved, MoveOutcome, PinReason, Residency

if TYPE_CHECKING:
    from tests.gpu_hook.agent.residency_node import ANodeHere
    from tests.gpu_hook.agent.scripted_hook import MIB
else:
    from residency_node import ANodeHere
    from scripted_hook import MIB


def test_a_process_that_ended_a_moment_ago_is_gone_and_not_silent(a_folder: Path) -> None:
    async def scene() -> None:
        node = ANodeHere(a_folder)
        descriptor = os.memfd_create("segment")
        try:
            hook = await node.a_hook(3)
            (process,) = node.residency._processes.values()
            hook.die()  # its connection is closed, and the loop does not know it yet
            patience = Patience(begin_seconds=20.0, move_seconds=20.0)
            told = process.tell(MessageType.SWAP_OUT, [Segment(descriptor, MIB, False)], 100, patience)
            assert await told is Absence.GONE
        finally:
            os.close(descriptor)
            node.close()

    asyncio.run(asyncio.wait_for(scene(), 60))


@pytest.mark.parametrize(
    ("wanted", "is_at"), [(Residency.SWAPPED, Residency.RESIDENT), (Residency.RESIDENT, Residency.SWAPPED)]
)
def test_one_that_says_that_it_moved_and_is_where_it_was_failed(wanted: Residency, is_at: Residency) -> None:
    said = Moved(MoveOutcome.DONE, is_at, (), PinReason(0), 0, 0, 0, 0, "", 1)
    assert move_of(said, wanted, ()).result is MoveResult.FAILED
