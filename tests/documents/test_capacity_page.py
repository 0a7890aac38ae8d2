"""The table of the capacity page is what the node agent would find."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from jupyter_aliquot.gpu_hook.placement.automatic import Asked, DeviceNeeds, find_overcommit

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/plan-capacity.md"
GIB = 1 << 30
_ROW = re.compile(r"^\| (\d+) \| (\d+) GiB \| (\d+) GiB \| ([\d.]+) \| (\d+) \| (\d+) \|$", re.MULTILINE)
ROWS = [tuple(map(float, row)) for row in _ROW.findall(PAGE.read_text())]


def test_the_page_has_the_table() -> None:
    assert len(ROWS) >= 5


@pytest.mark.parametrize(("gpus", "memory", "host", "ratio", "whole", "quarters"), ROWS)
def test_a_row_is_what_auto_finds(
    gpus: float, memory: float, host: float, ratio: float, whole: float, quarters: float
) -> None:
    devices = [DeviceNeeds(f"GPU-{i}", int(memory * GIB), GIB // 2) for i in range(int(gpus))]
    found = find_overcommit(Asked(), devices, int(host * GIB) // 2).rule.ceilings.get("GPU-0", 4.0)
    # A kernel of at most one GPU is placed on one, so the rest of each GPU's ratio holds none.
    assert (ratio, whole, quarters) == (found, gpus * math.floor(found), gpus * math.floor(found / 0.25))


@pytest.mark.parametrize(("gpus", "memory", "host", "ratio", "whole", "quarters"), ROWS)
def test_the_rule_in_words_gives_the_same(
    gpus: float, memory: float, host: float, ratio: float, whole: float, quarters: float
) -> None:
    total, copies = gpus * memory, host / 2
    told = max(copies / total, 1 + (copies - 2 * memory) / total)
    assert ratio == pytest.approx(min(4, told), abs=0.01)
