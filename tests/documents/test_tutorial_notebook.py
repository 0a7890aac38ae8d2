"""The tutorial's notebook is a copy to work on: its user changes nothing that git follows."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/tutorial/first-steps.md")


def named() -> set[str]:
    """Return the notebooks that the first pages tell to open."""
    return {found for page in PAGES for found in re.findall(r"[\w/]+\.ipynb", (ROOT / page).read_text())} - {
        "notebook.ipynb"
    }


def test_the_first_pages_name_a_notebook_that_git_ignores() -> None:
    assert named() == {"notebooks/quickstart.ipynb"}
    for path in named():
        assert subprocess.run(["git", "check-ignore", "-q", path], cwd=ROOT, check=False).returncode == 0, path


def test_make_lab_copies_it_once_and_leaves_a_copy_that_was_worked_on(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    asked = subprocess.run(["make", "-n", "lab"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert "cp examples/quickstart.ipynb notebooks/quickstart.ipynb" in asked
    copy = tmp_path / "notebooks" / "quickstart.ipynb"
    for text in ((ROOT / "examples" / "quickstart.ipynb").read_text(), "worked on"):
        subprocess.run(["make", "notebooks/quickstart.ipynb"], cwd=tmp_path, check=True, capture_output=True)
        assert copy.read_text() == text
        copy.write_text("worked on")
