"""`aliquot serve --hub`: its message about the settings that are missing."""

from __future__ import annotations

import os
import sys

import pytest

from jupyter_aliquot.gateway.cli.app import main

from .test_hub_service import ENVIRONMENT


def test_outside_a_hub_it_names_the_variables_that_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--hub"])
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert all(name in said for name in ENVIRONMENT)
    assert "docs/reference/hub-identity.md" in said


def test_without_jupyterhub_it_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    ours = [
        name for name in sys.modules if name.startswith("jupyter_aliquot.gateway.hub_") or name.endswith(".hub_app")
    ]
    for name in [*ours, *(name for name in sys.modules if name.partition(".")[0] == "jupyterhub")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jupyterhub", None)
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--hub"])
    assert ended.value.code == 1
    assert "pip install jupyterhub" in capsys.readouterr().err
    assert "JUPYTERHUB_API_TOKEN" not in os.environ
