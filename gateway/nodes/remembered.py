"""The names of the nodes that have registered, in a file that outlives the gateway.

A restarted gateway thus knows which nodes it does not see yet.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from pathlib import Path

from jupyter_aliquot.gpu_hook.base.files import replace_file, set_aside

# A machine that was taken away is forgotten by a restart after so long.
FORGOTTEN_SECONDS = 7 * 86400.0


class RememberedNodes:
    """The file. ``path`` None: nothing is remembered."""

    def __init__(self, path: Path | None, log: logging.Logger) -> None:
        self._path = path
        self._log = log
        # A write that its caller no longer awaits may still run.
        self._writing = threading.Lock()

    def read(self, now: float) -> dict[str, float]:
        """Return the nodes of the last days, each with the moment when it was last seen."""
        if self._path is None:
            return {}
        try:
            told = json.loads(self._path.read_bytes())["nodes"]
            nodes = {str(name): float(seen) for name, seen in told.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            self._log.error("nodes=unreadable path=%s reason=%s", self._path, error)
            self._set_aside(self._path)
            return {}
        return {name: seen for name, seen in nodes.items() if now - seen < FORGOTTEN_SECONDS}

    def write(self, nodes: Mapping[str, float]) -> None:
        """Replace the file. A disk that is full is logged: the nodes register again anyway. Blocks."""
        if self._path is None:
            return
        try:
            with self._writing:
                replace_file(self._path, json.dumps({"version": 1, "nodes": dict(nodes)}))
        except OSError as error:
            self._log.error("nodes=not_written path=%s reason=%s", self._path, error)

    def _set_aside(self, path: Path) -> None:
        try:
            set_aside(path)
        except OSError as error:
            self._log.error("nodes=not_set_aside path=%s reason=%s", path, error)
