"""The whole `aliquot demo`: its claims hold on the software GPU.

It reports a claim that does not hold, and leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.demo.command import find_notebook

COMMAND = [
    sys.executable,
    "-m",
    "jupyter_aliquot.gateway.cli.app",
    "demo",
    "--driver",
    "softgpu",
    "--softgpu-memory",
    "1GiB",
]
SECONDS = 200
_OWN_FOLDER = re.compile(rb"/tmp/aliquot-own-\w+")


class Demo:
    """A running demo with its own processes and folder: other demos may run in parallel."""

    def __init__(self, *options: str) -> None:
        self._mark = f"ALIQUOT_TEST_DEMO={uuid.uuid4().hex}"
        name, _, value = self._mark.partition("=")
        self.process = subprocess.Popen(
            [*COMMAND, *options],
            env={**os.environ, name: value},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said = ""
        self._folders: set[str] = set()

    def wait_for(self, text: str) -> None:
        """Wait until it printed the text; then its processes and its folder are known."""
        assert self.process.stdout is not None
        while text not in self.said:
            line = self.process.stdout.readline()
            assert line, self.said
            self.said += line
        found = [_OWN_FOLDER.search(environment) for environment in self._environments()]
        self._folders = {match[0].decode() for match in found if match}
        assert self._folders, "its children inherit the mark"

    def end(self) -> int:
        self.said += self.process.communicate(timeout=SECONDS)[0]
        return self.process.returncode

    def left_behind(self) -> list[str]:
        return [*filter(os.path.exists, self._folders), *map(str, self._environments())]

    def _environments(self) -> list[bytes]:
        """Return the environments of its processes, wherever their parent went.

        The mark or the folder of its stack identifies them.
        """
        found = []
        words = [word.encode() for word in (self._mark, *(f"ALIQUOT_RUNTIME_DIR={own}" for own in self._folders))]
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environment = (process / "environ").read_bytes()
                if any(word in environment for word in words):
                    found.append(environment)
        return found


def run_demo(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.fixture
def a_changed_quickstart(tmp_path: Path) -> Callable[[dict[str, str]], Path]:
    def change(sources: dict[str, str]) -> Path:
        notebook = json.loads(find_notebook().read_text())
        cells = {cell["id"]: cell for cell in notebook["cells"]}
        for cell_id, source in sources.items():
            cells[cell_id]["source"] = source
        path = tmp_path / "changed.ipynb"
        path.write_text(json.dumps(notebook))
        return path

    return change


def test_every_claim_of_the_demo_holds(eventually: Callable[..., Any]) -> None:
    demo = Demo()
    demo.wait_for("cell compute")
    assert demo.end() == 0, demo.said
    assert "✗" not in demo.said
    assert demo.said.count("✓") == 13
    rows = re.findall(r"^kernel \d .*$", demo.said, re.MULTILINE)
    want_rows = [
        ("0.5 GPU", "512.0 MiB", "finished"),
        ("0.25 GPU", "256.0 MiB", "out of memory once, went on, finished"),
    ]
    want_rows.append(("0.25 GPU", "256.0 MiB", "killed in its long cell"))
    assert len(rows) == 3
    assert all(all(word in row for word in want) for row, want in zip(rows, want_rows, strict=True))
    assert "compiled GPU code is timed, not executed" in demo.said
    eventually(lambda: not demo.left_behind())


def test_claims_that_do_not_hold_end_the_demo_with_an_error(a_changed_quickstart) -> None:
    """A neighbor whose memory was overwritten notices it, and the demo says so.

    It does not count a kernel as killed that ends by itself.
    """
    changes = {"time": "checked(driver.cuMemsetD8(work, 0, 4096))", "long": "print('nothing to do')"}
    done = run_demo("--notebook", str(a_changed_quickstart(changes)))
    assert done.returncode == 1
    assert "✗ the other kernels' memory is unchanged" in done.stdout
    assert "the work changed" in done.stdout
    assert "could not be killed" in done.stdout
    assert done.stderr.startswith("aliquot: ")
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak(alone="starts the demo once more"))]
)
def test_an_interrupted_demo_ends_what_it_started(number: signal.Signals, eventually: Callable[..., Any]) -> None:
    demo = Demo()
    demo.wait_for("cell compute")
    os.kill(demo.process.pid, number)
    assert demo.end() == 130, demo.said
    assert "Traceback" not in demo.said
    assert "never retrieved" not in demo.said
    eventually(lambda: not demo.left_behind())
