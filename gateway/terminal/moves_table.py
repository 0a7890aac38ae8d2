"""The tables of `aliquot defragment`: a plan of moves, and its run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from .ranked_table import RankedTable
from .tables import plain_table, printable

_GIB = 1 << 30
_OUTCOMES = {"planned": "to come", "dropped": "not begun"}

Report = Mapping[str, Any]


def moves_table(report: Report, options: str = "") -> RenderableType:
    """Draw a plan: its moves, what is free after it, the kernels that stay, and the command that runs it."""
    lines = [Text(printable(_head(report)))]
    if not report["moves"]:
        return Group(*lines, *_stays(report))
    table = _table(report["moves"], "why")
    free = ", ".join(f"gpu{gpu['index']} {gpu['free_gpus']:g} → {gpu['free_gpus_after']:g}" for gpu in report["gpus"])
    command = f"aliquot defragment{options} --apply {report['digest']}"
    return Group(
        *lines,
        table,
        Text(printable(f"Free GPUs of {report['node']}: {free}")),
        *_stays(report),
        Text(f"Run it: {command}"),
    )


def run_table(run: Report) -> RenderableType:
    """Draw how each move of a run went, and why it ended early."""
    plan = f" of the plan {run['digest']}" if run.get("digest") else ""  # an earlier gateway does not name it
    lines = [Text(printable(f"Moves on {run['node']}{plan}, by {run['by']}:"))]
    end = [Text(printable(f"The run ended early: {run['reason']}."))] if run.get("reason") else []
    return Group(*lines, _table(run["moves"], "outcome"), *end)


def _head(report: Report) -> str:
    size = report["size"]
    why = report["reason"]
    if size is None:
        return "Moves after which larger sizes fit:" if report["moves"] else f"Nothing to move: {why}"
    wanted = f"{size['size']} (the first request that waits)" if size["kernel_id"] else size["size"]
    if report["moves"]:
        return f"Moves after which {wanted} fits:"
    return (
        f"No moves make room for {wanted}: {why}" if why else f"{wanted} fits on {report['node']} now: nothing to move"
    )


def _table(moves: Iterable[Report], last: str) -> RankedTable:
    table = plain_table("kernel", "owner", "from", "to", "GiB", last, drop_first=("owner",), wrapped=(last,))
    for move in moves:
        outcome = _OUTCOMES.get(move["outcome"], move["outcome"])
        told = "idle, and can be restored there" if last == "why" else str(move["reason"] or outcome)
        table.add_row(
            printable(move["label"] or move["kernel_id"][:8]),
            printable(move["owner"]),
            f"gpu{move['source_index']}",
            f"gpu{move['target_index']}",
            f"{move['memory_bytes'] / _GIB:.1f}",
            printable(told),
        )
    return table


def _stays(report: Report) -> list[RenderableType]:
    """Return the kernels that cannot move; none where none does."""
    if not report["stays"]:
        return []
    table = plain_table("stays", "owner", "node", "reason", drop_first=("owner", "node"), wrapped=("reason",))
    for one in report["stays"]:
        label = one["label"] or one["kernel_id"][:8]
        table.add_row(*(printable(text) for text in (label, one["owner"], one["node"], one["reason"])))
    return [table]
