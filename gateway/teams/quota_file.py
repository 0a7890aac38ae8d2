"""The quota file in force, which is read again when it changes.

A file with problems changes nothing: the last good one stays in force, and its text is kept for the
next start. Problems stand in the log, and in the status until the file is right. An editor may write
the file in place: the watch reads it when two looks in a row have found it the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.base.tasks import Recurring
from jupyter_aliquot.gpu_hook.base.files import replace_file

from .reading import QuotaFileError, read_quotas
from .values import Quotas
from .yaml_nodes import MOST_BYTES, Problem

_LOOK_SECONDS = 2.0
_KEPT = "quota-file.yaml"

# The size and times of a file by which a change is seen; None: the file cannot be read.
_Mark = tuple[int, int, int, int] | None


# Called with the quotas before and after a change, and the user who asked for it; empty for a changed file.
QuotaObserver = Callable[["Quotas | None", Quotas, str], None]


@dataclass(frozen=True)
class _Found:
    """The result of one reading of the file: its text and quotas, or an error.

    ``mark`` is None where the text could not be read: the same mark may be read later.
    """

    mark: _Mark
    text: str = ""
    quotas: Quotas | None = None
    error: QuotaFileError | None = None


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
        # The mark of the last look.
        self._seen: _Mark = None
        # The quotas of the last run, where they were others.
        self._of_last_run: Quotas | None = None
        self._listeners: list[Callable[[], None]] = []
        self._observers: list[QuotaObserver] = []
        self._watch = Recurring("quota-file", self.look, _LOOK_SECONDS, clock, log)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call *listener* after each change of the quotas in force."""
        self._listeners.append(listener)

    def observe(self, observer: QuotaObserver) -> None:
        """Call *observer* with the quotas before and after each change in force, and the user who asked for it.

        It hears at once of a change that was made while no gateway ran.
        """
        self._observers.append(observer)
        if self._of_last_run is not None and self.quotas is not None:
            observer(self._of_last_run, self.quotas, "")

    def open(self) -> None:
        """Read the file at the gateway's start.

        A file with problems is replaced by the last good one. Raises QuotaFileError without such.
        """
        if self.path is None:
            return
        kept = self._read_kept()
        try:
            found = self.reload()
        except QuotaFileError:
            if kept is None:
                raise
            self.quotas = kept
            self._log.warning("quota_file=%s in_force=last_good", self.path)
        else:
            self._of_last_run = kept if kept != found else None

    def start(self) -> None:
        if self.path is not None:
            self._watch.start()

    async def stop(self) -> None:
        await self._watch.stop()

    def reload(self) -> Quotas | None:
        """Read the file now, and put it in force. Raises QuotaFileError, and changes nothing then."""
        return None if self.path is None else self._apply(_read(self.path))

    async def reload_soon(self, by: str = "") -> Quotas | None:
        """Do the same beside the event loop: the file may be long, or lie on a network disk.

        *by* is the user who asks for it; empty for a file that changed on disk.
        """
        return None if self.path is None else self._apply(await asyncio.to_thread(_read, self.path), by)

    def _apply(self, found: _Found, by: str = "") -> Quotas:
        self._mark = found.mark
        if found.error is not None:
            raise self._refused(found.error)
        assert found.quotas is not None  # a reading without an error has quotas
        before, self.quotas, self.problem = self.quotas, found.quotas, ""
        if found.quotas != before:
            self._log.info("quota_file=%s in_force=yes teams=%d", self.path, len(found.quotas.teams))
            self._keep(found.text)
            for listener in self._listeners:
                listener()
            for observer in self._observers:
                observer(before, found.quotas, by)
        return found.quotas

    def _refused(self, error: QuotaFileError) -> QuotaFileError:
        if self.problem != str(error):
            self.problem = str(error)
            for line in self.problem.splitlines():
                self._log.error("quota_file=refused problem=%s", line)
        return error

    async def look(self) -> None:
        """Read the file if it is not the one that was read, and is as the last look found it."""
        assert self.path is not None  # start makes no watch without one
        mark = await asyncio.to_thread(_mark_of, self.path)
        is_settled, self._seen = mark == self._seen, mark
        if mark == self._mark or not is_settled:
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


def _read(path: Path) -> _Found:
    """Read the file, and find its quotas or its problems."""
    mark = _mark_of(path)
    try:
        text = _text(path)
    except (OSError, ValueError) as error:
        return _unread(path, f"The file cannot be read: {_reason(error)}")
    if _mark_of(path) != mark:
        return _unread(path, "The file was written while it was read. Reload it when it is written")
    try:
        return _Found(mark, text, read_quotas(text, str(path)))
    except QuotaFileError as error:
        return _Found(mark, error=error)


def _unread(path: Path, why: str) -> _Found:
    return _Found(None, error=QuotaFileError(str(path), [Problem(0, why)]))


def _reason(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8"


def _text(path: Path) -> str:
    """Return the file's text, of a file that is too long a part that is too long as well."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    # The end of the part may be in the middle of a character.
    return data.decode("utf-8", "strict" if len(data) <= MOST_BYTES else "replace")


def _mark_of(path: Path) -> _Mark:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
