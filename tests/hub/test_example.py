"""`make hub`: the example keeps what its text promises, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hub_process import hub_problem

START = Path(__file__).resolve().parents[2] / "examples" / "jupyterhub" / "start.py"


@pytest.mark.timeout(600)
def test_the_example_holds_what_it_promises() -> None:
    if problem := hub_problem():
        pytest.skip(problem)
    done = subprocess.run(
        [sys.executable, str(START), "--check"], capture_output=True, text=True, timeout=580, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("  ok  ") == 5
    assert "NOT" not in done.stdout
