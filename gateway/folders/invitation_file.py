"""The file of users' invitations: checked when it is read, and replaced whole.

What cannot be read is never lost: a file that cannot be opened now is left as it is and read again,
a damaged one is set aside, and one with entries that are left out is copied before it is replaced.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jupyter_aliquot.gpu_hook.base.files import replace_file, set_aside
from jupyter_aliquot.provisioner.errors import RequestError, StateError

from .invitation import Invitation, invitation_table, read_invitation

_VERSION = 1
MOST = 10_000


class InvitationFile:
    """The file at *path*. ``path`` None: nothing can be kept. One thread at a time uses it."""

    def __init__(self, path: Path | None, log: logging.Logger) -> None:
        self._path = path
        self._log = log
        self._problem = ""
        # Entries of the file that are not among those that were read.
        self._has_others = False

    def read(self) -> dict[str, Invitation]:
        """Return the invitations by their ids. Raises StateError if the file cannot be read now, which is logged once.

        A damaged file is set aside: damage takes invitations back, and gives none. An entry that cannot
        be read is logged, and left out.
        """
        if self._path is None:
            return {}
        try:
            tables = self._tables(self._path)
        except OSError as error:
            if self._problem != str(error):
                self._log.error("invitations=unreadable file=%s reason=%s; it is read again", self._path, error)
            self._problem = str(error)
            raise StateError(
                f"The invitations in {self._path} cannot be read now: {error.strerror}. Correct its permissions, or "
                "try again in a moment"
            ) from error
        self._problem = ""
        found: dict[str, Invitation] = {}
        for table in tables[:MOST]:
            try:
                invitation = read_invitation(table)
            except RequestError as error:
                self._log.error("invitations=unreadable reason=%s; left out", error)
                continue
            found.setdefault(invitation.id, invitation)
        self._has_others = len(found) < len(tables)
        return found

    def write(self, invitations: Iterable[Invitation]) -> None:
        """Replace the file. Raises StateError, and leaves the old file then."""
        if self._path is None:
            raise StateError("An invitation cannot be kept, for this server has no state folder. See the server's log")
        content = {"version": _VERSION, "invitations": [invitation_table(one) for one in invitations]}
        try:
            self._keep_others(self._path)
            replace_file(self._path, json.dumps(content))
        except OSError as error:
            raise StateError(
                f"The invitations cannot be kept in {self._path}: {error.strerror}. Make room or correct its "
                "permissions"
            ) from error

    def _keep_others(self, path: Path) -> None:
        """Copy a file with entries that were left out, which its next content lacks. Raises OSError."""
        if not self._has_others:
            return
        copy = path.with_name(f"{path.name}.left-out-{time.time_ns()}")
        replace_file(copy, path.read_bytes())
        self._has_others = False
        self._log.warning("invitations=copied file=%s copy=%s; the copy has the entries left out", path, copy.name)

    def _tables(self, path: Path) -> list[Any]:
        """Return the entries of the file. Raises OSError."""
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return []
        try:
            data = json.loads(content)
            if isinstance(data, dict) and data.get("version") == _VERSION and isinstance(data.get("invitations"), list):
                tables: list[Any] = data["invitations"]
                return tables
            raise ValueError(f"it is not a file of version {_VERSION}")
        except (ValueError, RecursionError) as error:
            aside = set_aside(path).name
            self._log.error("invitations=unreadable file=%s reason=%s; set aside as %s", path, error, aside)
            return []
