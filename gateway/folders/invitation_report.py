"""REST reports of invitations. Collaborators learn neither the owner's paths nor each other.

Each report looks at the folder on the disk, so that a problem is told before a kernel lacks the folder.
"""

from __future__ import annotations

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.clock import iso, iso_moment
from jupyter_aliquot.gateway.reports import invitation as reports
from jupyter_aliquot.gateway.reports.status import Folder

from .invitation import Invitation
from .invitations import Invitations

NOT_ALLOWED = (
    "Users of this server share no folders: its administrator has not allowed any (c.SharedFolders.user_roots)"
)
NO_CONTAINERS = (
    "This server starts no kernels in containers, and a folder is shared with kernels in containers alone: where "
    "kernels run as processes, the modes of files decide"
)
ONE_USER = "This server has one user, so there is no other to invite"


def refusal(found: Invitations, *, has_images: bool, has_users: bool) -> str | None:
    """Return why users of this server cannot invite others; None where they can."""
    if not found.roots:
        return NOT_ALLOWED
    if not has_users:
        return ONE_USER
    return None if has_images else NO_CONTAINERS


def invitations_report(found: Invitations, who: User, why_not: str | None) -> reports.Invitations:
    """Return all that the user may see, and why users cannot invite others. Blocks."""
    found.read_again()
    return {"invitations": [invitation_report(found, one, who) for one in found.seen_by(who)], "refusal": why_not}


def invitation_report(found: Invitations, invitation: Invitation, who: User) -> reports.Invitation:
    """Return one invitation, as the user *who* may see it. Blocks."""
    is_owners = who.is_admin or who.name == invitation.owner
    problem = found.problem(invitation)
    if problem is not None and not is_owners:
        problem = f"The folder cannot be mounted now. Ask {invitation.owner}"
    return {
        "id": invitation.id,
        "owner": invitation.owner,
        "name": invitation.name,
        "kind": invitation.kind,
        "invited": invitation.invited,
        "access": invitation.access,
        "since": iso_moment(invitation.since),
        "until": iso(invitation.until),
        "target": found.target_of(invitation),
        "path": invitation.path if is_owners else None,
        "source": invitation.source if who.is_admin else None,
        "answer": _answer(invitation, who),
        "accepted": sorted(invitation.accepted) if is_owners else None,
        "problem": problem,
    }


def open_invitations(found: Invitations, who: User) -> list[reports.OpenInvitation]:
    """Return the invitations that the user has not answered. Part of each status, so it looks at no disk."""
    return [
        {
            "id": one.id,
            "owner": one.owner,
            "name": one.name,
            "access": one.access,
            "since": iso_moment(one.since),
        }
        for one in found.open_for(who)
    ]


def invited_folders(found: Invitations, who: User) -> list[Folder]:
    """Return the folders of others that the user accepted, in the form of all folders of kernels. Blocks."""
    folders: dict[str, Folder] = {}
    for invitation in found.seen_by(who):
        if _answer(invitation, who) != "accepted":
            continue
        report = invitation_report(found, invitation, User(who.name, "user", who.teams))
        before = folders.get(report["target"])
        is_readable_only = report["access"] == "read" and (before is None or before["read_only"])
        folders[report["target"]] = {
            "name": f"{invitation.owner}/{invitation.name}",
            "kind": "invited",
            "target": report["target"],
            "read_only": is_readable_only,
            "mine": report["problem"] is None,
            "origin": "invitation",
            "source": invitation.source if who.is_admin else None,
            "users": None,
            "teams": None,
            "problem": report["problem"],
        }
    return list(folders.values())


def _answer(invitation: Invitation, who: User) -> str | None:
    if not invitation.invites(who):
        return None
    if who.name in invitation.accepted:
        return "accepted"
    return "declined" if who.name in invitation.declined else "none"
