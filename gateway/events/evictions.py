"""Decide which evictions a kernel's owner is notified of: pure, from two looks at the kernel.

The eviction of an idle kernel and the end of a turn are normal: their events are marked as quiet. A
change by another user, and normal-priority work that evicts a working kernel, are not. Events never
name other users' kernels.
"""

from __future__ import annotations

from jupyter_aliquot.gateway.reports.event import Eviction
from jupyter_aliquot.gateway.reports.kernel import Kernel
from jupyter_aliquot.provisioner.resources import Bytes

_QUIET = ("idle", "turn")
_SWAPPED = {
    "idle": "Its memory made room for another kernel while it was idle; it comes back with the next cell.",
    "turn": "Its turn was over, and another kernel has its own; its memory comes back by itself.",
    "normal_priority": "A normal-priority kernel needed the room; its memory comes back when there is room again.",
    "evicted": "Its GPU was taken back; its memory comes back when it has a GPU again.",
}


def find_eviction(was: Kernel, now: Kernel, requester: str | None) -> tuple[Eviction, str] | None:
    """Return the eviction and a sentence that describes it; None if there was none.

    ``requester``: the user who last requested a change of the kernel by the REST API.
    """
    other = requester if requester and requester != now["owner"] else ""
    changed = _changed(was, now)
    if other and changed:
        return {"code": "resized", "by": other, "is_quiet": False}, f"{other} changed {changed}."
    residency = now["residency"]
    if was["residency"] is None or residency is None or residency["swaps_out"] <= was["residency"]["swaps_out"]:
        return None
    why = residency["evict_reason"]
    if why == "requested" and other:
        return {"code": "requested", "by": other, "is_quiet": False}, f"{other} had its memory swapped out."
    if why is None or why not in _SWAPPED:
        return None  # its owner's request; or compute, which the event paused reports
    return {"code": why, "by": "", "is_quiet": why in _QUIET}, _SWAPPED[why]


def _changed(was: Kernel, now: Kernel) -> str:
    """Return in words how the kernel's size changed; empty if it did not."""
    if was["gpus"] != now["gpus"]:
        return f"its size from {was['gpus']:g} to {now['gpus']:g} GPU"
    if was["requested_memory_bytes"] != now["requested_memory_bytes"]:
        limit = now["requested_memory_bytes"]
        return "its memory limit to " + ("its share's part" if limit is None else str(Bytes(limit)))
    return f"its priority to {now['priority']}" if was["priority"] != now["priority"] else ""
