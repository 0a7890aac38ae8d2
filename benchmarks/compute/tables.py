"""The pairs as tables in Markdown, for a page of results with verdicts.

The module formats and measures nothing.
"""

from __future__ import annotations

from pathlib import Path

from compute.controllers import CONTENDERS, OURS
from compute.pairs import Pair
from compute.rows import LEAST_HARVEST, MOST_SLOWDOWN, Pairs, is_within


def _percent(part: float) -> str:
    return f"{100 * part:.1f}" if abs(part) < 0.1 else f"{100 * part:.0f}"


def _verdict(pair: Pair, tgs: Pair | None) -> str:
    """Return yes, or the bound that does not hold.

    The verdict also says if no controller could have harvested enough.
    """
    reasons = [] if is_within(pair) else [f"slow-down over {MOST_SLOWDOWN:g} %"]
    if pair.has_idle and pair.harvest < LEAST_HARVEST / 100:
        is_impossible = pair.bound < LEAST_HARVEST / 100
        reasons.append(f"harvest (clairvoyant {_percent(pair.bound)})" if is_impossible else "harvest")
    if pair.has_idle and tgs and pair.harvest < tgs.harvest:
        reasons.append("less harvest than TGS")
    return "NO: " + ", ".join(reasons) if reasons else "yes"


def _lines(pairs: Pairs, has_idle: bool) -> list[str]:
    others = [name for name in CONTENDERS if name != OURS]
    harvest = [*(f"{name}" for name in others), "clairvoyant"] if has_idle else []
    head = ["pair", "idle", "p50", "p99", *(f"p99 {name}" for name in others)]
    head += ["**harvest**", *(f"harvest {name}" for name in harvest)] if has_idle else []
    lines = ["| " + " | ".join([*head, "holds"]) + " |", "|" + "---|" * (len(head) + 1)]
    for (name, controller), pair in pairs.items():
        if controller != OURS or pair.has_idle != has_idle:
            continue
        beside = {other: pairs[name, other] for other in others if (name, other) in pairs}
        cells = [name, _percent(pair.idle), _percent(pair.slowdown_p50), _percent(pair.slowdown_p99)]
        cells += [_percent(beside[other].slowdown_p99) for other in beside]
        if has_idle:
            cells.append(f"**{_percent(pair.harvest)}**")
            cells += [*(_percent(beside[other].harvest) for other in beside), _percent(pair.bound)]
        lines.append("| " + " | ".join([*cells, _verdict(pair, beside.get("tgs"))]) + " |")
    return lines


def write(path: Path, pairs: Pairs) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = [
        "Production with idle time; all in percent, harvest of production's idle time:", "", *_lines(pairs, True), "",
        "Busy production:", "", *_lines(pairs, False),
    ]  # fmt: skip
    path.write_text("\n".join(parts) + "\n")
