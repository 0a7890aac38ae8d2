"""Invitations to users' own folders as values, read from requests and from the gateway's file. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.fields import Entry
from jupyter_aliquot.gateway.sharing.shares import check_name
from jupyter_aliquot.provisioner.errors import RequestError

from .rules import NAME, parts_of

KINDS = ("user", "team")
ACCESSES = ("read", "write")
_LONGEST_PATH = 1000
# An invitation does not wait for ever for a user who may have that name one day.
UNANSWERED_SECONDS = 90 * 86400.0
_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Invitation:
    """One folder of *owner*, and the user or team that may see it.

    ``path`` is where the owner's kernels find the folder, and ``source`` where it lies on the host.
    ``inode`` and ``born`` are those of the folder that the owner chose; ``born`` is in nanoseconds
    since the epoch, and 0 where the file system does not tell. Other times are in seconds.
    ``is_orphaned``: its owner or its only collaborator was removed from the server, and it is for no user.
    """

    id: str
    owner: str
    name: str
    path: str
    source: str
    inode: int
    kind: str
    invited: str
    is_writable: bool
    since: float
    until: float | None = None
    accepted: frozenset[str] = frozenset()
    declined: frozenset[str] = frozenset()
    born: int = 0
    is_orphaned: bool = False

    def is_of(self, inode: int, born: int) -> bool:
        """Return whether this is the folder that was shared: a file system uses the numbers of removed ones again."""
        return self.inode == inode and self.born in (0, born)

    def invites(self, user: User) -> bool:
        """Return whether it is for this user. An owner needs none, and an administrator's role gives none."""
        if not user.name or user.name == self.owner or self.is_orphaned:
            return False
        return user.name == self.invited if self.kind == "user" else self.invited in user.teams

    def has_ended(self, now: float) -> bool:
        """Return whether its time is over. One that no collaborator answered ends by itself."""
        if self.until is not None and self.until <= now:
            return True
        return not self.is_answered and self.since + UNANSWERED_SECONDS <= now

    @property
    def users(self) -> frozenset[str]:
        """Return the names that were users of the server: its owner, and the collaborators who answered."""
        return self.accepted | self.declined | {self.owner}

    def without(self, removed: Collection[str]) -> Invitation:
        """Return it as it is once these users are removed: a new user of such a name gets nothing from it."""
        if self.owner in removed or (self.kind == "user" and self.invited in removed):
            return replace(self, is_orphaned=True, accepted=frozenset(), declined=frozenset())
        return replace(self, accepted=self.accepted.difference(removed), declined=self.declined.difference(removed))

    @property
    def is_answered(self) -> bool:
        """Return whether a collaborator has accepted or declined it."""
        return bool(self.accepted or self.declined)

    @property
    def access(self) -> str:
        """Return the word in REST."""
        return "write" if self.is_writable else "read"


@dataclass(frozen=True)
class Wish:
    """A request to invite, read but not checked against folders and users."""

    path: str
    name: str
    kind: str
    invited: str
    is_writable: bool
    until: float | None


def read_wish(body: object, now: float) -> Wish:
    """Read the body of a request to invite. Raises RequestError."""
    entry = Entry("the body", body)
    path = entry.text("path")
    name, kind, invited = entry.text("name", ""), entry.text("kind"), entry.text("invited")
    access, until = entry.text("access", "read"), entry.text("until", "")
    entry.finish()
    if len(path) > _LONGEST_PATH:
        raise RequestError(f"The path has {len(path)} characters, and may have {_LONGEST_PATH}. Use a shorter one")
    path = path.rstrip("/") or "/"
    name = name or path.rpartition("/")[2].lower()
    if not NAME.fullmatch(name):
        raise RequestError(
            f"Requested to share a folder as {name[:80]!r}, which is not a valid name. Give it a name of at most 63 of "
            "a-z, 0-9, '.', '_' and '-'"
        )
    if kind not in KINDS:
        raise entry.refused("kind", kind, "user or team")
    if access not in ACCESSES:
        raise entry.refused("access", access, "read or write")
    check_name(kind, invited)
    return Wish(path, name, kind, invited, access == "write", _until(until, now))


def _until(text: str, now: float) -> float | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        seconds = moment.timestamp()
    except (ValueError, OverflowError, OSError):
        moment, seconds = None, math.nan
    if moment is None or moment.tzinfo is None:
        raise RequestError(
            f"The end {text[:40]!r} is not a moment. Write it with its offset from UTC, such as 2026-12-01T12:00:00Z"
        )
    if seconds <= now:
        raise RequestError(f"The end {text[:40]} is over already. Use a later one, or none")
    return seconds


def invitation_table(invitation: Invitation) -> Mapping[str, Any]:
    """Return an invitation as `read_invitation` reads it."""
    return {
        "id": invitation.id,
        "owner": invitation.owner,
        "name": invitation.name,
        "path": invitation.path,
        "source": invitation.source,
        "inode": invitation.inode,
        "born": invitation.born or None,
        "kind": invitation.kind,
        "invited": invitation.invited,
        "access": invitation.access,
        "since": invitation.since,
        "until": invitation.until,
        "accepted": sorted(invitation.accepted),
        "declined": sorted(invitation.declined),
        **({"orphaned": True} if invitation.is_orphaned else {}),
    }


def read_invitation(table: object) -> Invitation:
    """Read one invitation of the file. Raises RequestError."""
    entry = Entry("an invitation", table)
    id_, owner, name = entry.text("id"), entry.text("owner"), entry.text("name")
    path, source, access = entry.text("path"), entry.text("source"), entry.text("access")
    kind, invited = entry.text("kind"), entry.text("invited")
    inode, since, until = entry.number("inode"), entry.number("since"), entry.number("until")
    born = entry.number("born") or 0
    accepted, declined = frozenset(entry.texts("accepted")), frozenset(entry.texts("declined"))
    is_orphaned = entry.flag("orphaned", default=False)
    entry.finish()
    parts_of(source)
    check_name(kind, invited)
    is_valid = _ID.fullmatch(id_) and NAME.fullmatch(name) and kind in KINDS and access in ACCESSES
    if not is_valid or not isinstance(inode, int) or not isinstance(born, int) or since is None or accepted & declined:
        raise RequestError(f"the invitation {id_[:16]!r} of {owner[:40]!r} has fields that are not valid")
    writes = access == "write"
    answers = accepted, declined
    return Invitation(
        id_, owner, name, path, source, inode, kind, invited, writes, since, until, *answers, born, is_orphaned
    )
