"""Translate the place of a kernel's memory from the agent's words to those of the REST API. Pure.

Knows no user and no server; report.py decides which users see the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from jupyter_aliquot.gateway.base.clock import iso
from jupyter_aliquot.gateway.reports.kernel import Residency
from jupyter_aliquot.gateway.reports.status import HostCopies
from jupyter_aliquot.gpu_hook.client.reports import KernelStatus
from jupyter_aliquot.gpu_hook.client.residency_reports import HostCopies as HostCopiesStatus, ResidencyStatus
from jupyter_aliquot.provisioner.resources import Bytes

# The agent's state → the kernel's state in REST, and the state of its memory there. Memory on its
# way out is still on the GPU, and so is that of a trimmed kernel.
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
# A program that has not used its GPU has no memory to move, but holds the GPU as one that has.
_UNUSED = "starting"
_TO_BE_SWAPPED_OUT = "is to be swapped out: waits for "
# The agent's reason for a swap-out → the reason in REST.
EVICT_REASONS: Mapping[str, str] = {
    "asked": "requested",
    "idle": "idle",
    "turn": "turn",
    "production": "normal_priority",
    "compute": "compute",
    "evicted": "evicted",
}


def shown_state(state: str, known: KernelStatus | None) -> str:
    """Return a kernel's state as users see it.

    ``state``: what the server or its processes report; the agent knows more.
    """
    residency = None if known is None else known.residency
    if residency is None or state != "on_gpu":
        return state
    if residency.waits is not None and residency.state in ("swapped", "checkpointed"):
        return "restoring"
    return _STATES.get(residency.state, ("on_gpu", ""))[0]


def state_text(state: str) -> str:
    """Return a kernel's state as people read it: ``on GPU``, ``swapped out``."""
    return "on GPU" if state == "on_gpu" else state.replace("_", " ")


def _place(residency: ResidencyStatus, runs: bool) -> str:
    """Return the agent's state of a kernel's memory: ``resident``, too, for a program that has used no GPU yet."""
    return "resident" if residency.state == _UNUSED and runs else residency.state


def residency_report(residency: ResidencyStatus | None, *, runs: bool = True) -> Residency | None:
    """Return a kernel's ``residency``; None if the agent does not report it. ``runs``: its program has started."""
    if residency is None:
        return None
    state = _place(residency, runs)
    waits, moving = residency.waits, residency.moving
    return {
        "mode": residency.mode,
        "state": _STATES.get(state, ("", state))[1],
        "since": iso(residency.since),
        "swapped_bytes": residency.swapped_bytes,
        "swappable_bytes": residency.swappable_bytes,
        "unswappable": [{"reason": one.reason, "bytes": one.bytes} for one in residency.unswappable],
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
        "restore_seconds": residency.restore_seconds,
        "evict_reason": EVICT_REASONS.get(residency.left_for or ""),
        "swaps_out": residency.swaps_out,
        "swaps_in": residency.swaps_in,
        "waited_seconds": residency.waited_seconds,
    }


def host_copies_report(copies: HostCopiesStatus | None) -> HostCopies | None:
    """Return the node's ``host_copies``; None if the agent does not report them."""
    if copies is None:
        return None
    return {
        "used_bytes": copies.used_bytes,
        "budget_bytes": copies.budget_bytes,
        "spilled_bytes": copies.spilled_bytes,
    }


def waiting_text(residency: ResidencyStatus | None) -> str | None:
    """Return a sentence for users that wait for the kernel's memory, or for its swap-out; None if none does."""
    if residency is not None and residency.is_lost:
        return residency.refusal
    waits = None if residency is None else residency.waits
    if waits is None:
        pending = None if residency is None else residency.swap_out_waits_for
        return None if pending is None else f"{_TO_BE_SWAPPED_OUT}{pending}"
    told = f"waiting {waits.seconds:.0f} s for GPU memory: {waits.reason or 'no room yet'}"
    if waits.before:
        told += f"; {waits.before} ahead"
    if waits.expected_seconds is not None:
        told += f"; about {waits.expected_seconds:.0f} s left"
    return told


def is_swap_out_text(reason: str | None) -> bool:
    """Return whether a kernel's reason is `waiting_text` of a swap-out that a user requested."""
    return reason is not None and reason.startswith(_TO_BE_SWAPPED_OUT)


def residency_text(known: KernelStatus) -> str:
    """Return a table cell for the command line: ``on GPU``, ``swapped out 3.0 GiB (about 2 s to restore)``.

    A wait reads ``restoring (2 ahead)``. A kernel that cannot be swapped has the reason in its
    cell: ``on GPU, not swappable: unknown driver function cuFoo``.
    """
    residency = known.residency
    if residency is None:
        return "–"
    if residency.is_lost:
        return "lost: restart the kernel"
    if residency.waits is not None:
        return "restoring" + (f" ({residency.waits.before} ahead)" if residency.waits.before else "")
    place = _place(residency, bool(known.pids))
    state = state_text(_STATES.get(place, (place, ""))[0])
    if state in ("swapped out", "checkpointed"):
        seconds = residency.restore_seconds
        told = "" if seconds is None else f" (about {max(1, math.ceil(seconds))} s to restore)"
        return f"{state} {Bytes(residency.swapped_bytes)}{told}"
    if residency.swap_out_waits_for is not None:
        return f"{state}, to be swapped out: waits for {residency.swap_out_waits_for}"
    if residency.obstacle:
        return f"{state}, not swappable: {residency.obstacle}"
    return f"{state}, never swapped" if residency.mode == "off" or residency.mode_reason else state
