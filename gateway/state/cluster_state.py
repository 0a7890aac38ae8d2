"""A gateway's state that its next replica needs, kept in the cluster: records of kernels, and notebooks' sessions.

Running kernels are found by their pods. These documents tell of those that wait, of the names of
notebooks, and of shares. History stays with the replica that measured it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections.abc import Callable
from typing import Any

from jupyter_aliquot.gpu_hook.waiting import end_task
from jupyter_aliquot.provisioner.kubernetes.client import ClusterError
from jupyter_aliquot.provisioner.kubernetes.documents import Documents

from .records import KernelRecord, KernelRecords, RecordError, read_record, written

_LOOK_SECONDS = 0.2
_COLUMNS = ("session_id", "path", "name", "type", "kernel_id")


class ClusterRecords(KernelRecords):
    """The records of kernels in the cluster. Each call waits for its API."""

    def __init__(self, documents: Documents, log: logging.Logger) -> None:
        super().__init__(None, log)
        self._documents = documents
        self._cluster_log = log

    def write(self, record: KernelRecord) -> None:
        try:
            self._documents.write(record.kernel_id, written(record))
        except ClusterError as error:
            self.report(f"the record of kernel {record.kernel_id} cannot be written: {error}")
        else:
            self.problem = ""

    def remove(self, kernel_id: str) -> None:
        try:
            self._documents.remove(kernel_id)
        except ClusterError as error:
            self.report(f"the record of kernel {kernel_id} cannot be removed: {error}")

    def read(self) -> tuple[KernelRecord, ...]:
        records = []
        for kernel_id, text in self._documents.read().items():
            try:
                records.append(read_record(text, kernel_id))
            except RecordError as error:
                self._cluster_log.error("record=%s unreadable reason=%s; it is left as it is", kernel_id, error)
        return tuple(sorted(records, key=lambda record: record.queued_at))


class SessionMirror:
    """The rows of the table of sessions, in the cluster. *connection* returns the table's."""

    def __init__(self, documents: Documents, connection: Callable[[], sqlite3.Connection], log: logging.Logger) -> None:
        self._documents = documents
        self._connection = connection
        self._log = log
        self._told: dict[str, str] = {}
        self._seen = -1
        self._keeping: asyncio.Task[None] | None = None

    async def restore(self) -> None:
        """Take the rows of the replica before, and follow changes from now on. Raises ClusterError."""
        self._told = await asyncio.to_thread(self._documents.read)
        self._connection().execute(f"CREATE TABLE IF NOT EXISTS session ({', '.join(_COLUMNS)})")
        marks = ", ".join("?" for _ in _COLUMNS)
        for text in self._told.values():
            row: dict[str, Any] = json.loads(text)
            values = [row.get(name) for name in _COLUMNS]
            self._connection().execute(f"INSERT OR REPLACE INTO session VALUES ({marks})", values)
        self._keeping = asyncio.create_task(self._keep(), name="aliquot-sessions")

    async def stop(self) -> None:
        """Tell the last changes. Idempotent."""
        keeping, self._keeping = self._keeping, None
        if keeping is not None:
            await end_task(keeping)
            await self._look()

    async def _keep(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _look(self) -> None:
        changes = self._connection().total_changes
        if changes == self._seen:
            return
        found = self._connection().execute(f"SELECT {', '.join(_COLUMNS)} FROM session").fetchall()
        rows = {str(row[0]): json.dumps(dict(zip(_COLUMNS, tuple(row), strict=True))) for row in found}
        try:
            await asyncio.to_thread(self._tell, rows)
        except ClusterError as error:
            self._log.warning("sessions=later reason=%s", error)
        else:
            self._seen = changes

    def _tell(self, rows: dict[str, str]) -> None:
        """Tell the difference to what was told. Raises ClusterError."""
        for session_id in self._told.keys() - rows.keys():
            self._documents.remove(session_id)
            del self._told[session_id]
        for session_id, text in rows.items():
            if self._told.get(session_id) != text:
                self._documents.write(session_id, text)
                self._told[session_id] = text
