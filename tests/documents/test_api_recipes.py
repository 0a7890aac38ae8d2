"""The blocks of the page about the API run, in their order, against a gateway with its own node agent."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ports import free_port
from quick_start import python_m

sys.path.insert(0, str(Path(__file__).parent))
if TYPE_CHECKING:
    from tests.documents.printed_commands import ROOT, blocks_and_text
else:
    from printed_commands import ROOT, blocks_and_text

PAGE = ROOT / "docs/how-to/use-the-api.md"
TOKEN = "alices-token-of-this-test"
START_SECONDS = 120.0
CONFIGURATION = f"""
c.AliquotIdentityProvider.users = {{"alice": {{"token": "{TOKEN}"}}, "bob": {{"token": "bobs"}}}}
c.Aliquot.driver = "softgpu"
c.Aliquot.agent_options = ["--softgpu-memory", "16GiB", "--overcommit", "1"]
c.Aliquot.keep_kernels = "never"
"""
# A pattern that the output of each block has, by its heading.
SAYS = {
    "Connect": r"^alice on Aliquot \d",
    "List sizes with their availability": r"^gpu-0\.25: starts, .*\ngpu-0\.5-6g-low: starts, .*\ngpu-8: never, never",
    "Start a kernel and run code in it": r"^42\n None$",
    "Wait in the queue, with an estimate": r"^place 1 of 1: Needs 1 GPU.*\nexpected start: (.*\n)*state: on_gpu$",
    "Resize a running kernel": r"^0\.5 6 low None$",
    "Swap a kernel out, and restore it": r"^(on_gpu|restoring|swapped_out)$",
    "Follow changes with asyncio": r"^state \w+ ",
    "Share a kernel": r"^\[\{'kind': 'user', 'name': 'bob', 'access': 'read'\}\]\n\[\]$",
    "See quotas, the queue and the nodes": r"^I hold 0\.5 GPU of no limit\n0 requests wait$",
    "Report a month's use": r"^(alice \S+ [\d.e-]+ GPU-hours held\n)*\d{4}-\d\d [\d.e-]+ GPU-hours charged by \w+$",
    "Save the last day's use as a table": r"^$",
    "Handle what goes wrong": r"^refused: Kernel does not exist: no-such-kernel$",
}


@dataclass(frozen=True)
class Recipe:
    heading: str
    code: str


def recipes() -> list[Recipe]:
    """Return the block of each section; a section has one."""
    blocks, _ = blocks_and_text(PAGE.name, PAGE.read_text())
    lines = PAGE.read_text().splitlines()
    found = []
    for block in blocks:
        heading = next(line for line in reversed(lines[: block.line]) if line.startswith("## "))
        found.append(Recipe(heading.removeprefix("## "), block.text))
    return found


RECIPES = recipes()


@pytest.fixture(scope="module")
def reader() -> Iterator[dict[str, Any]]:
    """Return the names that the blocks share, in a folder of their own and beside a gateway."""
    folder, port = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp")), free_port()
    url = f"http://127.0.0.1:{port}/"
    (folder / "gateway.py").write_text(CONFIGURATION)
    words = ["serve", f"--config={folder}/gateway.py", f"--port={port}", "--allow-root", "--ServerApp.port_retries=0"]
    cleared = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "ALIQUOT_RUN", "XDG_", "KERNEL_"))}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            python_m("jupyter_aliquot.gateway.cli.app", *words),
            cwd=folder,
            env={**cleared, "HOME": str(folder), "ALIQUOT_RUNTIME_DIR": str(folder / "run")},
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not is_whole(url):
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.05)  # between two looks: a port has no event
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setenv("SERVER", url)
            patch.setenv("TOKEN", TOKEN)
            names: dict[str, Any] = {"__name__": "a_script"}
            yield names
            if "client" in names:
                names["client"].close()
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        finally:
            process.kill()
            shutil.rmtree(folder, ignore_errors=True)


def is_whole(url: str) -> bool:
    """Tell whether the gateway answers, and has its node agent."""
    request = urllib.request.Request(f"{url}aliquot/api/v1/status", headers={"Authorization": f"token {TOKEN}"})
    with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=30) as answer:
        return bool(json.load(answer)["node"]["agent"] == "ok")
    return False


def test_each_section_is_one_recipe_of_at_least_ten() -> None:
    assert [one.heading for one in RECIPES] == list(SAYS)
    assert len(RECIPES) > 10


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda one: one.heading)
def test_a_recipe_does_what_its_section_says(reader: dict[str, Any], recipe: Recipe) -> None:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(recipe.code, f"{PAGE.name}: {recipe.heading}", "exec"), reader)
    assert re.search(SAYS[recipe.heading], said.getvalue().strip()), said.getvalue()
    if "write_text" in recipe.code:
        assert Path("day.csv").read_bytes().startswith(b"start,step_seconds,kind,"), (
            "the reader's folder is the present one"
        )
