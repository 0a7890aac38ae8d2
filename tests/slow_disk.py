"""A disk on which files are replaced when a test allows it."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

PATIENCE_SECONDS = 60.0


class SlowDisk:
    """Stands in for ``os.replace`` where the target is in ``folder``."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        # Set: writes pass. The second event is set as soon as one write has come to the gate.
        self.gate, self.reached = threading.Event(), threading.Event()
        self.gate.set()
        self.replaced: list[str] = []
        self._replace = os.replace
        monkeypatch.setattr(os, "replace", self._slowly)

    def stop(self) -> None:
        self.gate.clear()
        self.reached.clear()

    def _slowly(self, source: Any, target: Any) -> None:
        if Path(target).parent == self.folder:
            self.reached.set()
            assert self.gate.wait(PATIENCE_SECONDS)
            self.replaced.append(Path(target).name)
        self._replace(source, target)
