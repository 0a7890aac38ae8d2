"""The blocks of the page about the API run, in their order, against a gateway with its own node agent."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from live_gateway import TOKEN, a_live_gateway

sys.path.insert(0, str(Path(__file__).parent))
if TYPE_CHECKING:
    from tests.documents.printed_commands import ROOT, blocks_and_text
else:
    from printed_commands import ROOT, blocks_and_text

PAGE = ROOT / "docs/how-to/use-the-api.md"
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
    with a_live_gateway() as gateway, pytest.MonkeyPatch.context() as patch:
        patch.chdir(gateway.folder)
        patch.setenv("SERVER", gateway.url)
        patch.setenv("TOKEN", TOKEN)
        names: dict[str, Any] = {"__name__": "a_script"}
        yield names
        if "client" in names:
            names["client"].close()


def test_each_section_is_one_recipe_of_at_least_ten() -> None:
    assert [one.heading for one in RECIPES] == list(SAYS)
    assert len(RECIPES) > 10


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda one: one.heading)
def test_a_recipe_does_what_its_section_says(reader: dict[str, Any], recipe: Recipe) -> None:
    said = _run(reader, recipe)
    assert re.search(SAYS[recipe.heading], said.strip()), said
    if "write_text" in recipe.code:
        assert Path("day.csv").read_bytes().startswith(b"start,step_seconds,kind,"), (
            "the reader's folder is the present one"
        )


def _run(reader: dict[str, Any], recipe: Recipe) -> str:
    """Run a section's block, and before it the sections that the reader has not run yet; return its output."""
    ran = reader.setdefault("sections_that_ran", set())
    for earlier in RECIPES[: RECIPES.index(recipe)]:
        if earlier.heading not in ran:
            _run(reader, earlier)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(recipe.code, f"{PAGE.name}: {recipe.heading}", "exec"), reader)
    ran.add(recipe.heading)
    return said.getvalue()
