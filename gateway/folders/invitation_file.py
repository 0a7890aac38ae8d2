"""The file of users' invitations: checked when it is read, and replaced whole."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path

from jupyter_aliquot.gpu_hook.base.files import replace_file, set_aside
from jupyter_aliquot.provisioner.errors import RequestError, StateError

from .invitation import Invitation, invitation_table, read_invitation

_VERSION = 1
MOST = 10_000


def read_invitations(path: Path, log: logging.Logger) -> dict[str, Invitation]:
    """Read the file, by ids.

    A damaged file is set aside: damage takes invitations back, and gives none. An entry that cannot
    be read is logged, and left out.
    """
    try:
        data = json.loads(path.read_bytes())
        if (
            not isinstance(data, dict)
            or data.get("version") != _VERSION
            or not isinstance(data.get("invitations"), list)
        ):
            raise ValueError(f"it is not a file of version {_VERSION}")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        try:
            aside = set_aside(path).name
        except OSError as failure:
            log.error("invitations=unreadable file=%s reason=%s; it cannot be set aside: %s", path, error, failure)
        else:
            log.error("invitations=unreadable file=%s reason=%s; set aside as %s", path, error, aside)
        return {}
    found: dict[str, Invitation] = {}
    for table in data["invitations"][:MOST]:
        try:
            invitation = read_invitation(table)
        except RequestError as error:
            log.error("invitations=unreadable reason=%s; left out", error)
            continue
        found.setdefault(invitation.id, invitation)
    return found


def write_invitations(path: Path | None, invitations: Iterable[Invitation]) -> None:
    """Replace the file. Raises StateError, and leaves the old file then."""
    if path is None:
        raise StateError("An invitation cannot be kept, for this server has no state folder. See the server's log")
    content = {"version": _VERSION, "invitations": [invitation_table(one) for one in invitations]}
    try:
        replace_file(path, json.dumps(content))
    except OSError as error:
        raise StateError(
            f"The invitations cannot be kept in {path}: {error.strerror}. Make room or correct its permissions"
        ) from error
