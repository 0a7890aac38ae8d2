"""Checks of the file of the sessions' table, before Jupyter uses it."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from pathlib import Path

from jupyter_aliquot.gpu_hook.base.files import set_aside

IN_MEMORY = ":memory:"
_COLUMNS = "session_id, path, name, type, kernel_id"


def usable_database(path: Path, log: logging.Logger) -> str:
    """Return the file if sessions can be kept in it, or it is busy; else ":memory:".

    Sets a damaged file aside.
    """
    try:
        try:
            _check_database(path)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            aside = set_aside(path)
            log.error("sessions=unreadable reason=%s; set aside as %s, and begun anew", error, aside)
            _check_database(path)
    except (sqlite3.Error, OSError) as error:
        if isinstance(error, sqlite3.OperationalError) and is_busy(error):
            log.warning("sessions=busy reason=%s: %s; requests for sessions wait for it", path, error)
            return str(path)
        log.error("sessions=in_memory reason=%s: %s; they end with this server", path, error)
        return IN_MEMORY
    return str(path)


def _check_database(path: Path) -> None:
    """Check the file.

    Raises sqlite3.OperationalError if it cannot be used now, and another DatabaseError if damaged.
    """
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        found = database.execute("PRAGMA quick_check").fetchone()[0]
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        database.execute("BEGIN IMMEDIATE")
        database.execute(f"CREATE TABLE IF NOT EXISTS session ({_COLUMNS})")
        columns = ", ".join(row[1] for row in database.execute("PRAGMA table_info(session)"))
        if columns != _COLUMNS:
            raise sqlite3.DatabaseError(f"its table has the columns {columns}, wanted {_COLUMNS}")
        database.execute("COMMIT")


def is_busy(error: sqlite3.OperationalError) -> bool:
    """Return whether another connection holds a lock.

    Python 3.10 has no code of the error, only its text.
    """
    return "locked" in str(error)
