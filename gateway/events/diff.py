"""What became different between two looks at the kernels: pure, from their reports to the data of events.

kernel_event.yaml is the form of an event; who hears of it, stream.py decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from jupyter_aliquot.gateway.reports.event import EventResize, KernelEvent
from jupyter_aliquot.gateway.reports.kernel import Kernel, MemoryQueue
from jupyter_aliquot.gateway.status.compute import is_paused, throttle_text

from .evictions import find_eviction

_NOBODY: Mapping[str, str] = MappingProxyType({})


def kernel_news(
    before: Mapping[str, Kernel], after: Mapping[str, Kernel], askers: Mapping[str, str] = _NOBODY
) -> list[KernelEvent]:
    """Events of all kernels, in their order: one for each thing that changed, one for each that waits.

    ``askers``: who last asked a change of a kernel, by the REST API.
    """
    news: list[KernelEvent] = []
    for kernel_id, report in after.items():
        was = before.get(kernel_id)
        if was is report:
            continue  # the very same: nothing of it changed
        news += _of_one(was, report)
        if was is not None and (eviction := find_eviction(was, report, askers.get(kernel_id))) is not None:
            event = _event(report, "evicted", was["state"])
            event["evicted"], event["reason"] = eviction
            news.append(event)
    gone = (report for kernel_id, report in before.items() if kernel_id not in after and report["state"] != "ended")
    return news + [_ended(report) for report in gone]


def by_id(reports: Iterable[Kernel]) -> dict[str, Kernel]:
    """Reports, as kernel_news takes them."""
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
    resize = _resized(was, now)
    if resize is not None:
        event = _event(now, "resize", state)
        event["resize"] = resize
        news.append(event)
    return news


def _is_doubted_anew(was: Kernel, now: Kernel) -> bool:
    """Tell a doubt about a kernel that runs and waits for nothing: the agent does not confirm what the kernel has."""
    told = [report["reason"] for report in (was, now) if _memory_queue(report) is None and report["state"] == "on_gpu"]
    return len(set(told)) > 1


def _resized(was: Kernel, now: Kernel) -> EventResize | None:
    """A wish that is new or stands at another place; a size that is another; a wish that is no more."""
    wish, before = _wish(now), _wish(was)
    if wish is not None:
        return None if wish == before else wish
    if _size(now) != _size(was):
        gpus, memory, priority = _size(now)
        return _event_resize("granted", gpus, memory, priority)
    if before is not None:
        return _event_resize("withdrawn", before["gpus"], before["requested_memory_bytes"], before["priority"])
    return None


def _wish(report: Kernel) -> EventResize | None:
    """What is news of a queued resize. The numbers behind its reason are for those who ask."""
    wish = report["resize"]
    if wish is None:
        return None
    event = _event_resize("queued", wish["gpus"], wish["requested_memory_bytes"], wish["priority"])
    event["reason"], event["position"] = wish["reason"], wish["position"]
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
    """Tell allocations that failed at the memory limit, more than before or again."""
    required = now["required_bytes"] or 0
    is_again = now["last_failed_allocation_at"] != was["last_failed_allocation_at"]
    return required > now["memory_limit_bytes"] and (is_again or required > (was["required_bytes"] or 0))


def _waits_on(before: MemoryQueue | None, now: MemoryQueue | None) -> bool:
    """Tell a wait that is worth a word: new, another, over, or a second longer. Looks may come faster."""
    if before is None or now is None:
        return before is not now
    return _wait_key(before) != _wait_key(now)


def _wait_key(queued: MemoryQueue) -> tuple[str, int, int]:
    return queued["reason"], queued["ahead"], int(queued["seconds"])


def _memory_queue(report: Kernel) -> MemoryQueue | None:
    return None if report["residency"] is None else report["residency"]["queued"]


def _ended(report: Kernel) -> KernelEvent:
    """Of a kernel of another program: of this server's own the report says why they ended."""
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
        "resize": _wish(report),
        "evicted": None,
    }
