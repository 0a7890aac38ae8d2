"""A JSON file of what a restart of the gateway may lose without harm: written late, and never durably."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gpu_hook.base.files import replace_file

# What waits for the disk is written once for all changes within this time.
_GATHER_SECONDS = 0.2
_UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
_T = TypeVar("_T")


class KeptFile:
    """The file. ``path`` None: a restart forgets it. ``name`` is its word in the log."""

    def __init__(self, path: Path | None, name: str, clock: Clock, log: logging.Logger) -> None:
        self._path = path
        self._name = name
        self._clock = clock
        self._log = log
        self._record: Mapping[str, Any] = {}
        self._saving: asyncio.Task[None] | None = None

    @property
    def is_kept(self) -> bool:
        return self._path is not None

    def read(self, convert: Callable[[Mapping[str, Any]], _T], default: _T) -> _T:
        """Return what *convert* makes of the file; *default* where there is none, or none that can be read."""
        if self._path is None:
            return default
        try:
            return convert(json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            return default
        except _UNREADABLE as error:
            self._log.error("%s=unreadable path=%s reason=%r", self._name, self._path, error)
            return default

    def write(self, record: Mapping[str, Any]) -> None:
        """Write the record soon, and only the last one of several. Called in the event loop."""
        self._record = record
        if self._path is not None and (self._saving is None or self._saving.done()):
            save = self._save(self._path)
            self._saving = asyncio.get_running_loop().create_task(save, name=f"aliquot-{self._name}")

    async def flush(self) -> None:
        """Wait until all is on disk."""
        if self._saving is not None:
            await asyncio.shield(self._saving)

    async def _save(self, path: Path) -> None:
        written: Mapping[str, Any] | None = None
        while written is not self._record:
            await self._clock.sleep(_GATHER_SECONDS)
            written = self._record
            try:
                await asyncio.to_thread(_replace, path, written)
            except OSError as error:
                self._log.error("%s=not_saved path=%s reason=%s", self._name, path, error)


def _replace(path: Path, record: Mapping[str, Any]) -> None:
    """Write the record, which may be of a thousand kernels. Blocks. Raises OSError."""
    replace_file(path, json.dumps(record), is_durable=False)
