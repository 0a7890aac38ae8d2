"""The processes whose contexts may leave, as a table of sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_aliquot.gpu_hook.agent.swap.checkpoint import Circumstances, why_not
from jupyter_aliquot.gpu_hook.agent.swap.facts import DeviceBytes, MoveRefusal, MoveResult, ResidencyFacts
from jupyter_aliquot.gpu_hook.agent.swap.table import KernelState
from jupyter_aliquot.gpu_hook.protocol.codec import Enforcer, PinReason, ResidencyMode

PLAIN = ResidencyFacts(
    kernel_id="k",
    state=KernelState.SWAPPED,
    mode=ResidencyMode.VMM,
    mode_reason="",
    since=0.0,
    devices=(DeviceBytes("GPU-1", 10, 10, 10, 0, 0),),
    pin_reasons=PinReason.SMALL | PinReason.POOL | PinReason.ARRAY | PinReason.GRAPH,
    refusal=None,
    waits_since=None,
    telemetry=(),
    silent_pids=(),
)
MIG = replace(PLAIN, devices=(DeviceBytes("MIG-1", 10, 10, 10, 0, 0),))
BUSY = replace(PLAIN, refusal=MoveRefusal(MoveResult.BUSY, "a persistent kernel", 0.0))
HOST_FULL = replace(PLAIN, refusal=MoveRefusal(MoveResult.HOST_FULL, "full", 0.0))
OFF = replace(PLAIN, mode=ResidencyMode.OFF, mode_reason="its hook is old")


def test_small_memory_pools_arrays_and_graphs_leave_with_the_context() -> None:
    assert why_not(PLAIN, Circumstances()) == ""
    assert why_not(HOST_FULL, Circumstances()) == ""


@pytest.mark.parametrize(
    ("facts", "here", "word"),
    [
        (replace(PLAIN, pin_reasons=PinReason.IPC), Circumstances(), "IPC"),
        (replace(PLAIN, pin_reasons=PinReason.EXPORTED), Circumstances(), "descriptor"),
        (replace(PLAIN, pin_reasons=PinReason.MULTICAST), Circumstances(), "multicast"),
        (replace(PLAIN, pin_reasons=PinReason.MANAGED), Circumstances(), "unified"),
        (replace(PLAIN, mode=ResidencyMode.MANAGED), Circumstances(), "managed"),
        (OFF, Circumstances(), "its hook is old"),
        (replace(PLAIN, silent_pids=(7,)), Circumstances(), "process 7"),
        (BUSY, Circumstances(), "persistent"),
        (MIG, Circumstances(), "MIG"),
        (PLAIN, Circumstances(enforcer=Enforcer.MPS), "MPS"),
        (PLAIN, Circumstances(machine="aarch64"), "aarch64"),
        (PLAIN, Circumstances(driver_version="610.57.04"), "610.57.04"),
    ],
)
def test_what_the_driver_refuses_or_harms_is_refused_before(
    facts: ResidencyFacts, here: Circumstances, word: str
) -> None:
    assert word in why_not(facts, here)
