"""The tenures of this gateway's grants, in a file that outlives it."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.scheduling.ledger import LedgerSnapshot
from jupyter_aliquot.gateway.scheduling.lending.tenure import Tenure, tenure_of
from jupyter_aliquot.gpu_hook.base.files import replace_file

# What waits for the disk is written once for all changes within this time.
_GATHER_SECONDS = 0.2


class Tenures:
    """The file. ``path`` None: a restart forgets them, and kernels count as granted when they were requested."""

    def __init__(self, path: Path | None, clock: Clock, log: logging.Logger) -> None:
        self._path = path
        self._clock = clock
        self._log = log
        self._offset = clock.wall() - clock.now()
        self._found = self._read()
        self._noted: Mapping[str, Tenure] = self._found
        self._saving: asyncio.Task[None] | None = None

    def of(self, kernel_id: str) -> Tenure | None:
        """Return what an earlier gateway knew of a kernel's grant."""
        return self._found.get(kernel_id)

    def note(self, ledger: LedgerSnapshot) -> None:
        """Note the grants. Called after each cycle of admission."""
        noted = {kernel_id: tenure_of(holding, self._offset) for kernel_id, holding in ledger.holdings.items()}
        if self._path is None or noted == self._noted:
            return
        self._noted = noted
        if self._saving is None or self._saving.done():
            self._saving = asyncio.get_running_loop().create_task(self._save(self._path), name="aliquot-tenures")

    async def flush(self) -> None:
        """Wait until all is on disk."""
        if self._saving is not None:
            await asyncio.shield(self._saving)

    async def _save(self, path: Path) -> None:
        written: Mapping[str, Tenure] | None = None
        while written is not self._noted:
            await self._clock.sleep(_GATHER_SECONDS)
            written = self._noted
            grants = {kernel_id: asdict(one) for kernel_id, one in written.items()}
            try:
                # Not durable: kernels do not outlive a power cut.
                text = json.dumps({"version": 1, "grants": grants})
                await asyncio.to_thread(replace_file, path, text, is_durable=False)
            except OSError as error:
                self._log.error("tenures=not_saved path=%s reason=%s", path, error)

    def _read(self) -> dict[str, Tenure]:
        if self._path is None:
            return {}
        try:
            told = json.loads(self._path.read_bytes())["grants"]
            return {str(kernel_id): _tenure(one) for kernel_id, one in told.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            self._log.error("tenures=unreadable path=%s reason=%r", self._path, error)
            return {}


def _tenure(record: Mapping[str, Any]) -> Tenure:
    granted_at = float(record["granted_at"])
    if not math.isfinite(granted_at):
        raise ValueError(f"granted_at {granted_at}")
    passed = record["passed"]
    if not isinstance(passed, list):
        raise TypeError(f"passed {passed!r}")
    return Tenure(granted_at, tuple(str(one) for one in passed), str(record["left_for"]))
