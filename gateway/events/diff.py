"""Compute the events between two looks at the kernels: pure, from their reports to event data.

kernel_event.yaml defines an event's form; stream.py decides which users receive it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from jupyter_aliquot.gateway.reports.event import EventResize, KernelEvent
from jupyter_aliquot.gateway.reports.kernel import Kernel, MemoryQueue
from jupyter_aliquot.gateway.status.compute import is_paused, throttle_text
from jupyter_aliquot.gateway.status.residency import is_swap_out_text

from .evictions import find_eviction

_NO_REQUESTERS: Mapping[str, str] = MappingProxyType({})


def kernel_news(
    before: Mapping[str, Kernel], after: Mapping[str, Kernel], requesters: Mapping[str, str] = _NO_REQUESTERS
) -> list[KernelEvent]:
    """Return the events of all kernels in order: one for each change and one for each new wait.

    ``requesters``: the user who last requested a change of a kernel by the REST API, by kernel id.
    """
    news: list[KernelEvent] = []
    for kernel_id, report in after.items():
        was = before.get(kernel_id)
        if was is report:
            continue  # the very same report: nothing changed
        news += _of_one(was, report)
        if was is not None and (eviction := find_eviction(was, report, requesters.get(kernel_id))) is not None:
            event = _event(report, "evicted", was["state"])
            event["evicted"], event["reason"] = eviction
            news.append(event)
    gone = (report for kernel_id, report in before.items() if kernel_id not in after and report["state"] != "ended")
    return news + [_ended(report) for report in gone]


def by_id(reports: Iterable[Kernel]) -> dict[str, Kernel]:
    """Return the reports by kernel id, as `kernel_news` takes them."""
    return {report["id"]: report for report in reports}


def _of_one(was: Kernel | None, now: Kernel) -> list[KernelEvent]:
    if was is None:
        return [] if now["state"] == "ended" else [_event(now, "state", None)]
    state, news = was["state"], []
    if now["state"] != state or _is_doubted_anew(was, now):
        news.append(_event(now, "state", state))
    elif _waits_on(_memory_queue(was), _memory_queue(now)):
        news.append(_event(now, "queued", state))
    if bool(now["over_limit_bytes"]) != bool(was["over_limit_bytes"]) or _lacks_more(was, now):
        news.append(_event(now, "memory_limit", state))
    if is_paused(now["devices"]) != is_paused(was["devices"]):
        event = _event(now, "paused", state)
        event["reason"] = throttle_text(now["devices"]) or now["reason"]
        news.append(event)
    if now["shares"] != was["shares"]:
        news.append(_event(now, "shared", state))
    if now["owner_message"] is not None and now["owner_message"] != was["owner_message"]:
        news.append(_event(now, "message", state))
    resize = _resized(was, now)
    if resize is not None:
        event = _event(now, "resize", state)
        event["resize"] = resize
        news.append(event)
    return news


def _is_doubted_anew(was: Kernel, now: Kernel) -> bool:
    """Return whether the agent's doubt about a kernel on the GPU changed.

    The agent doubts a kernel if it does not confirm what the kernel has. Kernels that wait, and what a
    requested swap-out waits for, are left out.
    """
    told = [_doubt(report) for report in (was, now) if _memory_queue(report) is None and report["state"] == "on_gpu"]
    return len(set(told)) > 1


def _doubt(report: Kernel) -> str | None:
    return None if is_swap_out_text(report["reason"]) else report["reason"]


def _resized(was: Kernel, now: Kernel) -> EventResize | None:
    """Return the resize that was queued, moved in the queue, was granted or was withdrawn.

    None if none of these happened.
    """
    resize, before = _queued_resize(now), _queued_resize(was)
    if resize is not None:
        return None if resize == before else resize
    if _size(now) != _size(was):
        gpus, memory, priority = _size(now)
        return _event_resize("granted", gpus, memory, priority)
    if before is not None:
        return _event_resize("withdrawn", before["gpus"], before["requested_memory_bytes"], before["priority"])
    return None


def _queued_resize(report: Kernel) -> EventResize | None:
    """Return the event of a queued resize. The numbers behind its reason are in the report alone."""
    resize = report["resize"]
    if resize is None:
        return None
    event = _event_resize("queued", resize["gpus"], resize["requested_memory_bytes"], resize["priority"])
    event["reason"], event["position"] = resize["reason"], resize["position"]
    return event


def _event_resize(state: str, gpus: float, memory: int | None, priority: str) -> EventResize:
    return {
        "state": state,
        "gpus": gpus,
        "requested_memory_bytes": memory,
        "priority": priority,
        "reason": None,
        "position": None,
    }


def _size(report: Kernel) -> tuple[float, int | None, str]:
    return report["gpus"], report["requested_memory_bytes"], report["priority"]


def _lacks_more(was: Kernel, now: Kernel) -> bool:
    """Return whether allocations failed at the memory limit, again or for more than before."""
    required = now["required_bytes"] or 0
    is_again = now["last_failed_allocation_at"] != was["last_failed_allocation_at"]
    return required > now["memory_limit_bytes"] and (is_again or required > (was["required_bytes"] or 0))


def _waits_on(before: MemoryQueue | None, now: MemoryQueue | None) -> bool:
    """Return whether a wait began, changed, ended or grew by a second. Looks may come faster."""
    if before is None or now is None:
        return before is not now
    return _wait_key(before) != _wait_key(now)


def _wait_key(queued: MemoryQueue) -> tuple[str, int, int]:
    return queued["reason"], queued["ahead"], int(queued["seconds"])


def _memory_queue(report: Kernel) -> MemoryQueue | None:
    return None if report["residency"] is None else report["residency"]["queued"]


def _ended(report: Kernel) -> KernelEvent:
    """Return the event of an ended kernel of another program.

    For this server's own kernels the report says why they ended.
    """
    event = _event(report, "state", report["state"])
    event["state"], event["reason"], event["queued"] = "ended", None, None
    return event


def _event(report: Kernel, kind: str, was: str | None) -> KernelEvent:
    residency = report["residency"]
    return {
        "kernel_id": report["id"],
        "owner": report["owner"],
        "label": report["label"],
        "kind": kind,
        "state": report["state"],
        "was": was,
        "reason": report["reason"],
        "gpus": report["gpus"],
        "memory_limit_bytes": report["memory_limit_bytes"],
        "used_bytes": report["used_bytes"],
        "over_limit_bytes": report["over_limit_bytes"],
        "swapped_bytes": 0 if residency is None else residency["swapped_bytes"],
        "paused": is_paused(report["devices"]),
        "queued": _memory_queue(report),
        "resize": _queued_resize(report),
        "evicted": None,
    }
