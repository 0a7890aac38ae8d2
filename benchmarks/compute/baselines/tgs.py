"""TGS's controller of opportunistic work, with the constants of its source.

Source: NSDI'23; `hijack/src`, June 2023. The controller counts thread blocks, compares production's
rate each 5 s with the best rate so far, and limits the blocks that opportunistic work may launch in
each 50 ms.

Kept faults: a difference counts in both directions, production that waits for data looks slowed,
and all devices that get the same `Statics` share its function-static counter. Not kept: its
launches sleep in steps of 10 ms, ours look again sooner.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from enum import Enum

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import (
    MILLISECOND,
    SECOND,
    DeviceSample,
    Verdict,
)
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import MEASURED, Order

from .blocks import BlockOrder, BlockSample, with_blocks

SAMPLE = 5 * SECOND
WINDOW = 50 * MILLISECOND
SAMPLES = 5  # of its window
FIRST_LIMIT = 20_000.0  # blocks in each 50 ms
HIGHEST = 1e14
IDLE_BLOCKS = 1_000
PATIENCE = 20  # samples
SHORT_BATCH, LONG_BATCH = 1, 250  # microseconds: the short batch holds back single launches where few may pass


class Phase(Enum):
    ALONE = 0  # no pair of the two classes
    PROFILE = 1
    SLOW_START = 2
    CONGESTION_AVOIDANCE = 3


@dataclass
class Statics:
    """State that TGS shares between all GPUs of a machine, by accident."""

    far_off: int = 0  # consecutive samples that are 12 % from the goal


def window_rate(samples: list[float]) -> float:
    return max((one + other) / 2 for one, other in itertools.pairwise(samples))


class Limit:
    """The state machine, one step for each sample. ``blocks``: allowed in each window of 50 ms."""

    def __init__(self, statics: Statics) -> None:
        self.phase, self.goal, self.blocks = Phase.ALONE, 0.0, 0.0
        self._statics, self._samples = statics, [0.0] * SAMPLES
        self._seen = self._profiled = 0
        self._is_first = True

    def connect(self) -> None:
        self.phase, self.blocks, self._profiled, self._is_first = Phase.PROFILE, 0.0, 0, True

    def disconnect(self) -> None:
        self.phase, self.goal = Phase.ALONE, 0.8 * self.goal

    def sample(self, rate: float, own: float) -> None:
        """Take a sample: blocks of production and of the opportunistic side in the last 5 s."""
        before = window_rate(self._samples)
        self._samples = [*self._samples[1:], rate]
        self._seen += 1
        if self.phase == Phase.ALONE:
            self._follow(before)
        elif self.phase == Phase.PROFILE:
            self._profile(before)
        elif not self._has_left_goal(before):
            self._control(rate, own)

    def _follow(self, window: float) -> None:
        near = abs(self.goal - window) <= 0.2 * window
        self.goal = max(self.goal, window) if near else window

    def _adjust(self, window: float) -> float:
        """Return the window's relative distance from the goal; the goal follows."""
        off = (window - self.goal) / self.goal if self.goal else float(window > 0)
        if off > 0.05:
            self.goal = max(self.goal, 0.975 * window)
        elif off < -0.05:
            self.goal = min(self.goal, 1.025 * window)
        else:
            self.goal = max(self.goal, window)
        return off

    def _profile(self, window: float) -> None:
        self._profiled += 1
        off = self._adjust(window)
        if abs(off) <= 0.05 and self._profiled >= SAMPLES:
            self.phase = Phase.SLOW_START

    def _has_left_goal(self, window: float) -> bool:
        off = abs(window - self.goal) / self.goal if self.goal else float(window > 0)
        if off > 0.2:
            self._adjust(window)
            self.phase, self.blocks, self._profiled = Phase.PROFILE, 0.0, 0
            return True
        if off <= 0.1:
            self.goal = max(self.goal, window)
        return False

    def _restart(self, blocks: float) -> None:
        self.phase, self.blocks = Phase.SLOW_START, blocks

    def _control(self, rate: float, own: float) -> None:
        idle = sum(sample < IDLE_BLOCKS for sample in self._samples)
        off = abs(rate - self.goal) / self.goal if self.goal else 0.0
        self._statics.far_off = self._statics.far_off + 1 if off >= 0.12 else 0
        if self._is_first:
            self._is_first = False
            self._restart(FIRST_LIMIT)
        elif idle >= 3 and self._seen >= 15:
            self._restart(min(HIGHEST, max(3 * own, 2.0**32)))
        elif idle == 2:
            self._restart(FIRST_LIMIT)
        elif self._statics.far_off >= PATIENCE:
            self._statics.far_off = 0
            self.goal *= 0.8
            self._restart(self.blocks / 2)
        elif self.phase == Phase.SLOW_START:
            self._slow_start(off, own)
        else:
            self._avoid(off, own)

    def _slow_start(self, off: float, own: float) -> None:
        if off <= 0.03:
            self.blocks = min(1.5 * self.blocks + 1, HIGHEST, max(3 * own, 2.0**40))
        else:
            self.blocks /= 1.5
            self.phase = Phase.CONGESTION_AVOIDANCE

    def _avoid(self, off: float, own: float) -> None:
        if off >= 0.09:
            self._restart(self.blocks / 10)
            return
        change = max(0.00025 * self.goal, 1000.0) if off <= 0.03 else -max(0.08 * self.blocks, 1000.0)
        self.blocks = min(max(0.0, self.blocks + change), HIGHEST, max(3 * own, 2.0**32))


class Tgs:
    """One production and one opportunistic side, as TGS knows them; several processes count as one."""

    def __init__(self, statics: Statics | None = None) -> None:
        self.limit = Limit(statics or Statics())
        self._sampled_at: int | None = None
        self._counts: tuple[int, int] = (0, 0)

    def step(self, look: DeviceSample) -> Verdict:
        processes = with_blocks(look.processes)
        production = [process for process in processes if process.is_production]
        others = [process for process in processes if not process.is_production]
        self._connect(bool(production and others))
        self._sample(look.now, sum(one.blocks for one in production), sum(one.blocks for one in others))
        orders: dict[int, Order] = {process.key: MEASURED for process in processes}
        if self.limit.phase != Phase.ALONE:
            orders.update({process.key: self._limited(process) for process in others})
        return Verdict(orders, look_after=WINDOW)

    def _connect(self, is_pair: bool) -> None:
        if is_pair and self.limit.phase == Phase.ALONE:
            self.limit.connect()
        elif not is_pair and self.limit.phase != Phase.ALONE:
            self.limit.disconnect()

    def _sample(self, now: int, production: int, others: int) -> None:
        if self._sampled_at is None or production < self._counts[0] or others < self._counts[1]:
            self._sampled_at, self._counts = now, (production, others)  # a process came or left
        elif now - self._sampled_at >= SAMPLE:
            part = SAMPLE / (now - self._sampled_at)
            self.limit.sample(part * (production - self._counts[0]), part * (others - self._counts[1]))
            self._sampled_at, self._counts = now, (production, others)

    def _limited(self, process: BlockSample) -> BlockOrder:
        """Return an order that limits the process's blocks.

        A launch waits while this window counted more blocks than the limit, so at 0 one launch
        still passes.
        """
        blocks = int(self.limit.blocks)
        batch = SHORT_BATCH if blocks < FIRST_LIMIT / 2 else LONG_BATCH
        return BlockOrder(allowed_blocks=process.blocks + blocks + 1, batch_microseconds=batch)
