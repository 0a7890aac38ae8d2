"""`aliquot demo`, whole: its claims hold on the software GPU, it says if one does not, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aliquot.gateway.commands.demo import find_notebook

COMMAND = [sys.executable, "-m", "aliquot.gateway.app", "demo", "--driver", "softgpu", "--softgpu-memory", "1GiB"]
SECONDS = 100


def run_demo(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=SECONDS, check=False)


def children_of_demos() -> list[str]:
    """Processes whose environment names a ring's folder; by that they are found wherever their parent went."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"ALIQUOT_RUNTIME_DIR=/tmp/aliquot-own-" in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def left_behind() -> list[str]:
    return [str(folder) for folder in Path("/tmp").glob("aliquot-own-*")] + children_of_demos()


@pytest.fixture
def a_changed_quickstart(tmp_path: Path) -> Callable[[str, str], Path]:
    def change(cell_id: str, source: str) -> Path:
        notebook = json.loads(find_notebook().read_text())
        (cell,) = [cell for cell in notebook["cells"] if cell["id"] == cell_id]
        cell["source"] = source
        path = tmp_path / "changed.ipynb"
        path.write_text(json.dumps(notebook))
        return path

    return change


def test_every_claim_of_the_demo_holds() -> None:
    before = set(left_behind())
    done = run_demo()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✗" not in done.stdout
    assert done.stdout.count("✓") == 9
    rows = re.findall(r"^kernel \d .*$", done.stdout, re.MULTILINE)
    want_rows = [
        ("0.5 GPU", "512.0 MiB", "finished"),
        ("0.25 GPU", "256.0 MiB", "out of memory once, went on, finished"),
    ]
    want_rows.append(("0.25 GPU", "256.0 MiB", "killed in its long cell"))
    assert len(rows) == 3
    assert all(all(word in row for word in want) for row, want in zip(rows, want_rows, strict=True))
    assert "compiled GPU code is timed, not executed" in done.stdout
    assert not set(left_behind()) - before


def test_a_claim_that_does_not_hold_ends_the_demo_with_an_error(a_changed_quickstart) -> None:
    """A neighbour whose memory was overwritten notices it, and the demo says so."""
    notebook = a_changed_quickstart("time", "checked(driver.cuMemsetD8(work, 0, 4096))")
    done = run_demo("--notebook", str(notebook))
    assert done.returncode == 1
    assert "✗ the neighbours' contents are unchanged" in done.stdout
    assert "the work changed" in done.stdout
    assert done.stderr.startswith("aliquot: ")
    assert "Traceback" not in done.stdout + done.stderr


def test_a_kernel_that_ends_by_itself_is_not_counted_as_killed(a_changed_quickstart) -> None:
    done = run_demo("--notebook", str(a_changed_quickstart("long", "print('nothing to do')")))
    assert done.returncode == 1
    assert "could not be killed" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_ends_what_it_started(number: signal.Signals, eventually: Callable[..., Any]) -> None:
    before = set(left_behind())
    demo = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert demo.stdout is not None
    said = ""
    while "cell compute" not in said:
        line = demo.stdout.readline()
        assert line, said
        said += line
    os.kill(demo.pid, number)
    said += demo.communicate(timeout=60)[0]
    assert demo.returncode == 130, said
    assert "Traceback" not in said
    assert "never retrieved" not in said
    eventually(lambda: not set(left_behind()) - before)
