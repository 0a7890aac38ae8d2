"""Samples and orders of controllers that count thread blocks, as those of other systems do.

Hooks neither count blocks nor hold launches back by them, so only the plant takes such a
controller. Aliquot paces by time, for a count of blocks says nothing about time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import ProcessSample
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import Order
from jupyter_aliquot.gpu_hook.protocol.codec import NO_LIMIT, Gate, Pace


@dataclass(frozen=True)
class BlockSample(ProcessSample):
    """A sample with the number of thread blocks that the process launched so far."""

    blocks: int = 0


@dataclass(frozen=True)
class BlockOrder(Order):
    """An order that holds launches back while the process launched *allowed_blocks* or more."""

    gate: Gate = Gate.PACED
    pace: Pace = Pace.MEASURE
    allowed_blocks: int = NO_LIMIT


def with_blocks(processes: Iterable[ProcessSample]) -> list[BlockSample]:
    """Return the samples as samples with blocks.

    Raises TypeError for samples that have none: those of the agent.
    """
    samples = []
    for process in processes:
        if not isinstance(process, BlockSample):
            raise TypeError("This controller needs samples with thread blocks; only the plant counts blocks.")
        samples.append(process)
    return samples
