"""Test the text that pages print to be pasted: configuration, systemd units, options of servers."""

from __future__ import annotations

import logging
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jupyter_server.gateway.gateway_client import GatewayClient
from jupyter_server.serverapp import ServerApp
from traitlets import TraitError
from traitlets.config import Application, Config, Configurable
from traitlets.utils.importstring import import_item

from jupyter_aliquot.gateway.accounting.config import Accounting
from jupyter_aliquot.gateway.auth.identity import AliquotIdentityProvider
from jupyter_aliquot.gateway.config import Aliquot
from jupyter_aliquot.gateway.containers.holders import HolderPods
from jupyter_aliquot.gateway.containers.host_limits import HostLimits
from jupyter_aliquot.gateway.containers.images import ImageCatalogue
from jupyter_aliquot.gateway.containers.pods import KernelPods
from jupyter_aliquot.gateway.culling.policy import Culling
from jupyter_aliquot.gateway.folders.shared_folder import SharedFolders
from jupyter_aliquot.gateway.hub.settings import HubSettings

sys.path.insert(0, str(Path(__file__).parent))
if TYPE_CHECKING:
    from tests.documents.command_table import PARSED
    from tests.documents.printed_commands import PAGES, ROOT, Block, blocks_and_text, printed
else:
    from command_table import PARSED
    from printed_commands import PAGES, ROOT, Block, blocks_and_text, printed

# tests/hub runs the Hub's guide: its blocks need a Hub's own configuration around them.
_HUB = "docs/how-to/jupyterhub.md"
_CLASSES: dict[str, type[Configurable]] = {
    known.__name__: known
    for known in (
        Accounting,
        Aliquot,
        AliquotIdentityProvider,
        Culling,
        GatewayClient,
        HostLimits,
        ImageCatalogue,
        HolderPods,
        KernelPods,
        ServerApp,
        SharedFolders,
    )
}
_EXTRAS = re.compile(r"\.\[([a-z,]+)\]")


def _blocks(language: str) -> list[Block]:
    pages = [path for path in PAGES if path.relative_to(ROOT).as_posix() != _HUB]
    found = [block for path in pages for block in blocks_and_text(path.name, path.read_text())[0]]
    return [block for block in found if block.language == language]


def _load(config: Config) -> None:
    """Make each configured class with its section.

    Traitlets only warns of an option that does not exist.
    """
    for name, section in config.items():
        known = _CLASSES[name]
        assert sorted(set(section) - set(known.class_trait_names(config=True))) == [], f"no option of {name}"
        made = known(config=Config({name: section}))
        for option in section:
            getattr(made, option)


_SETTINGS = [block for block in _blocks("python") if re.search(r"^\s*c\.", block.text, re.MULTILINE)]


@pytest.mark.parametrize("block", _SETTINGS, ids=lambda block: f"{block.page}:{block.line}")
def test_a_printed_configuration_loads(block: Block) -> None:
    config = Config()
    # The page omits the rest of the hash.
    text = re.sub(r"([0-9a-f]{6})…", lambda found: found[1].ljust(64, "0"), textwrap.dedent(block.text))
    exec(compile(text, block.page, "exec"), {"c": config})
    assert config
    _load(config)


_ARGUMENTS = [block for block in _blocks("python") if re.match(r"\s*sizes=", block.text)]


@pytest.mark.parametrize("block", _ARGUMENTS, ids=lambda block: block.page)
def test_printed_arguments_fit_into_the_hubs_configuration_that_is_installed(block: Block) -> None:
    shipped = (ROOT / "deploy/systemd/jupyterhub_config.py").read_text().partition("configure(\n    c,")[2]
    standing, printed = (eval(f"dict({text.rstrip().removesuffix(')')})") for text in (shipped, block.text))
    settings = HubSettings(**{**standing, **printed})
    assert set(standing["gateway_options"]) <= set(settings.gateway_options), "they would be lost"
    app = ServerApp()
    app.parse_command_line(list(settings.gateway_options))
    _load(Config(app.cli_config))


@pytest.mark.parametrize(("option", "value"), [("user_limit_gpu", 1.0), ("user_limit_gpus", "one"), ("presets", ["9"])])
def test_a_configuration_that_no_page_may_print_does_not_load(option: str, value: object) -> None:
    with pytest.raises((AssertionError, TraitError)):
        _load(Config({"Aliquot": {option: value}}))


@pytest.mark.parametrize("command", PARSED)
def test_a_printed_server_knows_its_options(command: str) -> None:
    app: Application = import_item(PARSED[command].replace(":", "."))()
    app.parse_command_line(shlex.split(command)[2:])
    assert app.extra_args == []
    if "--debug" in command:
        assert app.log_level == logging.DEBUG
        return
    config = Config(app.cli_config)
    assert set(config) == ({"GatewayClient"} if "gateway" in command.lower() else set())
    _load(config)


def test_the_shipped_units_are_what_systemd_understands(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    program = tmp_path / "aliquot"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    shutil.copytree(ROOT / "deploy" / "systemd", tmp_path, dirs_exist_ok=True)
    units = sorted(tmp_path.glob("*.service"))
    assert len(units) == 4
    for unit in units:
        unit.write_text(re.sub("/opt/aliquot/bin/[a-z]+", str(program), unit.read_text()))
    checked = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    # It ends with 0 also where it ignores a key that it does not know.
    assert [line for line in checked.stderr.splitlines() if "aliquot" in line or "jupyterhub" in line] == []
    assert checked.returncode == 0, checked.stderr


def test_printed_extras_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    extras = re.findall(r"^([a-z]+) = \[", project.partition("[project.optional-dependencies]")[2], re.MULTILINE)
    named = {extra for command in printed() for found in _EXTRAS.findall(command) for extra in found.split(",")}
    assert named == {"lab", "demo", "hub", "mcp"}
    assert named <= set(extras)


@pytest.mark.parametrize("command", [command for command in printed() if "pytest " in command])
def test_printed_tests_exist(command: str) -> None:
    paths = [word for word in shlex.split(command) if word.startswith("tests/")]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert paths
