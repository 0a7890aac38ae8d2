"""The file of the folders that administrators added by REST.

It is checked when it is read, and replaced whole.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path

from jupyter_aliquot.gpu_hook.base.files import replace_file, set_aside
from jupyter_aliquot.provisioner.errors import RequestError, StateError

from .shared_folder import SharedFolder, folder_table, read_folder

_VERSION = 1


def read_folders(path: Path, log: logging.Logger) -> tuple[SharedFolder, ...]:
    """Read the file.

    A damaged file is set aside. An entry that cannot be read is logged, and left out.
    """
    try:
        data = json.loads(path.read_bytes())
        if not isinstance(data, dict) or data.get("version") != _VERSION or not isinstance(data.get("folders"), list):
            raise ValueError(f"it is not a file of version {_VERSION}")
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, RecursionError) as error:
        try:
            aside = set_aside(path).name
        except OSError as failure:
            log.error("folders=unreadable file=%s reason=%s; it cannot be set aside: %s", path, error, failure)
        else:
            log.error("folders=unreadable file=%s reason=%s; set aside as %s", path, error, aside)
        return ()
    found: dict[str, SharedFolder] = {}
    for table in data["folders"]:
        try:
            folder = read_folder(table, f"a folder in {path.name}")
        except RequestError as error:
            log.error("folders=unreadable reason=%s; left out", error)
            continue
        found.setdefault(folder.name, folder)
    return tuple(found.values())


def write_folders(path: Path | None, folders: Iterable[SharedFolder]) -> None:
    """Replace the file. Raises StateError, and leaves the old file then."""
    if path is None:
        raise StateError("A shared folder cannot be kept, for this server has no state folder. See the server's log")
    content = {"version": _VERSION, "folders": [folder_table(folder) for folder in folders]}
    try:
        replace_file(path, json.dumps(content, indent=1))
    except OSError as error:
        raise StateError(
            f"The shared folders cannot be kept in {path}: {error.strerror}. Make room or correct its permissions"
        ) from error
