"""The hook's cost of a call, in instructions: it can be counted on any machine, however busy."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
RECORD = json.loads((BENCHMARKS / "hook" / "instructions.json").read_text())


def test_no_call_takes_more_instructions_than_recorded() -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed (Debian: apt-get install valgrind)")
    if platform.machine() != RECORD["machine"]:
        pytest.skip(f"recorded on {RECORD['machine']}, this is {platform.machine()}")
    command = [sys.executable, str(BENCHMARKS / "instructions.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_growth_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import instructions

    record = {"added": {"cuLaunchKernel": 30, "cuMemGetInfo": 200}}
    assert instructions.compare({"cuLaunchKernel": 33, "cuMemGetInfo": 180}, record, 1.1) == []
    (line,) = instructions.compare({"cuLaunchKernel": 34, "cuMemGetInfo": 200}, record, 1.1)
    assert "cuLaunchKernel: recorded 30 instructions, counted 34" in line
    assert instructions.compare({"cuNewCall": 1}, record, 1.1) != []
