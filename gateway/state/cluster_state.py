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

from jupyter_aliquot.gateway.base.tasks import until_answered
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
        self._problem = ""
        self._keeping: asyncio.Task[None] | None = None

    async def restore(self) -> None:
        """Take the rows of the replica before, and follow changes from now on. Raises ClusterError.

        Rows that this replica has from an earlier time are dropped: another one led since. While the API
        is away the answer waits.
        """
        told = await until_answered("sessions", self._documents.read, asyncio.sleep, self._log)
        rows = {key: row for key, text in told.items() if (row := self._row(key, text)) is not None}
        connection, marks = self._connection(), ", ".join("?" for _ in _COLUMNS)
        connection.execute(f"CREATE TABLE IF NOT EXISTS session ({', '.join(_COLUMNS)})")
        connection.execute("DELETE FROM session")
        connection.executemany(f"INSERT INTO session VALUES ({marks})", rows.values())
        self._told = {key: told[key] for key in rows}
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

    def _row(self, key: str, text: str) -> list[str | None] | None:
        try:
            told: dict[str, Any] = json.loads(text)
            row = [told[name] for name in _COLUMNS]
        except (ValueError, KeyError, TypeError) as error:
            self._log.error("session=%s unreadable reason=%r; it is left as it is", key, error)
            return None
        return [None if one is None else str(one) for one in row]

    async def _look(self) -> None:
        """Tell what changed. A failure is logged once, and the next look tells it."""
        try:
            await self._tell_changes()
            self._problem = ""
        except Exception as error:
            if str(error) != self._problem:
                trace = None if isinstance(error, ClusterError) else error
                self._log.warning("sessions=later reason=%s", error, exc_info=trace)
            self._problem = str(error)

    async def _tell_changes(self) -> None:
        changes = self._connection().total_changes
        if changes == self._seen:
            return
        found = self._connection().execute(f"SELECT {', '.join(_COLUMNS)} FROM session").fetchall()
        rows = {str(row[0]): json.dumps(dict(zip(_COLUMNS, tuple(row), strict=True))) for row in found}
        await asyncio.to_thread(self._tell, rows)
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
