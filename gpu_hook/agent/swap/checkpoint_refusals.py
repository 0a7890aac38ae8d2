"""Whose context may leave the devices, too: the driver's checkpoints refuse some processes, and harm others.

Pure. A failed restore ends a kernel, so in doubt the answer is no; the kernel stays swapped, which costs a context.
"""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.protocol.codec import Enforcer, ResidencyMode, Staying

from .facts import MoveResult, ResidencyFacts

# r610.57.04: a lock crashes some processes with many threads (NVIDIA/cuda-checkpoint#58).
DENIED_DRIVERS = frozenset({"610.57.04"})
_WHY_STAYING = {
    Staying.IPC: "it shares memory by legacy IPC",
    Staying.EXPORTED: "it gave memory to others by a descriptor",
    Staying.MULTICAST: "it has multicast memory",
    Staying.MANAGED: "it has unified memory",
}


@dataclass(frozen=True)
class Circumstances:
    """What of the node matters."""

    driver_version: str = ""
    machine: str = "x86_64"
    enforcer: Enforcer = Enforcer.HOOK


def why_not(facts: ResidencyFacts, here: Circumstances) -> str:
    """Why this kernel's processes are not to be checkpointed; empty: they may be."""
    if here.driver_version in DENIED_DRIVERS:
        return f"driver {here.driver_version} crashes processes that it locks"
    if here.machine != "x86_64":
        return f"drivers have no checkpoints on {here.machine}"
    if here.enforcer is Enforcer.MPS:
        return "it is a client of MPS"
    if any(device.uuid.startswith("MIG-") for device in facts.devices):
        return "it is on a MIG device"
    if facts.mode is not ResidencyMode.VMM:
        return facts.mode_reason or f"its residency mode is {facts.mode.name.lower()}"
    for flag, reason in _WHY_STAYING.items():
        if flag in facts.staying:
            return reason
    if facts.silent_pids:
        return f"process {facts.silent_pids[0]} does not answer"
    if facts.refusal is not None and facts.refusal.result in (MoveResult.BUSY, MoveResult.FAILED):
        return f"its last move came to nothing: {facts.refusal.text}"
    return ""
