"""`aliquot usage`: its table of a gateway's report, and its messages."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from rich.console import Console

from jupyter_aliquot.gateway.terminal.usage_table import usage_table

from .conftest import RunAliquot


def hours(**other: float) -> dict[str, float]:
    names = ("working", "idle", "on_gpu", "swapped_out", "held", "waiting", "charged")
    return {**dict.fromkeys(names, 0.0), **other}


def row(**names: Any) -> dict[str, Any]:
    fields = dict.fromkeys(("user", "team", "size", "priority", "model", "day"))
    return {**fields, **names}


REPORT = {
    "month": "2026-11",
    "start": "2026-11-01T00:00:00Z",
    "end": "2026-12-01T00:00:00Z",
    "time_zone": "UTC",
    "by": ["team", "user"],
    "charge_by": "wall_time",
    "kept_since": "2026-11-02",
    "total": hours(working=4.5, charged=20.0),
    "budgets": [
        {
            **{"kind": "team", "name": "vision", "period": "month", "renews_at": "2026-12-01T00:00:00Z"},
            **{"used_gpu_hours": 12.5, "gpu_hours": 10.0, "left_gpu_hours": 0.0, "state": "exceeded"},
            "at_limit": "refuse",
        }
    ],
    "rows": [
        row(team="", user="a\x1b[2Jb", gpu_hours=hours(working=1.25, idle=2.0)),
        row(team="vision", user="bob", gpu_hours=hours(working=3.25, waiting=0.5, charged=20.0)),
    ],
}


NOW = datetime(2026, 11, 30, tzinfo=timezone.utc)


def drawn(report: dict[str, Any], width: int = 150) -> str:
    screen = Console(width=width, record=True)
    screen.print(usage_table(report, NOW))
    return screen.export_text()


def test_the_table_has_rows_their_sum_and_budgets() -> None:
    text = drawn(REPORT)
    for want in ("2026-11", "a\ufffd[2Jb", "bob", "3.25", "all", "4.50", "20.00", "team vision", "12.50", "2026-12-01"):
        assert want in text
    assert "exceeded: new kernels are refused" in text
    assert "size times the time on the GPU and swapped out" in text


def test_a_narrow_terminal_keeps_what_is_charged() -> None:
    text = drawn(REPORT, width=48)
    assert "charged" in text.splitlines()[1]
    assert "swapped out" not in text.splitlines()[1]


def test_without_rows_and_budgets_it_says_so() -> None:
    text = drawn({**REPORT, "rows": [], "budgets": [], "month": None, "charge_by": "use"})
    assert "no GPU time was counted" in text
    assert "2026-11-01 until 2026-12-01" in text
    assert "charged: the GPU time used" in text


def test_a_month_in_the_future_is_told_as_one() -> None:
    december = {**REPORT, "month": "2026-12", "start": "2026-12-01T00:00:00Z", "rows": []}
    assert "2026-12 has not begun: no GPU time is counted yet" in drawn(december)
    assert "no GPU time was counted" in drawn({**december, "start": "2026-11-30T00:00:00+01:00"})


def test_without_a_gateway_it_says_so(run_aliquot: RunAliquot) -> None:
    found = run_aliquot("usage", "--month", "2026-11", "--by", "team")
    assert (found.returncode, "no gateway of yours" in found.stderr) == (1, True)
    assert "gateway.lock. Start aliquot lab, or set JUPYTER_GATEWAY_URL" in " ".join(found.stderr.split())
    assert "Errno" not in found.stderr
