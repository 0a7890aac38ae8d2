"""The shares of a kernel: the users and teams with access to it, as frozen values and as JSON.

This module does not check that a user or a team exists: a kernel can be shared with a user who has
never logged in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.gateway.reports import kernel as reports
from jupyter_aliquot.provisioner.errors import RequestError

KINDS = ("user", "team")
MOST_SHARES = 50
_LONGEST_NAME = 200
_GIVEN = {"read": Access.READ, "write": Access.WRITE}
_MAY = {Access.READ: "may see it and its output", Access.WRITE: "may use it as its owner does"}
_NEEDS = {
    Access.READ: "to see it",
    Access.WRITE: "the right to use it (write access)",
    Access.OWN: "to be its owner or an administrator",
}


@dataclass(frozen=True)
class Share:
    """One share. ``kind`` is one of KINDS, ``access`` READ or WRITE."""

    kind: str
    name: str
    access: Access

    def report(self) -> reports.Share:
        """Return it for REST and the kernel's record."""
        return {"kind": self.kind, "name": self.name, "access": self.access.word}


@dataclass(frozen=True)
class Shares:
    """All shares of a kernel, one for each user or team, in the order in which they were given."""

    given: tuple[Share, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.given)

    def access(self, name: str, teams: Iterable[str], owner: str | None) -> Access:
        """Return the access of the user of this name and these teams.

        Without an *owner* the kernel does not exist.
        """
        if not name or owner is None:
            return Access.NONE
        if name == owner:
            return Access.OWN
        if not self.given:
            return Access.NONE
        his = {("user", name), *(("team", team) for team in teams)}
        granted = (share.access for share in self.given if (share.kind, share.name) in his)
        return max(granted, default=Access.NONE)

    def find(self, kind: str, name: str) -> Share | None:
        """Return the share of this user or team by name."""
        return next((share for share in self.given if (share.kind, share.name) == (kind, name)), None)

    def with_one(self, share: Share) -> Shares:
        """Return the shares with one more, or with its new access.

        Raises RequestError if there are too many.
        """
        if (before := self.find(share.kind, share.name)) is not None:
            return Shares(tuple(share if one is before else one for one in self.given))
        if len(self.given) >= MOST_SHARES:
            raise RequestError(
                f"Requested to share a kernel once more, but it is shared {MOST_SHARES} times already, "
                "which is the most. Share it with a team"
            )
        return Shares((*self.given, share))

    def without(self, kind: str, name: str) -> Shares:
        """Return the shares without one, if it was there."""
        return Shares(tuple(share for share in self.given if (share.kind, share.name) != (kind, name)))

    def report(self) -> list[reports.Share]:
        """Return it for REST and the kernel's record."""
        return [share.report() for share in self.given]


UNSHARED = Shares()


def read_share(kind: str, name: str, access: object, owner: str) -> Share:
    """Read a requested share. Raises RequestError."""
    check_name(kind, name)
    if kind == "user" and name == owner:
        raise RequestError(
            f"Requested to share a kernel with {name!r}, but this user owns it and has every right to it already"
        )
    found = _GIVEN.get(access) if isinstance(access, str) else None
    if found is None:
        raise RequestError(f"Requested the access {str(access)[:40]!r}, which does not exist. Use read or write")
    return Share(kind, name, found)


def check_name(kind: str, name: str) -> None:
    """Check that a user or a team could have this name. Raises RequestError."""
    if name == "*":
        raise RequestError(
            "Requested to share a kernel with all users ('*'), which is not possible. Name users, or a team"
        )
    if name in (".", ".."):
        raise RequestError(
            f"Requested to share a kernel with the {kind} {name!r}, but no URL can hold this name. Use another name"
        )
    if not name.strip() or name != name.strip() or not name.isprintable() or len(name) > _LONGEST_NAME:
        raise RequestError(
            f"Requested to share a kernel with the {kind} {name[:40]!r}, which is not a valid name. "
            f"Use printable text of 1 to {_LONGEST_NAME} characters, without spaces around it"
        )


def read_shares(record: Iterable[Mapping[str, Any]]) -> Shares:
    """Read what Shares.report returned. Raises ValueError for anything else."""
    shares = Shares()
    for entry in record:
        share = Share(str(entry["kind"]), str(entry["name"]), _GIVEN[str(entry["access"])])
        if share.kind not in KINDS:
            raise ValueError(f"it is shared with a {share.kind!r}")
        shares = shares.with_one(share)
    return shares


def too_little(access: Access, needed: Access, owner: str, kernel_id: str) -> str:
    """Return the message for a user who sees a kernel, and requests more than their access allows."""
    how = "read-only" if access is Access.READ else "to use"
    return (
        f"This request needs {_NEEDS[needed]}, but kernel {kernel_id} is shared with you {how} by {owner}: "
        f"you {_MAY[access]}"
    )
