"""The list of host folders for kernels in containers: users' homes, and shared folders.

It has the folders of the configuration, and those that administrators added, which a file keeps. A
folder is shared with users and teams. Each start of a kernel checks its folders on the disk again.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.provisioner.accounts import Account
from jupyter_aliquot.provisioner.containers.plan import Mount
from jupyter_aliquot.provisioner.errors import RequestError, TakenError

from .account_home import home_mount
from .folder_file import read_folders, write_folders
from .rules import check_source, check_target, check_targets, home_of, lies_in, parts_of, seen_inside
from .safe_open import identify_folder, is_folder, make_home
from .shared_folder import HOME, FolderSettings, SharedFolder


@dataclass(frozen=True)
class ListedFolder:
    """A folder in the list.

    ``problem`` is why a folder that an administrator added is given to no kernel.
    """

    folder: SharedFolder
    is_configured: bool
    problem: str | None = None


class Folders:
    """The list of one server. Without the file *state*, administrators can add no folder."""

    def __init__(
        self, settings: FolderSettings, private: Iterable[str], state: Path | None, log: logging.Logger
    ) -> None:
        self._settings = settings
        self._private = tuple(private)
        self._state = state
        self._log = log
        # Requests change it in threads. A change makes another mapping.
        self._changing = threading.Lock()
        self._added: dict[str, SharedFolder] = {}
        if state is not None:
            self._added = {folder.name: folder for folder in read_folders(state, log)}
        for listed in self.all():
            if listed.problem is not None:
                log.warning("folder=%s given=no reason=%s", listed.folder.name, listed.problem)

    @property
    def settings(self) -> FolderSettings:
        return self._settings

    def all(self) -> tuple[ListedFolder, ...]:
        """Return all shared folders, those of the configuration first.

        They win over folders that were added.
        """
        configured = [ListedFolder(folder, True) for folder in self._settings.folders]
        added = [ListedFolder(folder, False, self._problem(folder)) for folder in self._added.values()]
        return tuple(configured + added)

    def of(self, user: User) -> tuple[SharedFolder, ...]:
        """Return the folders that are shared with a user, without the home."""
        return tuple(
            listed.folder for listed in self.all() if listed.problem is None and listed.folder.audience.includes(user)
        )

    def put(self, folder: SharedFolder) -> ListedFolder:
        """Add a folder, or change one that was added. Blocks.

        Raises RequestError, and FolderError for a missing folder.
        """
        self._refuse_configured(folder.name)
        self.check_source(folder.source)
        check_target(folder.target, self._private)
        identify_folder(folder.source)
        with self._changing:
            others = [(name, target) for name, target in self._targets() if name != folder.name]
            check_targets([*others, (folder.name, folder.target)])
            self._keep({**self._added, folder.name: folder})
        return ListedFolder(folder, False)

    def remove(self, name: str) -> ListedFolder | None:
        """Stop sharing a folder; None if there is none of that name. Blocks.

        Running kernels keep it until their end.
        """
        self._refuse_configured(name)
        with self._changing:
            folder = self._added.get(name)
            if folder is None:
                return None
            self._keep({other: kept for other, kept in self._added.items() if other != name})
        return ListedFolder(folder, False)

    def mounts_of(self, user: User, owner: str = "") -> tuple[Mount, ...]:
        """Return the mounts of a kernel of this user, checked on the disk now.

        *owner* is uid:gid of a home that is made.

        Blocks. Raises FolderError.
        """
        mounts = []
        if self._settings.home:
            source = home_of(self._settings.home, user.name)
            found = (
                make_home(source, *self._home_owner(owner)) if self._settings.make_homes else identify_folder(source)
            )
            mounts.append(Mount(source, self._settings.home_target, read_only=False, identity=found))
        return (*mounts, *self._shared_mounts(user))

    def mounts_of_account(self, user: User, account: Account, groups: Iterable[int]) -> tuple[Mount, ...]:
        """Return the mounts of a kernel that runs as the user's account, checked on the disk now.

        The account's own home is at its own path, in the place of `home`. Blocks. Raises RequestError
        and FolderError.
        """
        home = home_mount(account, groups, self._settings.roots, self._private)
        taken = [(name, target) for name, target in self._settings.taken_targets if name != HOME]
        check_targets([(HOME, home.target), *taken, *((folder.name, folder.target) for folder in self.of(user))])
        return (home, *self._shared_mounts(user))

    def check_source(self, source: str) -> None:
        """Check that a folder of the host may be shared. Raises RequestError."""
        check_source(source, self._settings.roots, self._settings.homes, self._private)

    def source_of(self, user: User, path: str, account_home: str) -> str:
        """Return the folder of the host that the user's kernels find at *path*.

        *account_home* is that of kernels which run as the user's account; empty if there are none.

        Raises RequestError.
        """
        seen = self._seen_by(user, account_home)
        if (path == "~" or path.startswith("~/")) and seen:
            path = seen[0].target + path[1:]
        parts_of(path)  # here, so that its error has the user's own words
        source = seen_inside(path, [(one.target, one.source) for one in seen])
        if source is None:
            known = ", ".join(repr(one.target) for one in seen) or "none"
            raise RequestError(
                f"Requested to share {path!r}, but your kernels in containers find no folder there (they have "
                f"{known}). Name a folder by its path in such a kernel"
            )
        return source

    def may_write(self, user: User, source: str, account_home: str) -> bool:
        """Return whether the user's own kernels may write in a folder of the host."""
        found = [one for one in self._seen_by(user, account_home) if lies_in(source, one.source)]
        return bool(found) and not max(found, key=lambda one: len(one.source)).read_only

    def _seen_by(self, user: User, account_home: str) -> list[Mount]:
        """Return the folders of a user's kernels without a look at the disk, homes first. Raises RequestError."""
        homes = []
        if self._settings.home:
            homes.append(Mount(home_of(self._settings.home, user.name), self._settings.home_target, read_only=False))
        if account_home:
            homes.append(Mount(account_home, account_home, read_only=False))
        return [*homes, *(Mount(one.source, one.target, one.read_only) for one in self.of(user))]

    def _shared_mounts(self, user: User) -> tuple[Mount, ...]:
        return tuple(
            Mount(folder.source, folder.target, folder.read_only, identify_folder(folder.source))
            for folder in self.of(user)
        )

    def _home_owner(self, owner: str) -> tuple[int, int]:
        uid, _, gid = (self._settings.home_owner or owner or f"{os.getuid()}:{os.getgid()}").partition(":")
        return int(uid), int(gid)

    def _targets(self) -> list[tuple[str, str]]:
        folders = [*self._settings.folders, *self._added.values()]
        return [*self._settings.taken_targets, *((folder.name, folder.target) for folder in folders)]

    def _problem(self, folder: SharedFolder) -> str | None:
        """Return why a folder that was added cannot be given, if the configuration changed since."""
        own = [(name, target) for name, target in self._targets() if name != folder.name]
        try:
            self._refuse_configured(folder.name)
            self.check_source(folder.source)
            check_target(folder.target, self._private)
            check_targets([*own, (folder.name, folder.target)])
        except RequestError as error:
            return str(error)
        return None

    def _refuse_configured(self, name: str) -> None:
        if name == HOME or any(folder.name == name for folder in self._settings.folders):
            raise TakenError(
                f"Requested to change the folder {name!r}, but the configuration defines it. Change it "
                "there (c.SharedFolders)"
            )

    def _keep(self, added: dict[str, SharedFolder]) -> None:
        """Write the file first, so that kernels get only folders that are kept."""
        write_folders(self._state, added.values())
        self._added = added
        self._log.info("folders=changed added=%d", len(added))


def working_folder(folder: str, mounts: Iterable[Mount], home: str) -> str:
    """Return a kernel's working folder: its notebook's, if it is mounted; else its home. Blocks."""
    seen = seen_inside(folder, [(mount.source, mount.target) for mount in mounts]) if folder else None
    return seen if seen is not None and is_folder(folder) else home
