"""Each command that a page prints is run, covered by a test, or listed with the reason."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jupyter_aliquot.gpu_hook.agent.settings import add_arguments

sys.path.insert(0, str(Path(__file__).parent))
if TYPE_CHECKING:
    from tests.documents.command_table import COVERED, LISTED, PARSED, RUN, RUN_AGENTS, RUN_ALONE, RUN_TOGETHER
    from tests.documents.printed_commands import (
        LANGUAGES,
        PAGES,
        ROOT,
        blocks_and_text,
        commands_of_page,
        is_command,
        printed,
    )
else:
    from command_table import COVERED, LISTED, PARSED, RUN, RUN_AGENTS, RUN_ALONE, RUN_TOGETHER
    from printed_commands import LANGUAGES, PAGES, ROOT, blocks_and_text, commands_of_page, is_command, printed

PRINTED = printed()


def test_every_printed_command_is_in_exactly_one_table_and_no_table_has_another() -> None:
    known = [*RUN, *RUN_AGENTS, *RUN_ALONE, *RUN_TOGETHER, *PARSED, *COVERED, *LISTED]
    assert {command: PRINTED[command] for command in PRINTED if command not in known} == {}, "in no table"
    assert sorted(set(known) - set(PRINTED)) == [], "on no page any more"
    assert sorted(command for command in set(known) if known.count(command) > 1) == [], "in two tables"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_block_says_what_it_is_and_none_hides_a_command_as_text(page: Path) -> None:
    blocks, _ = blocks_and_text(page.name, page.read_text())
    assert [block.line for block in blocks if block.language not in LANGUAGES] == []
    texts = [block for block in blocks if block.language == "text"]
    assert [block.line for block in texts for line in block.text.splitlines() if is_command(line)] == []
    for block in blocks:
        if block.language == "python":
            ast.parse(
                re.sub(r"^   ", "", block.text, flags=re.MULTILINE) if block.text.startswith("   ") else block.text
            )


@pytest.mark.parametrize("test", sorted(set(COVERED.values())))
def test_the_test_that_covers_a_command_exists(test: str) -> None:
    path, _, name = test.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


@pytest.mark.parametrize("command", sorted([*LISTED, *COVERED]))
def test_a_command_that_is_not_run_is_whole_shell(command: str) -> None:
    checked = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("command", [word for word in PRINTED if word.startswith("make ")])
def test_a_printed_make_target_exists_and_takes_its_arguments(command: str) -> None:
    words = shlex.split(command)[1:]
    tried = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert tried.returncode == 0, tried.stderr
    assert [word for word in words if word.startswith("ARGS=") and word[5:] not in tried.stdout] == []


@pytest.mark.parametrize("command", [word for word in PRINTED if word.startswith("aliquot agent")])
def test_the_agents_parser_knows_the_printed_options(command: str) -> None:
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    parser.parse_args([word for word in shlex.split(command)[2:] if word != "--help"])


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("```sh\naliquot x   # why\n\nB=1 make y \\\n  z\n```\n", ["aliquot x", "B=1 make y \\\n  z"]),
        ("```console\n$ aliquot x\n✓ said\n```\n", ["aliquot x"]),
        ("```text\nno command\n```\nrun `make y` or `word z`", ["make y"]),
        ("   ```sh\nfor a in b; do\n  make $a\ndone\n   ```", ["for a in b; do\n  make $a\ndone"]),
    ],
)
def test_commands_are_found(text: str, want: list[str]) -> None:
    assert commands_of_page("page", text) == want
