"""The GPU time of `aliquot history` is that of `aliquot usage`, wherever both looked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_aliquot.gateway.accounting.amounts import Subject
from jupyter_aliquot.gateway.accounting.days import Calendar, find_zone
from jupyter_aliquot.gateway.accounting.looks import Look, Part, PartKey, Place
from jupyter_aliquot.gateway.accounting.meter import Meter, Moment
from jupyter_aliquot.gateway.accounting.policy import ChargePolicy
from jupyter_aliquot.gateway.history.buckets import DAY, HOUR, Range
from jupyter_aliquot.gateway.terminal.history_table import gpu_seconds
from jupyter_aliquot.gpu_hook.client.reports import NodeStatus

from .node import node
from .test_history import Life

ALICE = Subject("alice", "vision", "0.25", "normal", "H200")

# By look, two seconds apart: the counters of all of the GPU's time and of the kernel's own. The agent
# reports no own time before the kernel has worked; the driver reports late, for two looks at once.
LATE = [(0.0, None), (0.0, None), (0.0, 0.0), (1.9, 1.8), (1.9, 1.8), (5.5, 5.3), (7.5, 7.2), (9.5, 9.2), (9.5, 9.2)]
# The first reading of the kernel has it at work, and its own time comes in the middle of a step.
AT_ONCE = [(1.5, 1.5), (3.5, 3.4), (3.5, 3.4), (4.1, 3.9)]
UNKNOWN_AT_FIRST = [(0.0, None), (0.0, None), (0.0, None), (2.0, 1.9), (4.0, 3.8), (6.0, 5.7)]
# Of an agent that measures no kernel's own time.
ALL_OF_IT = [(0.5, None), (2.5, None), (3.5, None)]
# The counters of a kernel begin anew, as after a restart of the agent.
ANEW = [(0.0, 0.0), (1.0, 1.0), (2.0, 2.0), (2.5, 0.5), (3.5, 1.5)]


def status_of(busy: float, own: float | None, created: float) -> NodeStatus:
    known = node(busy_seconds=busy, own_seconds=own or 0.0)
    [kernel] = known.kernels
    [device] = kernel.devices
    device = device if own is not None else replace(device, compute=None)
    return replace(known, kernels=(replace(kernel, created=created, devices=(device,)),))


@pytest.mark.parametrize("each", [HOUR, DAY], ids=["hour", "day"])
@pytest.mark.parametrize(
    "counters", [LATE, AT_ONCE, UNKNOWN_AT_FIRST, ALL_OF_IT, ANEW], ids=["late", "at once", "unknown", "all", "anew"]
)
def test_the_gpu_time_of_the_history_is_the_one_of_the_accounting(
    counters: list[tuple[float, float | None]], each: Range, tmp_path: Path
) -> None:
    history = Life(tmp_path / "history.sqlite")
    meter = Meter(Calendar(find_zone("UTC"), "UTC"), ChargePolicy(), Moment())
    began, counted = history.wall + 1.0, 0
    meter.take(look(history, ()))
    history.look(node(kernels=0))
    for busy, own in counters:
        history.go(2.0)
        history.look(status_of(busy, own, began))
        in_look = None if own is None else round(own * 1000)
        part = Part(
            PartKey("k1", "GPU-1"), ALICE, 25, Place.ON_GPU, round(began * 1000), None, in_look, round(busy * 1000), "1"
        )
        counted += sum(entry.amounts.used for entry in meter.take(look(history, (part,))))
    [kernel] = history.ask(each)["kernels"]
    assert gpu_seconds(kernel) == pytest.approx(counted / 100_000, abs=0.01)
    history.close()


def look(history: Life, parts: tuple[Part, ...]) -> Look:
    """Return the accounting's look at the same moment."""
    return Look(round(history.wall * 1000), round(history.monotonic * 1000), "boot", parts)
