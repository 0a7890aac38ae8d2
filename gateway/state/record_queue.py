"""A queue of writes to kernels' records, done by one thread: the event loop waits for no disk.

The writes of a kernel stay in their order. A state folder may lie on a network disk. A caller whose
next step needs the record waits with `written`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from .records import KernelRecord, KernelRecords

_THREAD = "aliquot-records"
# A slower disk is reported, as one that fails is. It keeps no kernel from starting or ending.
_PATIENCE_SECONDS = 5.0


class RecordQueue:
    """Called on the event loop.

    A waiting write is replaced by a later one of the same kernel, so that few wait.
    """

    def __init__(
        self, records: KernelRecords, log: logging.Logger, patience_seconds: float = _PATIENCE_SECONDS
    ) -> None:
        self._records = records
        self._log = log
        self._patience_seconds = patience_seconds
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=_THREAD)
        # Guards the writes that the thread takes: the last one of each kernel, None to remove the
        # record.
        self._lock = threading.Lock()
        self._waiting: dict[str, KernelRecord | None] = {}
        # Used on the event loop alone: the last write of each kernel.
        self._writes: dict[str, Future[None]] = {}
        self._is_frozen = False
        self._late = ""

    @property
    def problem(self) -> str:
        """The reason why a record may be missing after a restart; empty when all is well."""
        is_late = any(not write.done() for write in self._writes.values())
        return self._records.problem or (self._late if is_late else "")

    def write(self, record: KernelRecord) -> None:
        """Replace a kernel's record soon."""
        self._put(record.kernel_id, record)

    def remove(self, kernel_id: str) -> None:
        """Forget a kernel soon. Idempotent."""
        self._put(kernel_id, None)

    async def written(self, kernel_id: str) -> None:
        """Wait until the last write of this kernel is on disk, has failed, or takes too long."""
        write = self._writes.get(kernel_id)
        if write is not None:
            await self._wait({write}, f"the record of kernel {kernel_id}")

    async def close(self) -> None:
        """Wait for the writes, and end the thread. Nothing is written from now on."""
        self.freeze()
        await self._wait(set(self._writes.values()), f"{len(self._writes)} records")
        self._thread.shutdown(wait=False)

    def freeze(self) -> None:
        """Take no further writes: the server stops, and its kernels do not.

        Earlier writes are done.
        """
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
