"""The table of `aliquot cordon`, `uncordon` and `drain`, and the line about a cordoned node. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from .tables import clock_text, plain_table, printable

_STATES = {"stays": "stays", "leaving": "is leaving", "runs": "holds its share", "evicted": "swapped out"}


def node_table(report: Mapping[str, Any]) -> RenderableType:
    """Draw a node's cordon, and the kernels that are there: first those that stay."""
    name = str(report["name"])
    lines = [Text(line) for line in cordon_lines(name, report["cordon"])] or [
        Text(printable(f"{_named(name)} is not cordoned: kernels start there"))
    ]
    if not report["kernels"]:
        return Group(*lines, Text("No kernel is there."))
    table = plain_table("kernel", "owner", "state", "reason", drop_first=("owner",), wrapped=("reason",))
    for one in report["kernels"]:
        table.add_row(
            printable(one["label"] or one["kernel_id"][:8]),
            printable(one["owner"]),
            _STATES.get(one["state"], one["state"]),
            printable(one["reason"] or ""),
        )
    return Group(*lines, table)


def cordon_lines(name: str, cordon: Mapping[str, Any] | None) -> list[str]:
    """Return a line about a node's cordon; none for a node without one."""
    if cordon is None:
        return []
    what = "drained: its kernels are swapped out, and none starts there" if cordon["draining"] else "cordoned: nothing"
    what = what if cordon["draining"] else f"{what} new starts there"
    why = f" ({cordon['reason']})" if cordon["reason"] else ""
    return [printable(f"{_named(name)} is {what}, since {clock_text(cordon['since'])}{why}")]


def _named(name: str) -> str:
    """Return a node's name with its kind; the UUID of a GPU says what it is."""
    return name if name.startswith(("GPU-", "MIG-")) else f"node {name}"
