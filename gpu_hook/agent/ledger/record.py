"""The record of one kernel on disk, grant.json: when it is written. What is in it is the kernel's matter."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from jupyter_aliquot.gpu_hook.agent.base.coalesced import Coalesced

from .journal import Entry, Tally, write_entry

log = logging.getLogger(__name__)

Tallies = tuple[tuple[Tally, ...], Tally]


class Record:
    """``snapshot`` makes what is to be written; ``tallies`` are those of the record that is there."""

    def __init__(self, folder: Path, snapshot: Callable[[], Entry], tallies: Tallies) -> None:
        self._folder = folder
        self._snapshot = snapshot
        self._tallies = tallies
        self._writing = Coalesced(self.write)

    def write(self) -> None:
        """Replace the file now: an answer follows that an agent after us must know of.

        A full file system costs the restart, not the kernel.
        """
        self._writing.withdraw()
        entry = self._snapshot()
        self._tallies = (entry.tallies, entry.host_tally)
        try:
            write_entry(self._folder, entry)
        except OSError as error:
            log.error("event=journal_failed kernel=%s error=%r", entry.reservation.kernel_id, str(error))

    def write_soon(self) -> None:
        """Replace the file once for all that changes in this turn of the event loop."""
        self._writing.soon()

    def keep(self, tallies: Tallies) -> None:
        """Write where the file has other tallies, or owes something."""
        if self._writing.is_due or self._tallies != tallies:
            self.write()

    def close(self) -> None:
        """Write no more. Idempotent."""
        self._writing.close()
