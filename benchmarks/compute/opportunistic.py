"""Simulated opportunistic workloads: typical work of the lower class.

The module has values only; production.py explains their sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from compute.programs import (
    MILLISECOND,
    STEP_OP,
    SYNC_OP,
    Op,
    Workload,
    around,
    graph,
    host,
    launches,
    repeated,
)  # fmt: skip

CYCLE = 256


def _gpt2(random: Random) -> list[Op]:
    """Fine-tuning GPT-2 with gradients accumulated over four batches: 6,000 launches of 50 to 250 µs, never idle."""
    step: list[Op] = []
    for _ in range(4):
        step += [launches(900, around(random, 60_000, 0.1), 0), launches(500, around(random, 220_000, 0.1), 1)]
    return [*step, launches(150, around(random, 80_000, 0.1), 2), SYNC_OP, STEP_OP]


def _graph_network(random: Random) -> list[Op]:
    """A graph network on small batches: 900 launches of 7 µs, issued every 6 µs; bound by the host's launches."""
    return [launches(700, around(random, 7_000, 0.1), 0, 6_000, 32), launches(200, 11_000, 1, 6_000, 64), SYNC_OP,
            host(0.3 * MILLISECOND), STEP_OP]  # fmt: skip


def _recommender(random: Random) -> list[Op]:
    """A recommender: about 800 launches for each step (as profiled for DLRM by A. Agrawal), embeddings the longest."""
    return [launches(740, around(random, 16_000, 0.1), 0, 5_000, 128), launches(60, around(random, 180_000, 0.2), 1),
            SYNC_OP, STEP_OP]  # fmt: skip


def _images(random: Random) -> list[Op]:
    """A batch of images by a compiled pipeline: each denoising step is one graph of about 24 ms."""
    step: list[Op] = [graph(around(random, 24 * MILLISECOND, 0.03), 0, blocks=400_000) for _ in range(20)]
    return [*step, launches(60, 700_000, 1), SYNC_OP, STEP_OP]


def _frames(random: Random) -> list[Op]:
    """Data frames: joins, sorts and group-bys of 1 to 15 ms each, and a little host work between."""
    step: list[Op] = []
    for _ in range(12):
        step += [launches(6, 300_000, 0, 20_000, 4_000), launches(2, around(random, 5 * MILLISECOND, 0.5), 1, 20_000,
                 60_000), SYNC_OP, host(around(random, 0.8 * MILLISECOND, 0.4))]  # fmt: skip
    return [*step, STEP_OP]


def _offline_answers(random: Random) -> list[Op]:
    """Offline answers in large batches: a graph of 9 ms for each token of all, one after the other."""
    return [launches(80, 450_000, 0), *[graph(around(random, 9 * MILLISECOND, 0.05), 1) for _ in range(64)],
            SYNC_OP, STEP_OP]  # fmt: skip


def _with(name: str, make: Callable[[Random], list[Op]]) -> Workload:
    random = Random(name)
    return repeated(name, " ".join((make.__doc__ or "").split()), [make(random) for _ in range(CYCLE)])


OPPORTUNISTIC = {
    workload.name: workload
    for workload in (
        _with("gpt2", _gpt2),
        _with("gnn", _graph_network),
        _with("dlrm", _recommender),
        _with("images", _images),
        _with("frames", _frames),
        _with("batch-llm", _offline_answers),
    )
}
