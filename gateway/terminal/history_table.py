"""The table of `aliquot history`, from the gateway's report. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_aliquot.provisioner.resources import Bytes

from .tables import clock_text, plain_table, printable, size_text

Report = Mapping[str, Any]
_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 30
_NOTHING = "–"


def history_table(report: Report) -> RenderableType:
    """Make a table of devices, then kernels with the most use first; a space in a line is a gap."""
    names = ("device", "name", "busy", "over time", "memory used", "most")
    devices = plain_table(*names, drop_first=("name", "most", "over time"))
    for device in report["devices"]:
        busy, used = device["figures"]["utilization_percent"], device["figures"]["used_bytes"]
        share = [None if value is None else value / 100 for value in busy["mean"]]
        cells = (_percent(mean(share, device["known_seconds"])), sparkline(share))
        devices.add_row(f"gpu{device['index']}", printable(device["name"]), *cells, *_memory(device, used))
    columns = ("kernel", "owner", "size", "GPU time", "over time", "memory used", "most")
    kernels = plain_table(*columns, drop_first=("owner", "most", "over time", "memory used"))
    for kernel in sorted(report["kernels"], key=lambda kernel: -(gpu_seconds(kernel) or 0)):
        title = printable(kernel["label"] or kernel["id"][:8])
        size = size_text(round(kernel["gpus"] * 100), kernel["priority"])
        seconds = gpu_seconds(kernel)
        cells = (_NOTHING if seconds is None else f"{seconds:.1f} s", sparkline(_used(kernel)))
        kernels.add_row(
            title, printable(kernel["owner"]), size, *cells, *_memory(kernel, kernel["figures"]["used_bytes"])
        )
    parts: list[RenderableType] = [Text(f"the last {report['range']}, until {clock_text(report['end'])}"), devices]
    parts.append(kernels if report["kernels"] else Text("no kernel held a GPU"))
    if report["omitted"]:
        parts.append(Text(f"{report['omitted']} more, which used less"))
    return Group(*parts)


def gpu_seconds(kernel: Report) -> float | None:
    """Return the GPU time of a kernel in the range; None where it is not known."""
    pairs = zip(_used(kernel), kernel["known_seconds"], strict=True)
    known = [value * seconds for value, seconds in pairs if value is not None]
    return sum(known) if known else None


def mean(values: Sequence[float | None], seconds: Sequence[float | None]) -> float | None:
    """Weighted by the time that is known of each step."""
    known = [(value, weight) for value, weight in zip(values, seconds, strict=True) if value is not None and weight]
    return sum(value * weight for value, weight in known) / sum(weight for _, weight in known) if known else None


def sparkline(values: Sequence[float | None], width: int = _WIDTH) -> str:
    """Draw ``values`` from 0 to 1 in *width* columns, each by its largest value."""
    line = ""
    for column in range(width):
        part = values[column * len(values) // width : (column + 1) * len(values) // width]
        known = [value for value in part if value is not None]
        line += _BARS[min(int(max(known) * len(_BARS)), len(_BARS) - 1)] if known else " "
    return line


def _used(kernel: Report) -> list[float | None]:
    """Return the GPUs in use by the kernel's own time.

    Where that is not known, by all that its work took.
    """
    own, busy = (kernel["figures"][name]["mean"] for name in ("own_gpus", "busy_gpus"))
    return [all_of_it if alone is None else alone for alone, all_of_it in zip(own, busy, strict=True)]


def _memory(one: Report, used: Report) -> tuple[str, str]:
    middle = mean(used["mean"], one["known_seconds"])
    most = [value for value in used["max"] if value is not None]
    return _NOTHING if middle is None else str(Bytes(round(middle))), str(Bytes(max(most))) if most else _NOTHING


def _percent(part: float | None) -> str:
    return _NOTHING if part is None else f"{100 * part:.0f} %"
