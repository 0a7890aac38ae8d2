"""The record of changes to what kernels may have: cordons of nodes, quotas, and folders that users share.

Each is an event of jupyter_events with a schema. It goes to the log, to a file of the gateway's
folder, and to the handlers that the configuration names.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from logging.handlers import RotatingFileHandler
from pathlib import Path

from jupyter_events import EventLogger

from jupyter_aliquot.gateway.folders.invitation import Invitation
from jupyter_aliquot.gateway.scheduling.cordons import Cordon
from jupyter_aliquot.gateway.teams.changes import quota_changes
from jupyter_aliquot.gateway.teams.values import Quotas

SCHEMA = Path(__file__).parent / "administration_event.yaml"
_SCHEMA_ID = "https://schema.aliquot.dev/administration"
FILE = "audit.jsonl"
_MOST_BYTES, _OLDER_FILES = 4 << 20, 3


class Audit:
    """The audit. *folder* None: it writes no file. *handlers* are those of c.EventLogger."""

    def __init__(self, folder: Path | None, log: logging.Logger, handlers: Iterable[logging.Handler] = ()) -> None:
        self._log = log
        # A logger of its own: Jupyter's sends each event to every user, and quotas name teams.
        self._events = EventLogger()
        self._events.register_event_schema(SCHEMA)
        for handler in tuple(handlers):
            self._events.register_handler(handler)
        if folder is not None:
            self._keep_in(folder / FILE)

    def tell(self, action: str, subject: str, by: str, detail: str) -> None:
        """Record one change. ``by`` is empty where no user made it."""
        self._log.info("audit action=%s subject=%s by=%s detail=%s", action, subject, by or "-", detail)
        data = {"action": action, "subject": subject, "by": by or None, "detail": detail}
        self._events.emit(schema_id=_SCHEMA_ID, data=data)

    def _keep_in(self, path: Path) -> None:
        try:
            handler = RotatingFileHandler(path, maxBytes=_MOST_BYTES, backupCount=_OLDER_FILES, encoding="utf-8")
            path.chmod(0o600)
        except OSError as error:
            self._log.error("audit=no_file path=%s reason=%s", path, error)
            return
        self._events.register_handler(handler)


def tell_cordon(audit: Audit, node: str, before: Cordon | None, after: Cordon | None, by: str) -> None:
    """Record a node's cordon, or its end."""
    if after is None:
        audit.tell("uncordon", node, by, "" if before is None else before.reason)
    else:
        audit.tell("drain" if after.is_draining else "cordon", node, by, after.reason)


def tell_move(audit: Audit, node: str, by: str, detail: str) -> None:
    """Record that a kernel was moved to another GPU of its node, or that it failed."""
    audit.tell("move", node, by, detail)


def tell_invitation(audit: Audit, action: str, invitation: Invitation, by: str) -> None:
    """Record that a user was invited to another's folder, answered, or is invited no more."""
    detail = f"{invitation.kind} {invitation.invited}, to {invitation.access} {invitation.source}"
    audit.tell(action, f"{invitation.owner}/{invitation.name}", by, detail)


def tell_quotas(audit: Audit, path: str, before: Quotas | None, after: Quotas, by: str) -> None:
    """Record other quotas that are in force; nothing where the file has other lines, and the same quotas."""
    for line in quota_changes(before, after):
        audit.tell("quota", path, by, line)
