"""Simulated production workloads, each busy and with the idle time that is typical of its kind.

The module has values only. The figures have the size that public
profiles show on A100 and H100; a named source is the one that the size was taken from. The spreads
are our own choice, so that no step is like another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from compute.programs import (
    BEGIN_OP,
    MICROSECOND,
    MILLISECOND,
    OTHER_STEP_OP,
    SECOND,
    STEP_OP,
    SYNC_OP,
    Op,
    Workload,
    around,
    arrive,
    graph,
    host,
    launches,
    repeated,
)  # fmt: skip

LONG_CYCLE = 512  # steps until a program repeats itself


def _resnet50(random: Random, stall: float) -> list[Op]:
    """Training at batch 256, mixed precision: a step of about 100 ms in some 480 launches.

    Stalls: a third of the time, of the 10 to 70 % that Mohan et al. (arXiv 2007.06775) measured for
    input-bound training.
    """
    step = [
        launches(160, around(random, 260_000, 0.03), 0),
        launches(280, around(random, 170_000, 0.03), 1),
        launches(40, around(random, 60_000, 0.03), 2),
        SYNC_OP,
    ]
    return [*step, *([host(around(random, 50 * MILLISECOND, 0.4))] if stall else []), STEP_OP]


def _bert(random: Random, number: int, pauses: bool) -> list[Op]:
    """Fine-tuning BERT-base, batch 32, length 384: 1,500 launches of 50 to 100 µs.

    The loss is read each step. Idle: batches are tokenized while the GPU waits, and every 25 steps
    metrics and a checkpoint are written.
    """
    step = [launches(900, around(random, 75_000, 0.04), 0), launches(600, around(random, 50_000, 0.04), 1), SYNC_OP]
    if pauses:
        step.append(host(around(random, 25 * MILLISECOND, 0.5)))
        if number % 25 == 24:
            return [*step, STEP_OP, host(around(random, 900 * MILLISECOND, 0.3)), BEGIN_OP]
    return [*step, STEP_OP]


def _reinforcement(random: Random, rollouts: int, environment: float) -> list[Op]:
    """PPO with small networks: rounds of acting, then learning.

    The host issues launches of 6 µs every 8 µs (the GPU waits for the host). Idle: the environments
    are stepped on the CPU, some ms for each round.
    """
    steps: list[Op] = []
    for _ in range(rollouts):
        steps += [launches(90, 6_000, 0, 8_000, 16), SYNC_OP]
        if environment:
            steps.append(host(around(random, environment, 0.25)))
    return [*steps, launches(2400, around(random, 12_000, 0.05), 1, 8_000, 64), SYNC_OP, STEP_OP]


def _image(random: Random) -> list[Op]:
    """A latent-diffusion image: text encoder, 20 denoising steps of about 30 ms, decoder.

    Lambda's benchmark (lambdalabs.com/blog/inference-benchmark-stable-diffusion) has 50 steps in some
    2.5 to 5 s on an A100. 700 launches for each denoising step.
    """
    steps: list[Op] = [launches(250, 20_000, 0)]
    for _ in range(20):
        steps += [launches(400, around(random, 55_000, 0.03), 1), launches(300, around(random, 25_000, 0.03), 2)]
    return [*steps, launches(120, around(random, 350_000, 0.05), 3), SYNC_OP]


def _answer(random: Random) -> list[list[Op]]:
    """An answer of an 8-billion-parameter model: prefill, then one graph for each token.

    Llama 3.1 8B decodes in 5.1 ms by graph on an H100; 0.2 ms of sampling on the host between. Each
    token is a step, and the time to the first one is a step of another kind.
    """
    prefill = [launches(260, around(random, 180_000, 0.2), 0), SYNC_OP, OTHER_STEP_OP]
    tokens = max(16, int(around(random, 120, 0.5)))
    token = [graph(around(random, 5_100 * MICROSECOND, 0.01), 1), SYNC_OP, host(0.2 * MILLISECOND), STEP_OP]
    return [prefill, *([token] * tokens)]


def _cell(random: Random) -> list[Op]:
    """A notebook's cell: a few hundred ms to seconds of mixed launches, with looks at results between."""
    steps: list[Op] = [BEGIN_OP]
    for _ in range(max(2, int(around(random, 8, 0.6)))):
        steps.append(launches(int(around(random, 350, 0.5)) + 1, around(random, 130_000, 0.4), random.randrange(3)))
        steps += [SYNC_OP, host(around(random, 1.5 * MILLISECOND, 0.5))]
    return [*steps, STEP_OP]


def _with(name: str, doc: str | None, make: Callable[[Random], Sequence[Sequence[Op]]]) -> Workload:
    return repeated(name, " ".join((doc or "").split()), make(Random(name)))


def _answers(random: Random, gap: float) -> list[list[Op]]:
    steps: list[list[Op]] = []
    for _ in range(LONG_CYCLE // 4):
        steps += [[arrive(random.expovariate(1 / gap)) if gap else BEGIN_OP], *_answer(random)]
    return steps


def _images(random: Random, gap: float) -> list[list[Op]]:
    first = (lambda: arrive(random.expovariate(1 / gap))) if gap else (lambda: BEGIN_OP)
    return [[first(), *_image(random), STEP_OP] for _ in range(LONG_CYCLE // 4)]


def _cells(random: Random, think: float) -> list[list[Op]]:
    return [
        [*([host(min(60 * SECOND, around(random, think, 0.9)))] if think else []), *_cell(random)]
        for _ in range(LONG_CYCLE // 4)
    ]


PRODUCTION = {
    workload.name: workload
    for workload in (
        _with("resnet50", _resnet50.__doc__, lambda r: [_resnet50(r, 0) for _ in range(LONG_CYCLE)]),
        _with("resnet50.idle", _resnet50.__doc__, lambda r: [_resnet50(r, 1) for _ in range(LONG_CYCLE)]),
        _with("bert", _bert.__doc__, lambda r: [_bert(r, n, False) for n in range(LONG_CYCLE)]),
        _with("bert.idle", _bert.__doc__, lambda r: [_bert(r, n, True) for n in range(LONG_CYCLE)]),
        _with("rl", _reinforcement.__doc__, lambda r: [_reinforcement(r, 16, 0) for _ in range(LONG_CYCLE)]),
        _with(
            "rl.idle", _reinforcement.__doc__, lambda r: [_reinforcement(r, 16, 6 * MILLISECOND) for _ in range(256)]
        ),
        _with("diffusion", _image.__doc__, lambda r: _images(r, 0)),
        _with("diffusion.idle", _image.__doc__, lambda r: _images(r, 1.6 * SECOND)),
        _with("llm", _answer.__doc__, lambda r: _answers(r, 0)),
        _with("llm.idle", _answer.__doc__, lambda r: _answers(r, 1.8 * SECOND)),
        _with("notebook", _cell.__doc__, lambda r: _cells(r, 0)),
        _with("notebook.idle", _cell.__doc__, lambda r: _cells(r, 2.5 * SECOND)),
    )
}
