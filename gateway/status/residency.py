"""Where a kernel's memory is, as people are told: pure functions from the agent's words to those of the REST API.

Knows no user and no server; report.py decides who may see what it makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jupyter_aliquot.gateway.base.clock import iso
from jupyter_aliquot.gateway.reports.kernel import KernelDevice, Residency
from jupyter_aliquot.gateway.reports.status import HostCopies
from jupyter_aliquot.gpu_hook.client.reports import KernelStatus
from jupyter_aliquot.gpu_hook.client.residency_reports import HostCopies as HostCopiesStatus, ResidencyStatus
from jupyter_aliquot.provisioner.resources import Bytes

# The agent's state: the kernel's state in REST, and the state of its memory there. Memory on its way out is still on
# the GPU, and so is that of a trimmed kernel.
_STATES: Mapping[str, tuple[str, str]] = {
    "resident": ("on_gpu", "on_gpu"),
    "trimmed": ("on_gpu", "trimmed"),
    "swapping_out": ("on_gpu", "swapping_out"),
    "swapped": ("swapped_out", "swapped_out"),
    "swapping_in": ("restoring", "swapping_in"),
    "checkpointing": ("swapped_out", "checkpointing"),
    "checkpointed": ("checkpointed", "checkpointed"),
    "restoring": ("restoring", "restoring"),
}
# The agent's reason to swap a kernel out: the reason in REST.
EVICT_REASONS: Mapping[str, str] = {
    "asked": "requested",
    "idle": "idle",
    "turn": "turn",
    "production": "normal_priority",
    "compute": "compute",
}


def shown_state(state: str, known: KernelStatus | None) -> str:
    """A kernel's state for people. ``state``: what the server or its processes tell; the agent says more."""
    residency = None if known is None else known.residency
    if residency is None or state != "on_gpu":
        return state
    if residency.waits is not None and residency.state in ("swapped", "checkpointed"):
        return "restoring"
    return _STATES.get(residency.state, ("on_gpu", ""))[0]


def state_text(state: str) -> str:
    """Return a kernel's state as people read it: ``on GPU``, ``swapped out``."""
    return "on GPU" if state == "on_gpu" else state.replace("_", " ")


def residency_report(residency: ResidencyStatus | None) -> Residency | None:
    """One kernel's ``residency``; None where the agent says nothing of it."""
    if residency is None:
        return None
    waits, moving = residency.waits, residency.moving
    return {
        "mode": residency.mode,
        "state": _STATES.get(residency.state, ("", residency.state))[1],
        "since": iso(residency.since),
        "swapped_bytes": residency.swapped_bytes,
        "swappable_bytes": residency.elastic_bytes,
        "unswappable": [{"reason": one.reason, "bytes": one.bytes} for one in residency.staying],
        "not_swappable": residency.obstacle or None,
        "refusal": residency.mode_reason or residency.refusal or None,
        "queued": None
        if waits is None
        else {
            "reason": waits.reason,
            "seconds": waits.seconds,
            "ahead": waits.before,
            "expected_seconds": waits.expected_seconds,
        },
        "moving": None if moving is None else {"done_bytes": moving.done_bytes, "total_bytes": moving.total_bytes},
        "evict_reason": EVICT_REASONS.get(residency.left_for or ""),
        "swaps_out": residency.swaps_out,
        "swaps_in": residency.swaps_in,
        "waited_seconds": residency.waited_seconds,
    }


def host_copies_report(copies: HostCopiesStatus | None) -> HostCopies | None:
    """The node's ``host_copies``; None where the agent says nothing of it."""
    if copies is None:
        return None
    return {
        "used_bytes": copies.used_bytes,
        "budget_bytes": copies.budget_bytes,
        "spilled_bytes": copies.spilled_bytes,
    }


def over_limit_bytes(devices: Iterable[KernelDevice]) -> int:
    """What a kernel uses beyond its memory limit after that was lowered, over its devices."""
    return sum(max(0, device["used_bytes"] - device["memory_limit_bytes"]) for device in devices)


def waiting_text(residency: ResidencyStatus | None) -> str | None:
    """One sentence for who waits for a kernel's memory; None when nobody does."""
    waits = None if residency is None else residency.waits
    if waits is None:
        return None
    told = f"waiting {waits.seconds:.0f} s for GPU memory: {waits.reason or 'no room yet'}"
    if waits.before:
        told += f"; {waits.before} ahead"
    if waits.expected_seconds is not None:
        told += f"; about {waits.expected_seconds:.0f} s left"
    return told


def residency_text(residency: ResidencyStatus | None) -> str:
    """A cell of the command line's table: ``on GPU``, ``swapped out 3.0 GiB``, ``restoring (2 ahead)``.

    A kernel that cannot be swapped says so, and why: ``on GPU, not swappable: unknown driver function cuFoo``.
    """
    if residency is None:
        return "–"
    if residency.waits is not None:
        return "restoring" + (f" ({residency.waits.before} ahead)" if residency.waits.before else "")
    state = state_text(_STATES.get(residency.state, (residency.state, ""))[0])
    if state in ("swapped out", "checkpointed"):
        return f"{state} {Bytes(residency.swapped_bytes)}"
    if residency.obstacle:
        return f"{state}, not swappable: {residency.obstacle}"
    return f"{state}, never swapped" if residency.mode == "off" or residency.mode_reason else state
