"""`aliquot history`: its table of a gateway's report, and its message where there is none."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from jupyter_aliquot.gateway.terminal.history_table import gpu_seconds, history_table, mean, sparkline

from .conftest import RunAliquot

GIB = 1 << 30
KNOWN = [10, None, 5]


def a_kernel(**other: Any) -> dict[str, Any]:
    figures = {
        "own_gpus": [0.5, None, None],
        "busy_gpus": [0.75, None, 0.2],
        "used_bytes": [GIB, None, 3 * GIB],
    }
    facts = {"id": "k1-and-more", "owner": "alice", "label": "", "gpus": 0.25, "priority": "normal"}
    columns = {name: {part: values for part in ("min", "mean", "max")} for name, values in figures.items()}
    return {**facts, "known_seconds": KNOWN, "figures": columns, **other}


def test_gpu_time_counts_what_is_known_alone() -> None:
    assert gpu_seconds(a_kernel()) == 0.5 * 10 + 0.2 * 5
    assert gpu_seconds(a_kernel(known_seconds=[], figures={n: {"mean": []} for n in ("own_gpus", "busy_gpus")})) is None
    assert mean([1.0, None, 4.0], KNOWN) == 2.0


def test_a_gap_in_a_line_is_no_zero() -> None:
    assert sparkline([0.0, None, 1.0], width=3) == "▁ █"
    assert sparkline([0.0, 1.0, None, None], width=2) == "█ "


def test_the_table_names_kernels_and_what_was_left_out() -> None:
    report = {"range": "day", "end": "2027-01-15T08:00:00Z", "devices": [], "omitted": 3}
    screen = Console(width=150, record=True)
    screen.print(history_table({**report, "kernels": [a_kernel(), a_kernel(label="a\x1b[2J.ipynb")]}))
    text = screen.export_text()
    for want in ("k1-and-m", "alice", "6.0 s", "1.7 GiB", "3.0 GiB", "3 more", "\ufffd[2J.ipynb"):
        assert want in text


def test_without_a_gateway_and_for_another_range_it_says_so(run_aliquot: RunAliquot) -> None:
    nobody = run_aliquot("history")
    assert (nobody.returncode, "no gateway of yours" in nobody.stderr) == (1, True)
    other = run_aliquot("history", "--range", "year")
    assert (other.returncode, "hour, day, week" in other.stderr) == (2, True)
