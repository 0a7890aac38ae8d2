"""Remove folders that a kernel could write to, without following links and at any depth.

shutil.rmtree recurses, so a kernel could end the process that clears up after it with a few
thousand folders in each other.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LEVELS = 1_000_000  # a kernel that still runs might dig on for ever


def remove_folder(folder: Path) -> None:
    """Remove a folder and all that is in it; leave what cannot be removed. Never raises OSError."""
    empty_folder(folder)
    with contextlib.suppress(OSError):
        folder.rmdir()


def empty_folder(folder: Path) -> None:
    """Remove all that is in a folder; leave what cannot be removed. Never raises OSError."""
    with contextlib.suppress(OSError):
        top = os.open(folder, _FOLDER)
        try:
            prefix = f".gone-{os.urandom(8).hex()}-"  # a name that a kernel cannot have taken
            names = (f"{prefix}{number}" for number in itertools.count())
            folders = _unlink_files(top)
            for _ in range(_MOST_LEVELS):
                if not folders:
                    break
                folders = [raised for name in folders for raised in _flatten(top, name, names)]
        finally:
            os.close(top)


def _unlink_files(descriptor: int) -> list[str]:
    """Remove all but the folders; return the folders' names."""
    with os.scandir(descriptor) as found:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    for name, is_folder in entries:
        if not is_folder:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=descriptor)
    return [name for name, is_folder in entries if is_folder]


def _flatten(top: int, name: str, names: Iterator[str]) -> list[str]:
    """Remove a folder directly below ``top``; the folders in it move up beside it under new names."""
    raised = []
    with contextlib.suppress(OSError):
        here = os.open(name, _FOLDER, dir_fd=top)
        try:
            for below in _unlink_files(here):
                new = next(names)
                with contextlib.suppress(OSError):
                    os.rename(below, new, src_dir_fd=here, dst_dir_fd=top)
                    raised.append(new)
        finally:
            os.close(here)
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=top)
    return raised
