"""Kernels that only a gateway knows, as rows for the terminal: those that wait, and those that have ended. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from .tables import age_text, printable, size_text

LAST_ENDED = 10
_SHORT_ID = 8


def waiting_kernels(kernels: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Those that wait to start, or to grow, in the order of the queue."""
    waiting = [dict(kernel) for kernel in kernels if kernel["state"] == "pending" or kernel.get("resize")]
    return sorted(waiting, key=lambda kernel: _position(kernel) or 0)


def doubtful_kernels(kernels: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Those that run, and whose GPU the node agent does not confirm: it knows nothing of them."""
    return [dict(one) for one in kernels if one["state"] == "resident" and one["reason"] and one["residency"] is None]


def doubt_lines(kernels: Iterable[Mapping[str, Any]]) -> list[str]:
    """One sentence a kernel."""
    return [f"kernel {_name(kernel)}: {printable(str(kernel['reason']))}" for kernel in kernels]


def ended_kernels(kernels: Iterable[Mapping[str, Any]], most: int = LAST_ENDED) -> list[dict[str, Any]]:
    """The last that ended, the latest first."""
    return [dict(kernel) for kernel in kernels if kernel["state"] == "ended"][:most]


def queue_rows(kernels: Iterable[Mapping[str, Any]], now: float | None = None) -> list[tuple[str, ...]]:
    """The rows of tables.queue_table."""
    moment = time.time() if now is None else now
    rows: list[tuple[str, ...]] = []
    for kernel in kernels:
        asked = kernel.get("resize") or kernel
        since = asked.get("since") or kernel["created"]
        size = size_text(round(asked["gpus"] * 100), asked["workload_class"])
        reason = printable(str(asked["reason"] or "–")) + _expected(asked.get("expected_start"), moment)
        short_id, owner = printable(str(kernel["id"])[:_SHORT_ID]), printable(str(kernel["owner"]))
        rows.append((_name(kernel), short_id, owner, size, _place(kernel), _since(since, moment), reason))
    return rows


def ended_rows(kernels: Iterable[Mapping[str, Any]], now: float | None = None) -> list[tuple[str, ...]]:
    """The rows of tables.ended_table."""
    moment = time.time() if now is None else now
    rows: list[tuple[str, ...]] = []
    for kernel in kernels:
        ending = kernel["ending"] or {}
        size = size_text(round(kernel["gpus"] * 100), kernel["workload_class"]) if kernel["gpus"] else "no GPU"
        why = printable(str(ending.get("message") or kernel["reason"] or "–"))
        code = str(ending.get("code") or "–")
        rows.append((_name(kernel), printable(str(kernel["owner"])), size, _since(ending.get("at"), moment), code, why))
    return rows


def _position(kernel: Mapping[str, Any]) -> int | None:
    resize = kernel.get("resize")
    position: int | None = resize["position"] if resize else kernel["queue_position"]
    return position


def _place(kernel: Mapping[str, Any]) -> str:
    """``2 of 5``; a kernel that waits for something else than the gateway's queue has no place."""
    position, length = _position(kernel), (kernel.get("resize") or kernel)["queue_length"]
    return "–" if position is None else f"{position} of {length}"


def _name(kernel: Mapping[str, Any]) -> str:
    return printable(str(kernel["label"] or kernel["id"][:_SHORT_ID]))


def _expected(moment: str | None, now: float) -> str:
    """When it is expected to start, in the reader's time; with the date where that is another day."""
    if moment is None:
        return ""
    at, today = _time(moment).astimezone(), datetime.fromtimestamp(now).astimezone()
    return (
        f". Expected to start {at:at %H:%M}"
        if at.date() == today.date()
        else f". Expected to start {at:on %Y-%m-%d at %H:%M}"
    )


def _since(moment: str | None, now: float) -> str:
    if moment is None:
        return "–"
    return age_text(now - _time(moment).timestamp())


def _time(moment: str) -> datetime:
    return datetime.fromisoformat(moment.replace("Z", "+00:00"))
