"""Run a benchmark's smoke run as its make target would, and check its files. Judges no bound."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
_DEADLINE_SECONDS = 560.0  # two minutes alone on a slow machine


def smoke_rows(program: str, out: Path, *arguments: str) -> list[str]:
    """Run ``benchmarks/PROGRAM.py --smoke``; return the names of its rows below *out*.

    Raises AssertionError if it fails, judges a bound, or writes no row or a value that is no
    number.
    """
    command = [sys.executable, str(BENCHMARKS / f"{program}.py"), "--smoke", "--out", str(out), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_SECONDS, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    (written,) = out.glob("*.smoke.json")
    record = json.loads(written.read_text())
    assert record["smoke"] is True
    assert record["rows"], "no row was written"
    assert all(math.isfinite(row["value"]) for row in record["rows"])
    assert {row["holds"] for row in record["rows"]} == {None}
    assert "no measurement" in done.stdout
    return [row["name"] for row in record["rows"]]
