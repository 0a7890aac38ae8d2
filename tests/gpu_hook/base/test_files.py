"""A file is replaced whole or not at all, and one process at a time holds a lock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_aliquot.gpu_hook.base.files import (
    LockHeldError,
    lock_while,
    locked,
    open_lock,
    read_holder,
    replace_file,
    set_aside,
    try_lock,
    write_holder,
)


@pytest.mark.parametrize("mode", [0o600, 0o644])
@pytest.mark.parametrize("is_durable", [True, False])
def test_a_replaced_file_has_the_new_content_and_mode_whatever_the_umask(
    tmp_path: Path, mode: int, is_durable: bool
) -> None:
    path = tmp_path / "a.json"
    path.write_text("old, and longer than the new")
    before = os.umask(0o077)
    try:
        replace_file(path, "new ü", mode=mode, is_durable=is_durable)
    finally:
        os.umask(before)
    assert path.read_text(encoding="utf-8") == "new ü"
    assert path.stat().st_mode & 0o777 == mode
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_replaced_stays_and_nothing_is_left_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_set_aside_is_kept_under_names_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    kept = []
    for content in ("one", "two"):
        path.write_text(content)
        kept.append(set_aside(path))
    assert not path.exists()
    assert [aside.read_text() for aside in kept] == ["one", "two"]
    assert all(aside.name.startswith("a.json.unreadable-") for aside in kept)


def test_a_lock_is_held_by_one_until_it_is_closed_and_names_its_holder(tmp_path: Path) -> None:
    first, second = open_lock(tmp_path / "lock"), open_lock(tmp_path / "lock")
    assert try_lock(first)
    write_holder(first, "stopping")
    assert not try_lock(second)
    assert read_holder(second) == f"{os.getpid()} stopping"
    os.close(first)
    assert try_lock(second)
    os.close(second)


def test_a_lock_is_waited_for_while_that_makes_sense(tmp_path: Path) -> None:
    first, second = open_lock(tmp_path / "lock"), open_lock(tmp_path / "lock")
    assert try_lock(first)
    asked = []

    def may_wait() -> bool:
        asked.append(len(asked))
        if len(asked) == 3:
            os.close(first)
        return True

    assert lock_while(second, may_wait, 0.0)
    assert len(asked) == 3
    third = open_lock(tmp_path / "lock")
    assert not lock_while(third, lambda: False, 0.0)
    os.close(second)
    os.close(third)


def test_a_lock_that_is_held_for_too_long_is_an_error(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "lock", 0.0, 0.0),
        pytest.raises(LockHeldError, match="lock"),
        locked(tmp_path / "lock", 0.0, 0.0),
    ):
        pass
    with locked(tmp_path / "lock", 0.0, 0.0):
        pass
