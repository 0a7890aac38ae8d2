"""The scenes of the documents' pictures play in the pages of today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.soak(alone="a long browser test"), pytest.mark.timeout(1800)]
IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"


def test_every_picture_of_the_documents_can_be_taken_again(tmp_path: Path) -> None:
    """A process of its own has a browser of its own: Playwright starts once in a process."""
    command = [sys.executable, str(Path(__file__).with_name("take_screenshot.py")), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1700, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in IMAGES.glob("*.png")}
