"""A SQLite file of the gateway's own: locked, opened or begun anew, and opened again after it failed.

Only this account may read it, and only the process that has its lock writes it; a second one reads.
A file that cannot be read is set aside under another name, never deleted. One thread at a time uses
it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar
from urllib.parse import quote

from jupyter_aliquot.gpu_hook.base.files import open_lock, read_holder, set_aside, try_lock, write_holder

_IN_MEMORY = ":memory:"
_PAGE_BYTES = 4096
# A file that another program has locked is free again soon.
_LOCKED_SECONDS = 5.0
_RETRY_SECONDS = 60.0
UNREADABLE = "unreadable"
_OTHER = "version"

T = TypeVar("T")


@dataclass(frozen=True)
class Form:
    """The form of a file.

    ``name``: its word in the log. ``application``: four letters, so that no other program's file is
    taken for ours. ``is_durable``: nothing that was written is lost in a power cut.
    """

    name: str
    application: int
    version: int
    schema: str
    is_durable: bool = False


class _HeldError(sqlite3.OperationalError):
    """Another process writes the file."""


class _OtherVersion(sqlite3.DatabaseError):
    """The error of an intact file of another version of ours, or of another program."""


class PrivateDatabase:
    """The file, open. ``path`` None: in memory. All methods raise sqlite3.Error and OSError.

    ``holder``: the process that writes it, if that is another one.
    """

    def __init__(self, path: Path | None, form: Form, log: logging.Logger) -> None:
        self._path = path
        self._form = form
        self._log = log
        self._lock: int | None = None
        self.holder = ""
        try:
            self.connection = self._open()
        except BaseException:
            self._let_go()
            raise

    def close(self) -> None:
        """Close the file, and let its lock go. Idempotent."""
        self.connection.close()
        self._let_go()

    @property
    def is_current(self) -> bool:
        """Return whether the path still leads to the open file, and no lock that it lacks is free now."""
        if self._path is None:
            return True
        is_there = self._path.exists() and self._path.stat().st_ino == self._inode
        return is_there and not (self.holder and _is_free(self._path))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Write all of what the body writes, or nothing. Raises sqlite3.OperationalError if another process does."""
        if self.holder:
            raise _HeldError(f"process {self.holder} writes this file")
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:  # SQLite may have rolled back by itself
                self.connection.execute("ROLLBACK")
            raise

    def limit(self, most_bytes: int) -> None:
        """Let the file grow to this size at most."""
        self.connection.execute(f"PRAGMA max_page_count = {max(16, most_bytes // _PAGE_BYTES)}")

    @property
    def used_bytes(self) -> int:
        """The size of what is in the file, without its free pages."""
        pages, free = (
            int(self.connection.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "freelist_count")
        )
        return (pages - free) * _PAGE_BYTES

    def _open(self) -> sqlite3.Connection:
        if self._path is None:
            return self._checked(_connect(_IN_MEMORY))
        self._take_lock(self._path)
        database = self._checked(open_for_reading(self._path)) if self.holder else self._opened(self._path)
        self._inode = self._path.stat().st_ino
        return database

    def _opened(self, path: Path) -> sqlite3.Connection:
        for name in (path, _journal(path)):
            if name == path or name.exists():
                # Made before SQLite makes it, and the journal follows its mode: only this account
                # may read what users did.
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                descriptor = os.open(name, flags, 0o600)
                os.fchmod(descriptor, 0o600)
                os.close(descriptor)
        try:
            return self._checked(_connect(str(path)))
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            self._set_aside(path, error)
            return self._opened(path)

    def _checked(self, database: sqlite3.Connection) -> sqlite3.Connection:
        """Return the connection with its settings, or close it.

        Raises sqlite3.OperationalError if the file cannot be used now, another
        sqlite3.DatabaseError if it is damaged.
        """
        try:
            # No WAL: one thread writes it, and state folders may lie on a network disk.
            for setting in () if self.holder else (f"page_size = {_PAGE_BYTES}", "journal_mode = TRUNCATE"):
                database.execute(f"PRAGMA {setting}")
            database.execute(f"PRAGMA synchronous = {'FULL' if self._form.is_durable else 'NORMAL'}")
            self._check(database)
        except BaseException:
            database.close()
            raise
        return database

    def _check(self, database: sqlite3.Connection) -> None:
        """Check the file, and make its tables if it is empty."""
        form = self._form
        found = database.execute("PRAGMA quick_check").fetchone()[0]
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        application = database.execute("PRAGMA application_id").fetchone()[0]
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if (application, version) == (form.application, form.version):
            return
        if database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
            raise _OtherVersion(
                f"the file has version {version} of program {application:#x}; this program reads version "
                f"{form.version} of its own"
            )
        marks = f"PRAGMA application_id = {form.application}; PRAGMA user_version = {form.version};"
        database.executescript(f"BEGIN IMMEDIATE; {form.schema} {marks} COMMIT;")

    def _set_aside(self, path: Path, error: sqlite3.DatabaseError) -> None:
        why = _OTHER if isinstance(error, _OtherVersion) else UNREADABLE
        aside = set_aside(path, why)
        if _journal(path).exists():
            os.replace(_journal(path), _journal(aside))
        self._log.error("%s=%s reason=%s; set aside as %s, and begun anew", self._form.name, why, error, aside)

    def _take_lock(self, path: Path) -> None:
        descriptor = open_lock(_lock(path))
        if try_lock(descriptor):
            self._lock = descriptor
            write_holder(descriptor)
        else:
            self.holder = read_holder(descriptor) or "of another name"
            os.close(descriptor)

    def _let_go(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class OpenFile(Protocol):
    """A file as its keeper uses it."""

    def close(self) -> None:
        """Close it. Idempotent."""

    @property
    def is_current(self) -> bool:
        """Return whether it need not be opened again."""
        ...


F = TypeVar("F", bound=OpenFile)


class Keeper(Generic[F]):
    """A file that is opened when it is needed, and again after it failed.

    ``problem``: why it cannot be used or written, which is logged once; empty: it can.
    """

    def __init__(self, name: str, path: Path | None, make: Callable[[], F], log: logging.Logger, after: str) -> None:
        """*make* opens the file. *after*: the words that tell what comes of a failure."""
        self._name = name
        self._path = path
        self._make = make
        self._log = log
        self._after = after
        self._try_again = -float("inf")
        self.file: F | None = None
        self.problem = ""

    def use(self, act: Callable[[F], T], now: float, *, is_write: bool = False) -> T | None:
        """Return the result of ``act`` on the file; None if the file cannot be used."""
        try:
            if self.file is None and now < self._try_again:
                return None
            result = act(self._opened())
        except sqlite3.OperationalError as error:
            self._tell(str(error), now, _LOCKED_SECONDS)
            return None
        except (sqlite3.Error, OSError) as error:
            self._tell(str(error), now, _RETRY_SECONDS)
            if self.file is not None:
                # A damaged file is set aside as it is opened again.
                self.close()
                self._try_again = now
            return None
        if is_write and self.problem:
            self._log.info("%s=written again", self._name)
            self.problem = ""
        return result

    def close(self) -> None:
        """Close the file. Idempotent; it is opened again when it is used."""
        if self.file is not None:
            self.file.close()
            self.file = None

    def _opened(self) -> F:
        if self.file is not None and not self.file.is_current:
            self._log.warning("%s=reopened path=%s the file was removed, or may be written now", self._name, self._path)
            self.close()
        if self.file is None:
            self.file = self._make()
        return self.file

    def _tell(self, reason: str, now: float, retry_seconds: float) -> None:
        if self.file is None:
            self._try_again = now + retry_seconds
        if reason != self.problem:
            self._log.error("%s=not_written path=%s reason=%s; %s", self._name, self._path, reason, self._after)
            self.problem = reason


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Return a connection that reads the file and never makes or changes it. Raises sqlite3.Error."""
    # SQLite percent-decodes the path of a URI.
    return _connect(f"file:{quote(str(path))}?mode=ro", is_uri=True)


def files_set_aside(path: Path) -> list[Path]:
    """Return the files that were set aside beside this one and still lie there."""
    found = [one for why in (UNREADABLE, _OTHER) for one in path.parent.glob(f"{path.name}.{why}-*")]
    return sorted(one for one in found if not one.name.endswith("-journal"))


def _connect(name: str, *, is_uri: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(name, uri=is_uri, isolation_level=None, check_same_thread=False, timeout=1.0)


def _journal(path: Path) -> Path:
    return path.with_name(f"{path.name}-journal")


def _lock(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _is_free(path: Path) -> bool:
    """Return whether no process has the lock of this file."""
    descriptor = open_lock(_lock(path))
    try:
        return try_lock(descriptor)
    finally:
        os.close(descriptor)
