"""Writes of kernels' records, by one thread: the loop waits for no disk, and a kernel's words reach it in their order.

A state folder may lie on a disk of a network. What the caller does next may need the record: `written` waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from .records import KernelRecord, KernelRecords

_THREAD = "aliquot-records"
# A disk that takes longer is reported, as one that fails is, and keeps no kernel from starting or ending.
_PATIENCE_SECONDS = 5.0


class RecordQueue:
    """Called on the loop. A word that waits is replaced by a later one of the same kernel, so that few ever wait."""

    def __init__(
        self, records: KernelRecords, log: logging.Logger, patience_seconds: float = _PATIENCE_SECONDS
    ) -> None:
        self._records = records
        self._log = log
        self._patience_seconds = patience_seconds
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=_THREAD)
        # Guards what the thread takes: the last word of each kernel, None for a record that is to go.
        self._lock = threading.Lock()
        self._waiting: dict[str, KernelRecord | None] = {}
        # Used on the loop alone: the write of each kernel that was asked for last.
        self._writes: dict[str, Future[None]] = {}
        self._is_frozen = False
        self._late = ""

    @property
    def problem(self) -> str:
        """Why a record may not be found again; empty when all is well."""
        is_late = any(not write.done() for write in self._writes.values())
        return self._records.problem or (self._late if is_late else "")

    def write(self, record: KernelRecord) -> None:
        """Replace a kernel's record soon."""
        self._put(record.kernel_id, record)

    def remove(self, kernel_id: str) -> None:
        """Forget a kernel soon. Idempotent."""
        self._put(kernel_id, None)

    async def written(self, kernel_id: str) -> None:
        """Wait until what was asked for this kernel is on the disk, has failed, or takes too long."""
        write = self._writes.get(kernel_id)
        if write is not None:
            await self._wait({write}, f"the record of kernel {kernel_id}")

    async def close(self) -> None:
        """Wait for what was asked for, and let the thread end. From now on nothing is written."""
        self.freeze()
        await self._wait(set(self._writes.values()), f"{len(self._writes)} records")
        self._thread.shutdown(wait=False)

    def freeze(self) -> None:
        """Take no further word: the server stops, and its kernels do not. What was asked for is written."""
        self._is_frozen = True

    def _put(self, kernel_id: str, record: KernelRecord | None) -> None:
        if self._is_frozen:
            return
        with self._lock:
            is_queued = kernel_id in self._waiting
            self._waiting[kernel_id] = record
        if is_queued:
            return
        for written in [one for one, write in self._writes.items() if write.done()]:
            del self._writes[written]
        self._writes[kernel_id] = self._thread.submit(self._write_next, kernel_id)

    def _write_next(self, kernel_id: str) -> None:
        """Called on the thread."""
        with self._lock:
            record = self._waiting.pop(kernel_id)
        if record is None:
            self._records.remove(kernel_id)
        else:
            self._records.write(record)

    async def _wait(self, writes: set[Future[None]], what: str) -> None:
        # asyncio.wait cancels nothing: the write outlives a caller that gives up.
        waits = {asyncio.wrap_future(write) for write in writes if not write.done()}
        if not waits:
            return
        _, late = await asyncio.wait(waits, timeout=self._patience_seconds)
        if late:
            self._late = f"{what} could not be written within {self._patience_seconds:g} s; the disk is slow"
            self._log.error("records=late reason=%s", self._late)
