"""The tenures of this gateway's grants, and the queue's memory, in files that outlive it; and measured loads."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.scheduling.ledger import Holding, LedgerSnapshot
from jupyter_aliquot.gateway.scheduling.lending.tenure import Tenure, tenure_of

from .kept_file import KeptFile
from .load_memory import LoadMemory
from .queue_memory import QueueMemory


class Tenures:
    """The file. ``path`` None: a restart forgets them, and kernels count as granted when they were requested."""

    def __init__(self, path: Path | None, clock: Clock, log: logging.Logger) -> None:
        # Not durable: kernels do not outlive a power cut.
        self._file = KeptFile(path, "tenures", clock, log)
        self.queue = QueueMemory(path and path.with_name("queue-memory.json"), clock, log)
        self.loads = LoadMemory()
        self._offset = clock.wall() - clock.now()
        nothing: dict[str, Tenure] = {}
        self._found = self._file.read(_tenures, nothing)
        # Of the last cycle: among a thousand grants, few change between two.
        self._holdings: Mapping[str, Holding] = {}
        self._noted = dict(self._found)
        self._records: dict[str, dict[str, Any]] = {}

    def of(self, kernel_id: str) -> Tenure | None:
        """Return what an earlier gateway knew of a kernel's grant."""
        return self._found.get(kernel_id)

    def note(self, ledger: LedgerSnapshot) -> None:
        """Note the grants. Called after each cycle of admission."""
        self.queue.note(ledger)
        self.loads.note(ledger)
        before, self._holdings = self._holdings, ledger.holdings
        if not self._file.is_kept or ledger.holdings is before:
            return
        changed = [held for one, held in ledger.holdings.items() if before.get(one) is not held]
        has_news = False
        for one in self._noted.keys() - ledger.holdings.keys():
            del self._noted[one]
            self._records.pop(one, None)
            has_news = True
        for held in changed:
            one, tenure = held.grant.kernel_id, tenure_of(held, self._offset)
            if self._noted.get(one) != tenure or one not in self._records:
                self._noted[one], self._records[one] = tenure, asdict(tenure)
                has_news = True
        if has_news:
            self._file.write({"version": 1, "grants": dict(self._records)})

    async def flush(self) -> None:
        """Wait until all is on disk."""
        await self._file.flush()
        await self.queue.flush()


def _tenures(record: Mapping[str, Any]) -> dict[str, Tenure]:
    return {str(kernel_id): _tenure(one) for kernel_id, one in record["grants"].items()}


def _tenure(record: Mapping[str, Any]) -> Tenure:
    granted_at = float(record["granted_at"])
    if not math.isfinite(granted_at):
        raise ValueError(f"granted_at {granted_at}")
    passed = record["passed"]
    if not isinstance(passed, list):
        raise TypeError(f"passed {passed!r}")
    return Tenure(granted_at, tuple(str(one) for one in passed), str(record["left_for"]))
