"""What `aliquot top` shows: pure, from two looks and the terminal's size to what rich draws. Asks nobody."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_aliquot.gateway.status.compute import percent_text, stretch_text
from jupyter_aliquot.provisioner.resources import Bytes

from .ranked_table import RankedTable
from .tables import DRIVER_NAMES, SOFTWARE_GPU_NOTE, plain_table, printable, size_text
from .top_source import Look

_BAR_CELLS = 12
_CLASSES = ("production", "opportunistic")
# What a narrow terminal does without, the first first.
_KERNELS_DROP = ("owner", "state", "throttled", "share", "memory", "stretch", "on", "entitled")


@dataclass(frozen=True)
class Screen:
    """The room that there is. ``height`` None: as many lines as it takes."""

    width: int
    height: int | None = None
    is_ascii: bool = False


@dataclass(frozen=True)
class Row:
    """One kernel on one device."""

    kernel: str
    owner: str
    size: str
    state: str
    device: str
    entitled: float | None
    used: float | None
    stretch: float | None
    throttled: str
    memory: str
    is_held_back: bool
    is_capped: bool


def top_view(look: Look, before: Look | None, screen: Screen, footer: str = "") -> RenderableType:
    """``look``: the last one with a report, whose ``problem`` is that of now; ``before``: the one that preceded it."""
    report = look.report
    if report is None:
        return Text(printable(look.problem), style="red")
    parts: list[RenderableType] = [_line(_title(report, look.origin))]
    problems = [printable(text) for text in (look.problem, report["node"]["message"]) if text]
    parts += [Text(text, style="red") for text in problems]
    parts.append(_devices_table(report["devices"]))
    rows = rows_of(report, None if before is None else before.report, look.at - before.at if before else 0.0)
    ends = [text for text in (_waiting(report), _note(report), footer) if text]
    room = None if screen.height is None else screen.height - _lines(problems, screen) - len(report["devices"])
    shown, hidden = _cut(rows, None if room is None else room - len(ends) - 3)
    parts.append(_kernels_table(shown, screen) if rows else Text("no kernel holds a GPU"))
    if hidden:
        parts.append(_line(f"and {hidden} more; a taller terminal, or aliquot top --once, shows them"))
    parts += [_line(text, "dim") for text in ends]
    return Group(*parts)


def rows_of(report: Mapping[str, Any], before: Mapping[str, Any] | None, seconds: float) -> list[Row]:
    """One a kernel and device: device by device, production first, then who uses most. Those that wait come last."""
    past = _throttled_by_part(before) if before is not None and seconds > 0 else {}
    found = []
    for kernel in report["kernels"]:
        if kernel["state"] == "ended" or not kernel["gpus"]:
            continue
        rank = _CLASSES.index(kernel["workload_class"]) if kernel["workload_class"] in _CLASSES else len(_CLASSES)
        for part in kernel["devices"] or [None]:
            row = _row(kernel, part, past.get((kernel["id"], part and part["uuid"])), seconds)
            index = part["index"] if part else float("inf")
            found.append(((index, rank, -(row.used or 0.0), row.kernel), row))
    return [row for _, row in sorted(found, key=lambda one: one[0])]


def share_bar(used: float | None, entitled: float | None, is_ascii: bool = False) -> str:
    """``████│·······``: what was used, with a mark at what it is entitled to."""
    full, mark, empty = ("#", "|", ".") if is_ascii else ("█", "│", "·")
    filled = 0 if used is None else round(min(max(used, 0.0), 1.0) * _BAR_CELLS)
    cells = [full] * filled + [empty] * (_BAR_CELLS - filled)
    if entitled is not None:
        cells[min(_BAR_CELLS - 1, round(min(max(entitled, 0.0), 1.0) * _BAR_CELLS))] = mark
    return "".join(cells)


def _row(kernel: Mapping[str, Any], part: Mapping[str, Any] | None, past: float | None, seconds: float) -> Row:
    compute = (part or {}).get("compute") or {}
    throttled = compute.get("throttled_seconds")
    return Row(
        kernel=printable(str(kernel["label"]).rpartition("/")[2] or str(kernel["id"])[:8]),
        owner=printable(str(kernel["owner"])),
        size=size_text(round(kernel["gpus"] * 100), kernel["workload_class"]),
        state=_state(kernel, compute),
        device="–" if part is None else f"gpu{part['index']}",
        entitled=compute.get("share_entitled"),
        used=compute.get("share_used"),
        stretch=compute.get("stretch"),
        throttled=_throttled_text(throttled, past, seconds),
        memory="–" if part is None else f"{Bytes(part['used_bytes'])} of {Bytes(part['quota_bytes'])}",
        is_held_back=bool(compute.get("held_back")),
        is_capped=bool(compute.get("is_capped")),
    )


def _state(kernel: Mapping[str, Any], compute: Mapping[str, Any]) -> str:
    if compute.get("unholdable"):
        return "held out"
    pace = compute.get("pace")
    is_paced = kernel["state"] == "resident" and pace in ("paced", "closed")
    return str(pace if is_paced else kernel["state"])


def _throttled_text(total: float | None, past: float | None, seconds: float) -> str:
    """A part of the time since the look before; without one, the sum."""
    if total is None:
        return "–"
    if past is None:
        return f"{total:.1f} s"
    return percent_text(min(1.0, max(0.0, total - past) / seconds))


def _throttled_by_part(report: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    return {
        (kernel["id"], part["uuid"]): part["compute"]["throttled_seconds"]
        for kernel in report["kernels"]
        for part in kernel["devices"]
        if part.get("compute") is not None
    }


def _title(report: Mapping[str, Any], origin: str) -> str:
    node = report["node"]
    driver = DRIVER_NAMES.get(node["driver"], node["driver"] or "no driver")
    return printable(f"node {node['name'] or '?'} · {driver} · from the {origin}")


def _devices_table(devices: Sequence[Mapping[str, Any]]) -> RankedTable:
    names = ("device", "busy", "memory used", "controlled by", "name")
    table = plain_table(*names, drop_first=("name", "controlled by"))
    for device in devices:
        busy = device["utilization_percent"]
        table.add_row(
            f"gpu{device['index']}",
            "lost" if device["lost"] else "–" if busy is None else f"{busy:.0f} %",
            f"{Bytes(device['used_bytes'])} of {Bytes(device['memory_bytes'])}",
            _control_text(device.get("compute_control")),
            printable(device["name"]),
            style="red" if device["lost"] else None,
        )
    return table


def _control_text(control: Mapping[str, Any] | None) -> str:
    if control is None:
        return "–"
    target = "" if control["target_percent"] is None else f", production within {control['target_percent']:g} %"
    return printable(
        f"{control['controller']}, {control['sharing']}{target if control['contended'] else ', no contention'}"
    )


def _kernels_table(rows: Iterable[Row], screen: Screen) -> RankedTable:
    names = ["kernel", "owner", "size", "state", "on", "entitled", "used", "share", "stretch", "throttled", "memory"]
    numbers = ("entitled", "used", "stretch", "throttled", "memory")
    table = RankedTable(names, _KERNELS_DROP, numbers)
    for row in rows:
        cells = {
            "kernel": row.kernel,
            "owner": row.owner,
            "size": row.size,
            "state": row.state,
            "on": row.device,
            "entitled": percent_text(row.entitled) + (" max" if row.is_capped else ""),
            "used": percent_text(row.used),
            "share": share_bar(row.used, row.entitled, screen.is_ascii),
            "stretch": stretch_text(row.stretch),
            "throttled": row.throttled,
            "memory": row.memory,
        }
        table.add_row(*(cells[name] for name in names), style="yellow" if row.is_held_back else None)
    return table


def _waiting(report: Mapping[str, Any]) -> str:
    length = report["queue"]["length"]
    return f"{length} wait{'s' if length == 1 else ''} for room" if length else ""


def _note(report: Mapping[str, Any]) -> str:
    return SOFTWARE_GPU_NOTE if report["node"]["driver"] == "softgpu" else ""


def _line(text: str, style: str = "") -> Text:
    """One line, whatever the width."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _lines(texts: Iterable[str], screen: Screen) -> int:
    return sum(1 + len(text) // max(1, screen.width) for text in texts)


def _cut(rows: Sequence[Row], room: int | None) -> tuple[Sequence[Row], int]:
    """As many rows as there is room for, with a line for how many are not shown."""
    if room is None or len(rows) <= room:
        return rows, 0
    most = max(1, room - 1)
    return rows[:most], len(rows) - most
