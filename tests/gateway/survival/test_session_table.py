"""The table of sessions on disks that are damaged, read-only or full."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.services.contents.manager import ContentsManager
from jupyter_server.services.kernels.kernelmanager import MappingKernelManager

from jupyter_aliquot.gateway.base.busy_table import TableBusyError
from jupyter_aliquot.gateway.kernels.sessions import OwnedSessionManager
from jupyter_aliquot.gateway.state.session_table import usable_database

LOG = logging.getLogger("test")


def test_a_new_table_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "sessions.sqlite"
    assert usable_database(path, LOG) == str(path)
    assert usable_database(path, LOG) == str(path)


@pytest.mark.parametrize(
    "content", [b"not a database, but long enough to be read as one" * 100, b"SQLite format 3\0" * 99]
)
def test_a_damaged_file_is_set_aside(content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "sessions.sqlite"
    path.write_bytes(content)
    assert usable_database(path, LOG) == str(path)
    (aside,) = tmp_path.glob("sessions.sqlite.unreadable-*")
    assert aside.read_bytes() == content
    assert "sessions=unreadable" in caplog.text


def test_a_table_of_another_shape_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "sessions.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE session (a, b)")
    database.close()
    assert usable_database(path, LOG) == str(path)
    assert list(tmp_path.glob("*.unreadable-*"))


def test_where_no_file_can_be_the_table_is_in_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert usable_database(tmp_path / "nowhere" / "sessions.sqlite", LOG) == ":memory:"
    assert "sessions=in_memory" in caplog.text


@pytest.fixture
def sessions(tmp_path: Path) -> Any:
    path = usable_database(tmp_path / "sessions.sqlite", LOG)
    manager = OwnedSessionManager(
        database_filepath=path, kernel_manager=MappingKernelManager(), contents_manager=ContentsManager()
    )
    yield manager
    manager.close()
    manager.connection.close()


INSERT = "INSERT INTO session VALUES (?, 'p', 'n', 't', 'k')"
KERNELS = "SELECT session_id FROM session"


def test_sessions_go_on_in_memory_when_the_disk_is_full(sessions: Any, caplog: pytest.LogCaptureFixture) -> None:
    sessions.cursor.execute(INSERT, ("before",))
    pages = sessions.cursor.execute("PRAGMA page_count").fetchone()[0]
    sessions.cursor.execute(f"PRAGMA max_page_count = {pages}")
    sessions.cursor.execute(INSERT, ("x" * 100_000,))
    found = {row["session_id"][:6] for row in sessions.cursor.execute(KERNELS).fetchall()}
    assert found == {"before", "xxxxxx"}
    assert "sessions=in_memory reason=database or disk is full" in caplog.text


def test_a_wrong_statement_in_memory_is_an_error(sessions: Any) -> None:
    sessions.leave_disk(sqlite3.OperationalError("full"))
    with pytest.raises(sqlite3.OperationalError):
        sessions.cursor.execute("SELECT nothing FROM nowhere")


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Hold another program's lock on the table, which keeps readers out, too."""
    with contextlib.closing(sqlite3.connect(tmp_path / "sessions.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield other


def test_a_new_table_that_is_locked_is_made_when_the_lock_is_gone(
    locked: sqlite3.Connection, sessions: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(TableBusyError, match="Try again when that program is done"):
        sessions.cursor.execute(KERNELS)
    locked.execute("ROLLBACK")
    sessions.cursor.execute(INSERT, ("after",))
    assert [row["session_id"] for row in sessions.cursor.execute(KERNELS).fetchall()] == ["after"]
    assert sessions.database_filepath != ":memory:"
    assert any("sessions=busy" in record.getMessage() for record in caplog.get_records("setup"))
    assert "in_memory" not in caplog.text
