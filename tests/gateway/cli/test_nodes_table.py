"""The nodes on other machines in `aliquot status`."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console, Group

from jupyter_aliquot.gateway.terminal.gateway_tables import nodes_lines

GIB = 1 << 30


def drawn(*nodes: dict[str, Any]) -> list[str]:
    screen = Console(file=io.StringIO(), width=160, color_system=None)
    screen.print(Group(*nodes_lines(nodes)))
    assert isinstance(screen.file, io.StringIO)
    return [line.rstrip() for line in screen.file.getvalue().splitlines()]


def a_node(name: str, **changes: Any) -> dict[str, Any]:
    device = {
        "index": 0,
        "name": "H200",
        "lost": False,
        "reserved_gpus": 0.5,
        "used_bytes": GIB,
        "memory_bytes": 4 * GIB,
        "utilization_percent": 7,
    }
    return {"name": name, "state": "connected", "message": None, "devices": [device], **changes}


def test_each_device_of_another_node_has_a_row_with_the_nodes_name() -> None:
    _, first = drawn(a_node("gpu-1"))
    assert first.split("  ")[0] == "gpu-1"
    for want in ("connected", "gpu0", "H200", "0.5 GPU", "7 %"):
        assert want in first


def test_an_unknown_node_is_told_with_its_reason() -> None:
    lines = drawn(a_node("gpu-2", state="unknown", message="Unknown: it hangs", devices=[]))
    assert "unknown" in lines[1]
    assert lines[2] == "node gpu-2: Unknown: it hangs"


def test_a_gateway_without_other_nodes_draws_nothing() -> None:
    assert drawn() == []


def test_a_name_cannot_write_to_the_terminal() -> None:
    assert "\x1b" not in "".join(drawn(a_node("a\x1b[2J", message="\x1b[2J")))
