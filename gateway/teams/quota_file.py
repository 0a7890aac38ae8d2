"""The quota file in force, which is read again when it changes.

A file with problems changes nothing: the last good one stays in force, and its text is kept for the
next start. Problems stand in the log, and in the status until the file is right.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.base.tasks import Recurring
from jupyter_aliquot.gpu_hook.base.files import replace_file

from .reading import QuotaFileError, read_quotas
from .values import Quotas
from .yaml_nodes import Problem

_LOOK_SECONDS = 2.0
_KEPT = "quota-file.yaml"

# The size and times of a file by which a change is seen; None: the file cannot be read.
_Mark = tuple[int, int, int] | None


class QuotaFile:
    """The quotas of one file. ``quotas`` is None where no file is set.

    ``problem`` is why the present file is not in force; empty while it is.
    """

    def __init__(self, path: Path | None, kept_in: Path | None, clock: Clock, log: logging.Logger) -> None:
        self.path = path
        self.quotas: Quotas | None = None
        self.problem = ""
        self._kept = None if kept_in is None else kept_in / _KEPT
        self._log = log
        self._mark: _Mark = None
        self._listeners: list[Callable[[], None]] = []
        self._watch = Recurring("quota-file", self._look, _LOOK_SECONDS, clock, log)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call *listener* after each change of the quotas in force."""
        self._listeners.append(listener)

    def open(self) -> None:
        """Read the file at the gateway's start.

        A file with problems is replaced by the last good one. Raises QuotaFileError without such.
        """
        if self.path is None:
            return
        try:
            self.reload()
        except QuotaFileError:
            kept = self._read_kept()
            if kept is None:
                raise
            self.quotas = kept
            self._log.warning("quota_file=%s in_force=last_good", self.path)

    def start(self) -> None:
        if self.path is not None:
            self._watch.start()

    async def stop(self) -> None:
        await self._watch.stop()

    def reload(self) -> Quotas | None:
        """Read the file now, and put it in force. Raises QuotaFileError, and changes nothing then."""
        return None if self.path is None else self._apply(*_read(self.path))

    async def reload_soon(self) -> Quotas | None:
        """Do the same beside the event loop: the file may lie on a network disk."""
        return None if self.path is None else self._apply(*await asyncio.to_thread(_read, self.path))

    def _apply(self, mark: _Mark, content: str | OSError | ValueError) -> Quotas:
        self._mark = mark
        if not isinstance(content, str):
            why = content.strerror if isinstance(content, OSError) else "it is not UTF-8"
            raise self._refused(QuotaFileError(str(self.path), [Problem(0, f"The file cannot be read: {why}")]))
        try:
            quotas = read_quotas(content, str(self.path))
        except QuotaFileError as error:
            raise self._refused(error) from None
        has_changed, self.quotas, self.problem = quotas != self.quotas, quotas, ""
        if has_changed:
            self._log.info("quota_file=%s in_force=yes teams=%d", self.path, len(quotas.teams))
            self._keep(content)
            for listener in self._listeners:
                listener()
        return quotas

    def _refused(self, error: QuotaFileError) -> QuotaFileError:
        if self.problem != str(error):
            self.problem = str(error)
            for line in self.problem.splitlines():
                self._log.error("quota_file=refused problem=%s", line)
        return error

    async def _look(self) -> None:
        assert self.path is not None  # start makes no watch without one
        mark = await asyncio.to_thread(_mark_of, self.path)
        if mark == self._mark:
            return
        try:
            await self.reload_soon()
        except QuotaFileError:
            return  # it stands in the log and in `problem`

    def _keep(self, text: str) -> None:
        if self._kept is None:
            return
        try:
            replace_file(self._kept, text)
        except OSError as error:
            self._log.warning("quota_file=not_kept reason=%s", error)

    def _read_kept(self) -> Quotas | None:
        try:
            return None if self._kept is None else read_quotas(self._kept.read_text("utf-8"), str(self._kept))
        except (OSError, ValueError, QuotaFileError):
            return None


def open_quota_file(path: Path | None, kept_in: Path | None, clock: Clock, log: logging.Logger) -> QuotaFile:
    """Return the quota file, read. Raises QuotaFileError where no good one was ever read."""
    file = QuotaFile(path, kept_in, clock, log)
    file.open()
    return file


def _read(path: Path) -> tuple[_Mark, str | OSError | ValueError]:
    """Return the file's mark before it was read, and its text or the error."""
    mark = _mark_of(path)
    try:
        return mark, path.read_text("utf-8")
    except (OSError, ValueError) as error:
        return mark, error


def _mark_of(path: Path) -> _Mark:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns, found.st_ino)
