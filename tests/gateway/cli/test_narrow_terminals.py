"""Tables in narrow terminals: whole columns go, the least useful first; what stays can be read."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import datetime, timezone
from io import StringIO
from typing import Any

import pytest
from rich.console import Console, RenderableType

from jupyter_aliquot.gateway.terminal.node_table import cordon_lines
from jupyter_aliquot.gateway.terminal.ranked_table import RankedTable
from jupyter_aliquot.gateway.terminal.tables import clock_text, ended_table, queue_table, short_ids, status_view
from jupyter_aliquot.gpu_hook.client.client import read_status
from jupyter_aliquot.gpu_hook.client.reports import NodeStatus

GIB = 1 << 30
DEVICE = {
    **{
        "uuid": "GPU-a0",
        "index": 0,
        "name": "Aliquot Software GPU",
        "memory_bytes": 16 * GIB,
        "reserved_bytes": 4 * GIB,
    },
    **{"reserved_hundredths": 25, "used_bytes": GIB, "charged_bytes": GIB, "utilization_percent": 40, "lost": False},
    **{"temperature_celsius": None, "power_watts": None},
}
PART = {
    **{"uuid": "GPU-a0", "index": 0, "hundredths": 25, "guarantee_bytes": 4 * GIB, "quota_bytes": 4 * GIB},
    **{
        "charged_bytes": GIB,
        "lent_bytes": GIB,
        "refusals": 0,
        "peak_bytes": 2 * GIB,
        "context_bytes": 300 << 20,
        "busy_seconds": 75.0,
    },
}
KERNEL = {
    **{"kernel_id": "2f0c9c1e-6a2b", "owner": "alice", "label": "work/train-a-model.ipynb", "hundredths": 25},
    **{"memory_limit": None, "workload_class": "opportunistic", "generation": 1, "attributes": {}, "created": 0.0},
    **{"interception": "holds", "pids": [12345], "ending": False, "enforcement": "holds", "devices": [PART]},
}


def a_node(*kernels: dict[str, Any]) -> NodeStatus:
    told = {"node": "n", "driver": "softgpu", "enforcer": "hook", "connections": 1}
    return read_status({**told, "devices": [DEVICE], "kernels": list(kernels)})


WAITS = ("a.ipynb", "2f0c9c1e", "ada", "0.5 GPU", "1 of 2", "1 min", "needs 0.5 GPU; none is free")


def drawn(view: RenderableType, width: int) -> list[str]:
    out = StringIO()
    Console(file=out, width=width, no_color=True, highlight=False, markup=False).print(view)
    return out.getvalue().splitlines()


def test_at_80_columns_the_status_says_which_kernel_is_how_large_and_uses_what() -> None:
    lines = drawn(status_view(a_node(KERNEL), None), 80)
    head = next(line for line in lines if line.startswith("kernel"))
    row = next(line for line in lines if "train-a-model" in line)
    assert {"id", "size", "used", "residency"} <= set(head.split())
    assert "processes" not in head
    assert "work/train-a-model.ipynb" in row
    assert "2f0c9c1e" in row
    assert "0.25 GPU low" in row
    assert "…" not in "".join(lines)


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 170])
@pytest.mark.parametrize(
    "view",
    [
        lambda: status_view(a_node(KERNEL), [WAITS]),
        lambda: ended_table([("gone.ipynb", "ada", "0.5 GPU low", "1 min", "oom", "the host's memory was used up")]),
    ],
)
def test_no_line_is_wider_than_the_terminal(view: Callable[[], RenderableType], width: int) -> None:
    assert all(len(line.rstrip()) <= width for line in drawn(view(), width))


def test_columns_go_in_their_order_and_come_back_as_the_terminal_widens() -> None:
    table = RankedTable(("a", "bb", "ccc"), drop_first=("ccc", "a"))
    table.add_row("1", "22", "333")
    shown = [table.shown_columns(width) for width in range(1, 14)]
    assert [columns for columns, _ in itertools.groupby(shown)] == [("bb",), ("a", "bb"), ("a", "bb", "ccc")]
    assert table.shown_columns(5) == ("a", "bb")
    assert table.shown_columns(10) == ("a", "bb", "ccc")


def test_a_sentence_folds_and_is_never_cut() -> None:
    why = "needs 0.5 GPU; none is free on gpu0, where alice holds all of it"
    text = " ".join(drawn(queue_table([(*WAITS[:-1], why)]), 60))
    assert all(word in text for word in why.split())


def test_a_table_refuses_rows_and_columns_that_it_has_not() -> None:
    with pytest.raises(ValueError, match="no such columns: c"):
        RankedTable(("a", "b"), drop_first=("c",))
    with pytest.raises(ValueError, match="1 cells for 2 columns"):
        RankedTable(("a", "b")).add_row("1")


def test_short_ids_are_as_long_as_it_takes_to_tell_kernels_apart() -> None:
    assert short_ids(["aaaaaaaabb-1", "cccccccc-2"]) == {"aaaaaaaabb-1": "aaaaaaaa", "cccccccc-2": "cccccccc"}
    alike = short_ids(["aaaaaaaabb-1", "aaaaaaaabc-2", "aaaaaaaabc-2"])
    assert set(alike.values()) == {"aaaaaaaabb", "aaaaaaaabc"}
    assert short_ids(["k", "k"]) == {"k": "k"}


@pytest.mark.usefixtures("in_utc")
def test_all_tables_tell_times_in_one_form() -> None:
    """A time of today has no date; each is that of this machine's clock."""
    now = datetime(2026, 11, 23, 14, 0, tzinfo=timezone.utc)
    assert clock_text("2026-11-23T12:30:00Z", now) == "12:30"
    assert clock_text("2026-11-22T23:59:00+00:00", now) == "2026-11-22 23:59"
    cordon = {"draining": False, "reason": "new driver", "since": "2026-11-22T12:30:00.123Z"}
    assert cordon_lines("gpu-1", cordon) == [
        "node gpu-1 is cordoned: nothing new starts there, since 2026-11-22 12:30 (new driver)"
    ]
