"""A sampler like HAMi-core's: a token bucket of grid blocks.

Source: `multiprocess_utilization_watcher.c`, read at 8f3a89c. The sampler refills the bucket each
120 ms, by the distance of the utilization over 1 s from the limit.

It limits opportunistic work and capped shares to their share of the device, and does not limit
production. Unlike there, graphs count, and launches look for tokens more often than each 10 ms.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import (
    MILLISECOND,
    SECOND,
    DeviceSample,
    Verdict,
)
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import MEASURED, Order

from .blocks import BlockOrder, BlockSample, with_blocks

REFILL = 120 * MILLISECOND
WINDOW = SECOND
LEAST_DIFFERENCE = 5  # percent
FACTOR = 32  # times the threads of all multiprocessors: the bucket's size


@dataclass(frozen=True)
class Part:
    """The GPU that the constants are computed from; ours are an A100's."""

    multiprocessors: int = 108
    threads: int = 2048

    @property
    def bucket(self) -> int:
        return self.multiprocessors * self.threads * FACTOR


def refill(part: Part, limit: int, used: int, share: int) -> int:
    """Return the next refill, computed from the last one; ``limit`` and ``used`` are percentages."""
    difference = max(LEAST_DIFFERENCE, abs(limit - used))
    step = part.multiprocessors**2 * part.threads * difference // 2560
    if difference > limit // 2:
        step = step * difference * 2 // (limit + 1)
    return min(part.bucket, share + step) if used <= limit else max(0, share - step)


@dataclass
class _Bucket:
    tokens: int = 0
    share: int = 0
    blocks: int = 0
    refilled: int = 0
    used: deque[tuple[int, int]] = field(default_factory=deque)  # time, GPU time so far


def _used(process: BlockSample) -> int:
    return process.occupied if process.own is None else process.own


class HamiLike:
    """HAMi-core's controller. ``part``: the GPU that it runs on."""

    def __init__(self, part: Part | None = None) -> None:
        self._part = part or Part()
        self._buckets: dict[int, _Bucket] = {}

    def step(self, look: DeviceSample) -> Verdict:
        present = {process.key for process in look.processes}
        self._buckets = {key: bucket for key, bucket in self._buckets.items() if key in present}
        orders = {process.key: self._order(process, look.now) for process in with_blocks(look.processes)}
        return Verdict(orders, look_after=REFILL)

    def _order(self, process: BlockSample, now: int) -> Order:
        if process.hundredths >= 100 or (process.is_production and not process.is_capped):
            return MEASURED
        bucket = self._buckets.setdefault(process.key, _Bucket(self._part.bucket, 0, process.blocks, now))
        bucket.tokens -= process.blocks - bucket.blocks
        bucket.blocks = process.blocks
        bucket.used.append((now, _used(process)))
        while len(bucket.used) > 1 and bucket.used[1][0] <= now - WINDOW:
            bucket.used.popleft()
        if now - bucket.refilled >= REFILL // 2:
            bucket.refilled = now
            bucket.share = refill(self._part, process.hundredths, self._percent(bucket, now), bucket.share)
            bucket.tokens = min(self._part.bucket, bucket.tokens + bucket.share)
        allowed = process.blocks + max(0, bucket.tokens + 1)
        return BlockOrder(allowed_blocks=allowed, batch_microseconds=250)

    def _percent(self, bucket: _Bucket, now: int) -> int:
        since, used = bucket.used[0]
        return 100 * (bucket.used[-1][1] - used) // (now - since) if now > since else 0
