"""Sessions while another program, such as a backup, has their file locked.

Requests wait, then report it; none is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp

from jupyter_aliquot.gateway.base import busy_table

from .conftest import Ask
from .test_ownership import start_session

# A reader, such as `sqlite3 … .backup`, and a writer that keeps readers out.
LOCKS = ("BEGIN; SELECT * FROM session", "BEGIN EXCLUSIVE")


@pytest.fixture
def other(a_server: ServerApp) -> Iterator[sqlite3.Connection]:
    """Open another program's connection to the file."""
    path = a_server.session_manager.database_filepath
    assert Path(path).is_file()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def take(other: sqlite3.Connection, lock: str) -> None:
    for statement in lock.split("; "):
        # One row is left to read, so that the statement holds its lock.
        other.execute(statement).fetchone()


def rows(other: sqlite3.Connection) -> set[str]:
    return {row[0] for row in other.execute("SELECT path FROM session").fetchall()}


async def ids(ask: Ask) -> set[str]:
    return {one["id"] for one in (await ask("ada", "GET", "api/kernels")).json}


@pytest.mark.parametrize("lock", LOCKS)
async def test_a_session_waits_for_a_backup_and_is_on_disk_then(
    ask: Ask, other: sqlite3.Connection, lock: str, a_server: ServerApp
) -> None:
    await start_session(ask, "alice", "before.ipynb")
    take(other, lock)
    body = {"path": "after.ipynb", "name": "", "type": "notebook", "kernel": {"name": "python3"}}
    request = asyncio.create_task(ask("alice", "POST", "api/sessions", body=body))
    for _ in range(10):
        assert (await ask("alice", "GET", "aliquot/api/v1/status")).status == 200, "others are served meanwhile"
    assert not request.done()
    other.execute("ROLLBACK")
    answer = await request
    assert answer.status == 201, answer.body
    assert rows(other) == {"before.ipynb", "after.ipynb"}


@pytest.mark.parametrize("lock", LOCKS)
async def test_a_lock_that_stays_is_said_and_moves_no_session_to_memory(
    ask: Ask, other: sqlite3.Connection, lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await start_session(ask, "alice", "before.ipynb")
    monkeypatch.setattr(busy_table, "_MOST_SECONDS", 0.2)
    want = await ids(ask)
    take(other, lock)
    body: dict[str, Any] = {"path": "after.ipynb", "name": "", "type": "notebook", "kernel": {"name": "python3"}}
    for method, path, sent in (("POST", "api/sessions", body), ("DELETE", f"api/sessions/{session['id']}", None)):
        answer = await ask("alice", method, path, body=sent)
        assert (answer.status, "Try again when that program is done" in answer.json["message"]) == (503, True)
    assert await ids(ask) == want, "no kernel began or ended for it"
    other.execute("ROLLBACK")
    assert (await ask("alice", "DELETE", f"api/sessions/{session['id']}")).status == 204
    assert (await ask("alice", "POST", "api/sessions", body=body)).status == 201
    assert rows(other) == {"after.ipynb"}
