"""Tables from a gateway's report: queued and ended kernels, and the node of another machine.

Pure.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_aliquot.gateway.status.compute import percent_text, slowdown_text
from jupyter_aliquot.gateway.status.devices import A_TEAM_THERE
from jupyter_aliquot.gateway.status.residency import state_text
from jupyter_aliquot.provisioner.resources import Bytes

from .node_table import cordon_lines
from .ranked_table import RankedTable
from .tables import (
    DRIVER_NAMES,
    age_text,
    clock_text,
    ended_table,
    moment_of,
    plain_table,
    printable,
    queue_table,
    seconds_text,
    size_text,
    software_note,
)

LAST_ENDED = 10
_SHORT_ID = 8


def gateway_view(report: Mapping[str, Any], url: str) -> RenderableType:
    """Draw the status of a node whose agent runs on another machine, from its gateway's report."""
    node, kernels = report["node"], report["kernels"]
    driver = DRIVER_NAMES.get(node["driver"], node["driver"] or "no driver")
    parts: list[RenderableType] = [Text(printable(f"node {node['name'] or '?'} · {driver} · from the gateway {url}"))]
    parts += message_lines(node["message"])
    parts += [Text(line, style="red") for line in cordon_lines(node["name"], node.get("cordon"))]
    parts.append(_devices_table(report["devices"]))
    parts += [Text(line) for line in (*overcommit_lines(report["devices"]), *speed_lines(report["devices"]))]
    parts += nodes_lines(report.get("nodes", ()))
    holders = [kernel for kernel in kernels if kernel["devices"] and kernel["state"] != "ended"]
    parts.append(_holders_table(holders) if holders else Text("No kernel holds a GPU."))
    waiting, ended = queue_rows(waiting_kernels(kernels)), ended_rows(ended_kernels(kernels))
    parts.append(queue_table(waiting) if waiting else Text("No kernel is queued."))
    parts += [ended_table(ended)] if ended else []
    return Group(*parts, *software_note(node["driver"]))


def message_lines(message: str | None) -> list[Text]:
    """Return the lines of a gateway's message."""
    return [Text(printable(line), style="red") for line in (message or "").splitlines()]


def nodes_lines(nodes: Iterable[Mapping[str, Any]]) -> list[RenderableType]:
    """Draw the nodes on other machines: one row a device, or one for a node without any; none without nodes."""
    table = plain_table(
        *("node", "state", "device", "name", "reserved", "memory used", "memory", "busy"),
        drop_first=("name", "reserved"),
    )
    messages: list[RenderableType] = []
    is_empty = True
    for node in nodes:
        is_empty = False
        style = None if node["state"] == "connected" else "red"
        for row in [_device_cells(device) for device in node["devices"]] or [("–",) * 6]:
            table.add_row(printable(str(node["name"])), printable(str(node["state"])), *row, style=style)
        if node["message"]:
            messages.append(
                Text(f"node {printable(str(node['name']))}: {printable(str(node['message']))}", style="red")
            )
        messages += [Text(line, style="red") for line in cordon_lines(str(node["name"]), node.get("cordon"))]
    return [] if is_empty else [table, *messages]


def overcommit_lines(devices: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return how far each device is overcommitted that something limits, and what that is."""
    return [
        printable(f"gpu{one['index']}: overcommit: {one['overcommit']:g} times its memory; {one['overcommit_reason']}")
        for one in devices
        if one.get("overcommit_reason")
    ]


def speed_lines(devices: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return, for each device that measured kernels share, how fast the slowest runs while all work."""
    return [
        f"gpu{one['index']}: while all its kernels work, the slowest probably has {speed['mean']:.2f} of its speed "
        f"alone ({speed['low']:.2f} to {speed['high']:.2f})"
        for one in devices
        if (speed := one.get("predicted_speed"))
    ]


def lowered_by_teams(devices: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the devices whose overcommit a team lowers: their agent cannot tell it."""
    return [one for one in devices if str(one.get("overcommit_reason") or "").startswith(A_TEAM_THERE)]


def _devices_table(devices: Iterable[Mapping[str, Any]]) -> RankedTable:
    table = plain_table("device", "name", "reserved", "memory used", "memory", "busy", drop_first=("name", "reserved"))
    for device in devices:
        table.add_row(*_device_cells(device), style="red" if device["lost"] else None)
    return table


def _device_cells(device: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"gpu{device['index']}",
        printable(device["name"]) + (" (lost)" if device["lost"] else ""),
        f"{device['reserved_gpus']:g} GPU",
        str(Bytes(device["used_bytes"])),
        str(Bytes(device["memory_bytes"])),
        f"{device['utilization_percent']} %",
    )


def _holders_table(kernels: Iterable[Mapping[str, Any]]) -> RankedTable:
    """Make one row a kernel; the shares on several devices stand one after the other."""
    table = plain_table(
        *("kernel", "id", "owner", "size", "limit", "used", "GPU time", "share", "slowdown", "state"),
        drop_first=("slowdown", "GPU time", "share", "owner", "id", "limit"),
    )
    for kernel in kernels:
        compute = [part["compute"] for part in kernel["devices"] if part["compute"] is not None]
        table.add_row(
            _name(kernel),
            printable(str(kernel["id"])[:_SHORT_ID]),
            printable(str(kernel["owner"])),
            size_text(round(kernel["gpus"] * 100), kernel["priority"]),
            str(Bytes(kernel["memory_limit_bytes"])),
            str(Bytes(kernel["used_bytes"])),
            seconds_text(sum(map(_gpu_seconds, kernel["devices"]))),
            " / ".join(f"{percent_text(one['share_used'])} of {percent_text(one['fair_share'])}" for one in compute)
            or "–",
            " / ".join(slowdown_text(one["slowdown"]) for one in compute) or "–",
            printable(state_text(str(kernel["state"]))),
        )
    return table


def _gpu_seconds(part: Mapping[str, Any]) -> float:
    """Return a kernel's own GPU time on a device, as `tables.kernels_table` shows it."""
    return float(part["busy_seconds"] if part["compute"] is None else part["compute"]["own_seconds"])


def waiting_kernels(kernels: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the kernels that are queued to start or to grow, in the order of the queue."""
    waiting = [dict(kernel) for kernel in kernels if kernel["state"] == "queued" or kernel.get("resize")]
    return sorted(waiting, key=lambda kernel: _position(kernel) or 0)


def doubtful_kernels(kernels: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the running kernels that the node agent does not know.

    Their GPU is unconfirmed.
    """
    return [dict(one) for one in kernels if one["state"] == "on_gpu" and one["reason"] and one["residency"] is None]


def doubt_lines(kernels: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return one sentence for each of these kernels."""
    return [f"kernel {_name(kernel)}: {printable(str(kernel['reason']))}" for kernel in kernels]


def ended_kernels(kernels: Iterable[Mapping[str, Any]], most: int = LAST_ENDED) -> list[dict[str, Any]]:
    """The last that ended, the latest first."""
    return [dict(kernel) for kernel in kernels if kernel["state"] == "ended"][:most]


def queue_rows(kernels: Iterable[Mapping[str, Any]], now: float | None = None) -> list[tuple[str, ...]]:
    """Return the rows of tables.queue_table."""
    moment = time.time() if now is None else now
    rows: list[tuple[str, ...]] = []
    for kernel in kernels:
        asked = kernel.get("resize") or kernel
        since = asked.get("since") or kernel["created"]
        size = size_text(round(asked["gpus"] * 100), asked["priority"])
        reason = printable(str(asked["reason"] or "–")) + _expected(asked.get("expected_start"), moment)
        short_id, owner = printable(str(kernel["id"])[:_SHORT_ID]), printable(str(kernel["owner"]))
        rows.append((_name(kernel), short_id, owner, size, _place(kernel), _since(since, moment), reason))
    return rows


def ended_rows(kernels: Iterable[Mapping[str, Any]], now: float | None = None) -> list[tuple[str, ...]]:
    """Return the rows of tables.ended_table."""
    moment = time.time() if now is None else now
    rows: list[tuple[str, ...]] = []
    for kernel in kernels:
        ending = kernel["termination"] or {}
        size = size_text(round(kernel["gpus"] * 100), kernel["priority"]) if kernel["gpus"] else "no GPU"
        why = printable(str(ending.get("message") or kernel["reason"] or "–"))
        code = str(ending.get("code") or "–")
        rows.append((_name(kernel), printable(str(kernel["owner"])), size, _since(ending.get("at"), moment), code, why))
    return rows


def _position(kernel: Mapping[str, Any]) -> int | None:
    resize = kernel.get("resize")
    position: int | None = resize["position"] if resize else kernel["queue_position"]
    return position


def _place(kernel: Mapping[str, Any]) -> str:
    """Return ``2 of 5``; a dash for a kernel that waits, but not in the gateway's queue."""
    position, length = _position(kernel), (kernel.get("resize") or kernel)["queue_length"]
    return "–" if position is None else f"{position} of {length}"


def _name(kernel: Mapping[str, Any]) -> str:
    return printable(str(kernel["label"] or kernel["id"][:_SHORT_ID]))


def _expected(moment: str | None, now: float) -> str:
    if moment is None:
        return ""
    return f". Expected to start at {clock_text(moment, datetime.fromtimestamp(now, timezone.utc))}"


def _since(moment: str | None, now: float) -> str:
    if moment is None:
        return "–"
    return age_text(now - moment_of(moment).timestamp())
