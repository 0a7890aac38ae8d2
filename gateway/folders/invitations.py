"""The invitations of users to folders of theirs: the one writer of them, and the mounts that follow.

An owner names a folder as the owner's kernels see it, and only folders below a root of that owner
can be shared. A folder appears in the kernels of a user who accepted, and each start checks it
again. A folder that fails the check is left out of the start: no owner keeps a collaborator from working.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.provisioner.containers.plan import FolderIdentity, Mount
from jupyter_aliquot.provisioner.errors import (
    AliquotError,
    FolderError,
    LimitError,
    RequestError,
    StateError,
    TakenError,
)

from .invitation import Invitation, Wish
from .invitation_file import MOST, InvitationFile
from .patient_look import PatientLook
from .registry import Folders
from .rules import check_own, home_of, lies_in
from .user_folder import OwnFolder, identify_own

MOST_OF_OWNER = 100
# In the second half of all places, so that a hundred owners do not take them all.
FEW_OF_OWNER = 10
# Each is a mount of every kernel of that user.
MOST_ACCEPTED = 32
# Users who answered one invitation of a team.
MOST_ANSWERS = 1000

# Called with what happened, the invitation and the user who did it.
InvitationObserver = Callable[[str, Invitation, str], None]


@dataclass(frozen=True)
class Owners:
    """The facts of users that invitations depend on.

    ``exists`` returns whether this server has the user. ``home_of_account`` returns the home of the
    user's account where kernels in containers run as that account; else an empty text. It may block.
    """

    exists: Callable[[str], bool]
    home_of_account: Callable[[str], str]
    user_named: Callable[[str], User]


class Invitations:
    """All invitations of one server, in a file. Without a file there are none."""

    def __init__(self, folders: Folders, owners: Owners, path: Path | None, clock: Clock, log: logging.Logger) -> None:
        self._folders = folders
        self._owners = owners
        self._clock = clock
        self._log = log
        self._look = PatientLook(identify_own)
        self._observers: list[InvitationObserver] = []
        # Requests change it in threads. A change makes another mapping.
        self._changing = threading.Lock()
        self._all: Mapping[str, Invitation] = {}
        self._by_collaborator: Mapping[tuple[str, str], Sequence[Invitation]] = {}
        self._file = InvitationFile(path, log)
        self._is_read = False
        self.read_again()

    def read_again(self) -> None:
        """Read a file that could not be read before. Blocks."""
        if not self._is_read:
            with self._changing, suppress(StateError):
                self._read()

    def _read(self) -> None:
        """Read the file if it was not read yet. Raises StateError: what was not read must not be replaced."""
        if not self._is_read:
            self._take(self._file.read())
            self._is_read = True

    def observe(self, observer: InvitationObserver) -> None:
        """Call *observer* after each change, in the thread that made it."""
        self._observers.append(observer)

    @property
    def now(self) -> float:
        """Return the present, in seconds since the epoch."""
        return self._clock.wall()

    @property
    def target(self) -> str:
        """Return the folder of kernels in which shared folders appear."""
        return self._folders.settings.invited_target

    @property
    def roots(self) -> tuple[str, ...]:
        """Return the templates of the folders that users may share from; none: users share nothing."""
        return self._folders.settings.user_roots

    def seen_by(self, user: User) -> tuple[Invitation, ...]:
        """Return the user's own invitations and those for the user; for an administrator, all."""
        now = self._clock.wall()
        found = (one for one in self._all.values() if user.is_admin or one.owner == user.name or one.invites(user))
        return tuple(one for one in found if not one.has_ended(now))

    def open_for(self, user: User) -> tuple[Invitation, ...]:
        """Return the invitations that the user has not answered. Called with each status: it looks at no other's."""
        if not self._by_collaborator:
            return ()
        now, names = self._clock.wall(), [("user", user.name), *(("team", team) for team in sorted(user.teams))]
        return tuple(
            one
            for name in names
            for one in self._by_collaborator.get(name, ())
            if one.invites(user) and user.name not in one.accepted | one.declined and not one.has_ended(now)
        )

    def find(self, id_: str, user: User) -> Invitation | None:
        """Return one of the invitations that the user sees; None if there is none of that id."""
        found = self._all.get(id_)
        return found if found is not None and found in self.seen_by(user) else None

    def target_of(self, invitation: Invitation) -> str:
        """Return where a collaborator's kernels find the folder."""
        return f"{self.target}/{invitation.owner}/{invitation.name}"

    def invite(self, user: User, wish: Wish) -> Invitation:
        """Invite a user or team to a folder of *user*, or change such an invitation. Blocks.

        Raises RequestError, FolderError, LimitError and StateError.
        """
        if wish.kind == "user" and wish.invited == user.name:
            raise RequestError(
                f"Requested to share a folder with {user.name!r}, who owns it already. Name another user"
            )
        source = self._source_of(user.name, wish.path)
        if wish.is_writable:
            self._check_writable(user, source, wish.path)
        folder = self._identify(user.name, source, wish.path)
        with self._changing:
            self._read()
            present = self._present()
            own = [one for one in present if one.owner == user.name]
            if clash := next((one for one in own if one.name == wish.name and one.source != source), None):
                raise TakenError(
                    f"Requested to share {wish.path!r} as {wish.name!r}, but that is the name of {clash.path!r}. "
                    "Choose another name"
                )
            before = next((one for one in own if _is_same(one, wish)), None)
            if before is None:
                _check_room(len(own), len(present))
            made = self._made(user, wish, source, folder, before)
            self._keep(made)
        self._tell("invite", made, user.name)
        return made

    def end(self, invitation: Invitation, by: User) -> None:
        """End an invitation. Kernels that start from now on do not get the folder. Blocks. Raises StateError."""
        with self._changing:
            if invitation.id not in self._all:
                return
            self._write({one.id: one for one in self._present() if one.id != invitation.id})
        self._tell("uninvite", invitation, by.name)

    def answer(self, invitation: Invitation, user: User, *, is_accepted: bool) -> Invitation:
        """Accept or decline. Kernels that the user starts from now on follow. Blocks.

        Raises LimitError, StateError and RequestError.
        """
        if not invitation.invites(user):
            raise RequestError(f"Requested to answer an invitation of {invitation.owner}, but it is not for you")
        with self._changing:
            present = self._all.get(invitation.id)
            if present is None or present.has_ended(self._clock.wall()):
                raise RequestError(f"Requested to answer an invitation of {invitation.owner}, but it has ended")
            if is_accepted and len(self._accepted_by(user) - {self._target_key(present)}) >= MOST_ACCEPTED:
                raise LimitError(f"You have accepted {MOST_ACCEPTED} folders, which is the most. Decline one first")
            others = (present.accepted | present.declined) - {user.name}
            if len(others) >= MOST_ANSWERS:
                raise LimitError(f"{MOST_ANSWERS} users have answered this invitation, which is the most")
            accepted, declined = present.accepted - {user.name}, present.declined - {user.name}
            if is_accepted:
                accepted |= {user.name}
            else:
                declined |= {user.name}
            made = replace(present, accepted=accepted, declined=declined)
            if made != present:
                self._keep(made)
        if made != present:
            self._tell("accept" if is_accepted else "decline", made, user.name)
        return made

    def users(self) -> frozenset[str]:
        """Return the users who share a folder, or have answered an invitation."""
        return frozenset(name for one in self._present() if not one.is_orphaned for name in one.users)

    def remove_users(self, removed: Collection[str]) -> None:
        """Take back what users shared and accepted who are removed from the server. Blocks. Raises StateError.

        An invitation without its owner or its only collaborator stays in the list, where an administrator ends it.
        """
        with self._changing:
            self._read()
            made = {one.id: one.without(removed) for one in self._present()}
            orphaned = [one for one in made.values() if one.is_orphaned and not self._all[one.id].is_orphaned]
            if made != self._all:
                self._write(made)
        for one in orphaned:
            self._tell("orphan", one, "")

    def mounts_of(self, user: User) -> tuple[Mount, ...]:
        """Return the mounts of the folders that the user accepted, checked on the disk now. Blocks.

        A folder with a problem is left out, and logged.
        """
        self.read_again()
        found: dict[str, Mount] = {}
        for invitation in self._given_to(user):
            try:
                identity, is_writable = self.check(invitation)
            except AliquotError as error:
                self._log.warning(
                    "invitation=%s owner=%s collaborator=%s mounted=no reason=%s",
                    invitation.id,
                    invitation.owner,
                    user.name,
                    error,
                )
                continue
            target = self.target_of(invitation)
            before = found.get(target)
            read_only = not is_writable and (before is None or before.read_only)
            found[target] = Mount(invitation.source, target, read_only, identity, is_optional=True)
        return tuple(list(found.values())[:MOST_ACCEPTED])

    def check(self, invitation: Invitation) -> tuple[FolderIdentity, bool]:
        """Return the identity of the folder now, and whether it may be written. Blocks.

        Raises RequestError and FolderError with words for the owner.
        """
        owner = invitation.owner
        if invitation.is_orphaned:
            raise FolderError(
                f"The owner {owner!r} or the only collaborator {invitation.invited!r} was removed from this server, so "
                "that no user gets the folder. End the invitation, or share the folder again"
            )
        if not self._owners.exists(owner):
            raise FolderError(f"This server has no user {owner!r} any more")
        folder = self._identify(owner, invitation.source, invitation.path)
        if not invitation.is_of(folder.identity.inode, folder.born):
            raise FolderError(
                f"{invitation.path!r} is another folder than the one that was shared: it was replaced. Share it again"
            )
        is_writable = invitation.is_writable
        if is_writable:
            try:
                self._check_writable(self._owners.user_named(owner), invitation.source, invitation.path)
            except RequestError:
                is_writable = False
        return folder.identity, is_writable

    def problem(self, invitation: Invitation) -> str | None:
        """Return why no kernel gets the folder, in words for its owner; None when all is well. Blocks."""
        try:
            self.check(invitation)
        except AliquotError as error:
            return str(error)
        return None

    def _given_to(self, user: User) -> list[Invitation]:
        """Return the invitations that the user accepted and still has."""
        now = self._clock.wall()
        return [
            one
            for one in self._all.values()
            if user.name in one.accepted and one.invites(user) and not one.has_ended(now)
        ]

    def _accepted_by(self, user: User) -> set[tuple[str, str]]:
        return {self._target_key(one) for one in self._given_to(user)}

    @staticmethod
    def _target_key(invitation: Invitation) -> tuple[str, str]:
        return invitation.owner, invitation.name

    def _source_of(self, owner: str, path: str) -> str:
        """Return the folder of the host that the owner's kernels find at *path*. May block. Raises RequestError."""
        return self._folders.source_of(self._owners.user_named(owner), path, self._owners.home_of_account(owner))

    def _check_writable(self, owner: User, source: str, path: str) -> None:
        """Refuse write access to a folder that the owner's own kernels cannot write. Raises RequestError."""
        if not self._folders.may_write(owner, source, self._owners.home_of_account(owner.name)):
            raise RequestError(
                f"Requested to let others write to {path!r}, but your own kernels only read it. Share it to read"
            )

    def _identify(self, owner: str, source: str, path: str) -> OwnFolder:
        """Check that the folder is the owner's own and may be shared. Blocks. Raises RequestError, FolderError."""
        settings = self._folders.settings
        roots = [home_of(template, owner) for template in settings.user_roots]
        root = next((root for root in roots if lies_in(source, root) and source != root), None)
        check_own(source, root, path)
        assert root is not None  # check_own has refused it
        self._folders.check_source(source)
        return self._look(root, source, path)

    def _made(self, user: User, wish: Wish, source: str, folder: OwnFolder, before: Invitation | None) -> Invitation:
        inode, born = folder.identity.inode, folder.born
        if before is not None:
            changed = replace(
                before,
                inode=inode,
                born=born,
                is_writable=wish.is_writable,
                until=wish.until,
                path=wish.path,
                is_orphaned=False,
            )
            if not before.is_of(inode, born):
                # Its collaborators did not accept another folder at the same path.
                changed = replace(changed, accepted=frozenset(), declined=frozenset())
            return changed if changed.is_answered else replace(changed, since=self._clock.wall())
        return Invitation(
            id=secrets.token_hex(8),
            owner=user.name,
            name=wish.name,
            path=wish.path,
            source=source,
            inode=inode,
            born=born,
            kind=wish.kind,
            invited=wish.invited,
            is_writable=wish.is_writable,
            since=self._clock.wall(),
            until=wish.until,
        )

    def _present(self) -> list[Invitation]:
        now = self._clock.wall()
        return [one for one in self._all.values() if not one.has_ended(now)]

    def _keep(self, invitation: Invitation) -> None:
        self._write({**{one.id: one for one in self._present()}, invitation.id: invitation})

    def _write(self, made: Mapping[str, Invitation]) -> None:
        """Write the file first, so that kernels get only what is kept. Raises StateError."""
        self._file.write(made.values())
        self._take(made)

    def _take(self, made: Mapping[str, Invitation]) -> None:
        by_collaborator: dict[tuple[str, str], list[Invitation]] = {}
        for one in made.values():
            by_collaborator.setdefault((one.kind, one.invited), []).append(one)
        self._all, self._by_collaborator = made, by_collaborator

    def _tell(self, action: str, invitation: Invitation, by: str) -> None:
        for observer in self._observers:
            observer(action, invitation, by)


def _check_room(own: int, all_: int) -> None:
    """Refuse one more invitation than an owner, or the server, may have. Raises LimitError."""
    most = MOST_OF_OWNER if all_ < MOST // 2 else FEW_OF_OWNER
    if all_ >= MOST:
        raise LimitError(f"This server has {MOST} invitations, which is the most. Ask an administrator")
    if own >= most:
        raise LimitError(
            f"You have {own} invitations, and may have {most} on a server with {all_} of them. End one, or invite a "
            "team"
        )


def _is_same(invitation: Invitation, wish: Wish) -> bool:
    """Return whether a request is of the folder, and for the user or team, of an invitation."""
    return (invitation.name, invitation.kind, invitation.invited) == (wish.name, wish.kind, wish.invited)
