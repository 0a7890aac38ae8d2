"""Agreement of docs/reference/cli.md with the help of the commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from traitlets.utils.importstring import import_item

from jupyter_aliquot.gateway.cli.app import COMMANDS

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/reference/cli.md"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_every_command_is_documented(name: str) -> None:
    command = import_item(COMMANDS[name][0])
    section = PAGE.read_text().split(f"\n## aliquot {name}\n", 1)[1].split("\n## ", 1)[0]
    missing = [option for option in [*command.flags, *command.aliases] if f"--{option}" not in section]
    assert not missing or name in ("agent", "relay")
    assert f"usage: aliquot {name}" in section


def test_every_option_of_the_agent_is_documented() -> None:
    import argparse

    from jupyter_aliquot.gpu_hook.agent.settings import add_arguments

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    section = PAGE.read_text().split("\n## aliquot agent\n", 1)[1].split("\n## ", 1)[0]
    options = [word for word in parser.format_usage().replace("[", " ").split() if word.startswith("--")]
    assert options
    assert not [option for option in options if option not in section]


def test_the_options_of_the_agent_that_few_need_stand_below_the_others() -> None:
    section = PAGE.read_text().split("\n## aliquot agent\n", 1)[1].split("\n## ", 1)[0]
    often, *seldom = re.split(r"\n(?=advanced: )", section.split("\noptions:\n", 1)[1])
    assert len(seldom) == 4, "memory, GPU time, turns, copies"
    assert "--overcommit auto|RATIO" in often
    for option in ("--context-slack", "--lease-hold", "--swap-ring", "--compute-period"):
        assert f"\n  {option}" not in often
