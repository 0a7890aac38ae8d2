"""The catalogue of simulated workloads. Production ones exist busy and with idle time; figures have their sources."""

from __future__ import annotations

from random import Random

from compute.programs import (
    BEGIN_OP,
    MILLISECOND,
    STEP_OP,
    SYNC_OP,
    Op,
    Workload,
    around,
    host,
    launches,
    repeated,
)

STEPS = 64


def resnet50(stall_share: float) -> Workload:
    """Training at batch 64: about 480 launches of 0.17 ms; every few steps the data loader is behind."""
    random = Random("resnet50")
    steps: list[list[Op]] = []
    for _ in range(STEPS):
        step = [
            launches(160, around(random, 120_000, 0.05), 0),
            launches(280, around(random, 200_000, 0.05), 1),
            launches(40, around(random, 60_000, 0.05), 2),
            SYNC_OP,
        ]
        if stall_share:
            step.append(host(around(random, 80 * MILLISECOND * stall_share, 0.3)))
        steps.append([*step, STEP_OP])
    return repeated("resnet50", resnet50.__doc__ or "", steps)


def training() -> Workload:
    random = Random("training")
    return repeated(
        "training",
        "a training job that never waits",
        [[BEGIN_OP, launches(400, around(random, 150_000, 0.1)), SYNC_OP, STEP_OP] for _ in range(STEPS)],
    )


PRODUCTION = {"resnet50": resnet50(0.0), "resnet50.idle": resnet50(0.6)}
OPPORTUNISTIC = {"training": training()}
