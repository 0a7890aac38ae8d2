"""The check of a release finds what is missing, what is too much, and what does not install."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import release_check  # noqa: E402
from machines import systems, trial  # noqa: E402

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def _row(names: list[str], size: int = 10) -> release_check.Row:
    return release_check.contents("x.whl", names, size, 100, (r"a/py\.typed", r".*/LICENSE"), release_check.FORBIDDEN)


def test_a_whole_archive_holds() -> None:
    assert _row(["a/py.typed", "a/module.py", "x.dist-info/LICENSE"]).problem == ""


@pytest.mark.parametrize(
    ("names", "size", "problem"),
    [
        (["x.dist-info/LICENSE"], 10, r"nothing is named a/py\.typed"),
        (["a/py.typed", "b/LICENSE", "tests/test_x.py"], 10, "tests/test_x.py must not be in it"),
        (["a/py.typed", "b/LICENSE", "a/hook.c"], 10, "a/hook.c must not be in it"),
        (["a/py.typed", "b/LICENSE", ".env"], 10, ".env must not be in it"),
        (["a/py.typed", "b/LICENSE"], 101, "it has 101 bytes; the most is 100"),
    ],
)
def test_what_is_wrong_with_an_archive_is_said(names: list[str], size: int, problem: str) -> None:
    assert _row(names, size).problem == problem


def test_a_wheel_that_does_not_install_is_a_row_that_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It makes environments whose pip is this environment's: to install pip into a new one takes seconds.
    python, pip = tmp_path / "python", tmp_path / "pip"
    pip.write_text(f'#!/bin/sh\nexec {sys.executable} -m pip "$@"\n')
    python.write_text(f"#!/bin/sh\nmkdir -p $3/bin\ncp {pip} $3/bin\n")
    for program in (python, pip):
        program.chmod(0o700)
    monkeypatch.setattr(release_check, "find_python", lambda _: str(python))
    wheel = tmp_path / "jupyter_aliquot-0.1.0-py3-none-any.whl"
    wheel.write_text("not an archive")
    said: list[str] = []
    assert not release_check.show([release_check.try_in("3.x", wheel)], said.append)
    assert "NO" in said[0]
    assert "it does not install" in said[0]


def test_a_python_that_is_not_there_is_left_out_and_said() -> None:
    row = release_check.try_in("3.99", Path("x.whl"))
    assert (row.found, row.problem) == ("not tried: this machine has no such Python", "")


def test_the_clean_systems_have_each_python_that_is_supported() -> None:
    assert tuple(one.python for one in systems.SYSTEMS) == release_check.PYTHONS
    assert {"gcc", "make", "python3-venv"} <= set(trial.needed_packages()), "what the README tells a newcomer"
    assert trial.own_lab_command() == "pip install '.[lab,demo]'", "the README's, as it prints it"


def test_a_system_that_cannot_be_made_is_a_row_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems, "HOME", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    for found in (trial.try_readme(systems.SYSTEMS[0]), trial.try_wheel(systems.SYSTEMS[1], Path("x.whl"), (), {})):
        assert found.found.startswith("not tried: mmdebstrap is not installed")
        assert found.problem == ""


def test_the_citation_has_the_version_and_the_licence_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])


@pytest.mark.parametrize(
    "form", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=lambda path: path.name
)
def test_a_form_of_an_issue_has_what_such_forms_need(form: Path) -> None:
    fields = yaml.safe_load(form.read_text())
    assert {"name", "description", "body"} <= set(fields)
    assert all("label" in field["attributes"] for field in fields["body"])
