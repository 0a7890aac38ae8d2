"""List the kernelspecs in an account's home, for a gateway that cannot look into it.

It runs as the account, in a child of a host of root: the files may be huge, hostile, or on a disk
that is away. The gateway checks the answer again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

FOLDER = Path(".local/share/jupyter/kernels")
_MOST_FOLDERS = 8
MOST_SPECS = 20
LONGEST_SPEC = 64 << 10
# An answer has to fit into what a socket takes at once: a host of root waits for no reader.
_LONGEST_ANSWER = 96 << 10
_MOST_ENTRIES = 10_000  # of the folder that are looked at
_LONGEST_REASON = 300
_NAME = re.compile(r"[a-z0-9._-]{1,100}", re.ASCII | re.IGNORECASE)
_FIELDS = ("argv", "env", "display_name", "language", "interrupt_mode")


@dataclass(frozen=True)
class _Found:
    """A kernelspec on disk: its name, its file, and the state of the file before it was read."""

    name: str
    path: Path
    state: tuple[int, ...]


def folders_in(told: object, account: str) -> tuple[Path, ...]:
    """Return the folders that a request names, below a home or at any place; by default Jupyter's own.

    ``{account}`` in one stands for the account's name.
    """
    names = told if isinstance(told, list) else ()
    folders = [name.replace("{account}", account) for name in names if isinstance(name, str) and "\0" not in name]
    return tuple(Path(folder) for folder in folders[:_MOST_FOLDERS]) or (FOLDER,)


def list_kernelspecs(home: Path, known: str, folders: Sequence[Path] = (FOLDER,)) -> dict[str, Any]:
    """Return the account's kernelspecs, and a mark of their files' state.

    Of a name that is in several of the *folders* the first one counts, as in Jupyter's path.
    With the mark that the asker *knows* there is nothing to read: the answer is the mark alone.
    ``problems`` has the reason of each that cannot be used, ``left_out`` the number of those that
    are too many.
    """
    found, left_out = _look_into([home / folder for folder in folders])
    mark = hashlib.sha256(repr([(one.name, one.path, one.state) for one in found]).encode()).hexdigest()
    if mark == known:
        return {"mark": mark}
    specs: dict[str, dict[str, Any]] = {}
    problems: dict[str, str] = {}
    room = _LONGEST_ANSWER
    for one in found:
        try:
            spec = _read(one.path)
            size = len(json.dumps(spec)) + len(one.name)
        except (OSError, ValueError, RecursionError) as error:
            problems[one.name] = f"{one.path}: {error}"[:_LONGEST_REASON]
            size = len(json.dumps(problems[one.name])) + len(one.name)
            spec = None
        room -= size
        if room < 0:
            problems.pop(one.name, None)
            left_out += 1
        elif spec is not None:
            specs[one.name] = spec
    return {"mark": mark, "specs": specs, "problems": problems, "left_out": left_out}


def _look_into(folders: Sequence[Path]) -> tuple[list[_Found], int]:
    """Return the kernelspecs in these folders by their names, and how many more there are."""
    found: dict[str, _Found] = {}
    for folder in folders:
        _add_those_in(folder, found)
    by_name = sorted(found.values(), key=lambda one: one.name)
    return by_name[:MOST_SPECS], max(0, len(by_name) - MOST_SPECS)


def _add_those_in(folder: Path, found: dict[str, _Found]) -> None:
    """Add the kernelspecs in a folder whose names are not there yet; none of a folder that cannot be read."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, _MOST_ENTRIES):
            name = entry.name.lower()
            if not _NAME.fullmatch(name) or name in found:
                continue  # Jupyter has no kernel of such a name
            path = Path(entry.path, "kernel.json")
            try:
                told = path.stat()
            except OSError:
                continue
            found[name] = _Found(name, path, (told.st_ino, told.st_size, told.st_mtime_ns))


def _read(path: Path) -> dict[str, Any]:
    """Return what a gateway needs of a kernelspec. Raises OSError and ValueError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is no plain file")
        text = file.read(LONGEST_SPEC + 1)
    if len(text) > LONGEST_SPEC:
        raise ValueError(f"it has more than {LONGEST_SPEC >> 10} KiB")
    fields = json.loads(text.decode())
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")
    metadata = fields.get("metadata")
    told = {name: fields[name] for name in _FIELDS if name in fields}
    if isinstance(told.get("argv"), list):
        told["argv"] = [_placed(word, path.parent) for word in told["argv"]]
    return {**told, "debugger": isinstance(metadata, dict) and metadata.get("debugger") is True}


def _placed(word: object, folder: Path) -> object:
    """Fill in the kernelspec's folder, which the gateway must not take for one of its own."""
    return word.replace("{resource_dir}", os.fspath(folder)) if isinstance(word, str) else word
