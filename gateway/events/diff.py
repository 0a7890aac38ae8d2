"""What became different between two looks at the kernels: pure, from their reports to the data of events.

kernel_event.yaml is the form of an event; who hears of it, stream.py decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from jupyter_aliquot.gateway.status.compute import held_back_text, is_held_out

from .evictions import reclaim

Report = Mapping[str, Any]
News = dict[str, Any]
# Of a kernel of another program; of this server's own, the endings say why.
# Of a change of size that waits, what is news. The numbers behind its reason are for those who ask.
_WISH = ("state", "gpus", "requested_memory_bytes", "priority", "reason", "position")
_GONE: News = {"state": "ended", "reason": None, "queued": None}
_NOBODY: Mapping[str, str] = MappingProxyType({})


def kernel_news(
    before: Mapping[str, Report], after: Mapping[str, Report], askers: Mapping[str, str] = _NOBODY
) -> list[News]:
    """Events of all kernels, in their order: one for each thing that changed, one for each that waits.

    ``askers``: who last asked a change of a kernel, by the REST API.
    """
    news: list[News] = []
    for kernel_id, report in after.items():
        was = before.get(kernel_id)
        if was is report:
            continue  # the very same: nothing of it changed
        news += _of_one(was, report)
        if was is not None and (taken := reclaim(was, report, askers.get(kernel_id))) is not None:
            what, told = taken
            news.append({**_data(report, "evicted", str(was["state"])), "reason": told, "evicted": what})
    gone = [report for kernel_id, report in before.items() if kernel_id not in after and report["state"] != "ended"]
    return news + [{**_data(report, "state", str(report["state"])), **_GONE} for report in gone]


def by_id(reports: Iterable[Report]) -> dict[str, Report]:
    """Reports, as kernel_news takes them."""
    return {str(report["id"]): report for report in reports}


def _of_one(was: Report | None, now: Report) -> list[News]:
    if was is None:
        return [] if now["state"] == "ended" else [_data(now, "state", None)]
    state = str(was["state"])
    news = []
    if now["state"] != state or _is_doubted_anew(was, now):
        news.append(_data(now, "state", state))
    elif _waits_on(_waits(was), _waits(now)):
        news.append(_data(now, "queued", state))
    if bool(now["over_limit_bytes"]) != bool(was["over_limit_bytes"]) or _lacks_more(was, now):
        news.append(_data(now, "memory_limit", state))
    if is_held_out(now["devices"]) != is_held_out(was["devices"]):
        why = held_back_text(now["devices"])
        news.append({**_data(now, "paused", state), "reason": why or now["reason"]})
    if now["shares"] != was["shares"]:
        news.append(_data(now, "shared", state))
    resize = _resized(was, now)
    if resize is not None:
        news.append({**_data(now, "resize", state), "resize": resize})
    return news


def _is_doubted_anew(was: Report, now: Report) -> bool:
    """Tell a doubt about a kernel that runs and waits for nothing: the agent does not confirm what the kernel has."""
    told = [report["reason"] for report in (was, now) if _waits(report) is None and report["state"] == "on_gpu"]
    return len(set(told)) > 1


def _resized(was: Report, now: Report) -> dict[str, Any] | None:
    """A wish that is new or stands at another place; a size that is another; a wish that is no more."""
    wish, before = _wish(now), _wish(was)
    if wish is not None:
        return None if wish == before else wish
    if _size(now) != _size(was):
        return {"state": "granted", "reason": None, "position": None, **_size(now)}
    if before is not None:
        return {**before, "state": "withdrawn", "reason": None, "position": None}
    return None


def _wish(report: Report) -> dict[str, Any] | None:
    resize = report["resize"]
    return None if resize is None else {name: resize[name] for name in _WISH}


def _size(report: Report) -> dict[str, Any]:
    return {name: report[name] for name in ("gpus", "requested_memory_bytes", "priority")}


def _lacks_more(was: Report, now: Report) -> bool:
    """Tell refusals of memory for want of quota, more than before or again."""
    needed = now["required_bytes"] or 0
    is_again = now["last_failed_allocation_at"] != was["last_failed_allocation_at"] or needed > (
        was["required_bytes"] or 0
    )
    return needed > now["memory_limit_bytes"] and is_again


def _waits_on(before: Any, now: Any) -> bool:
    """Tell a wait that is worth a word: new, another, over, or a second longer. Looks may come faster."""
    if before is None or now is None:
        return before is not now
    return _wait_key(before) != _wait_key(now)


def _wait_key(waits: Mapping[str, Any]) -> tuple[Any, ...]:
    return waits["reason"], waits["ahead"], int(waits["seconds"])


def _waits(report: Report) -> Any:
    return None if report["residency"] is None else report["residency"]["queued"]


def _data(report: Report, kind: str, was: str | None) -> News:
    residency = report["residency"] or {}
    same = ("owner", "label", "state", "reason", "gpus", "memory_limit_bytes", "used_bytes", "over_limit_bytes")
    return {
        "kernel_id": report["id"],
        "kind": kind,
        "was": was,
        **{name: report[name] for name in same},
        "swapped_bytes": residency.get("swapped_bytes", 0),
        "paused": is_held_out(report["devices"]),
        "queued": residency.get("queued"),
        "resize": _wish(report),
        "evicted": None,
    }
