"""Folders of the host that kernels in containers get: users' homes, and folders shared with named users and teams.

Owns the list: what the configuration says, and what administrators added, kept in one file that is replaced whole.
Every folder is looked at again at each start; the list alone opens nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.provisioner.containers.plan import Mount
from jupyter_aliquot.provisioner.errors import RequestError, TakenError

from .folder_file import read_folders, write_folders
from .rules import check_source, check_target, check_targets, home_of, seen_inside
from .safe_open import is_folder, look_at, make_home
from .shared_folder import HOME, FolderSettings, SharedFolder


@dataclass(frozen=True)
class ListedFolder:
    """A folder as the list has it. ``problem``: why one that an administrator added is not given to anybody."""

    folder: SharedFolder
    is_configured: bool
    problem: str | None = None


class Folders:
    """The list of one server. ``state`` None: there is nowhere to keep what administrators add."""

    def __init__(
        self, settings: FolderSettings, private: Iterable[str], state: Path | None, log: logging.Logger
    ) -> None:
        self._settings = settings
        self._private = tuple(private)
        self._state = state
        self._log = log
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
        """All shared folders, those of the configuration first. What it says wins over what was added earlier."""
        configured = [ListedFolder(folder, True) for folder in self._settings.folders]
        added = [ListedFolder(folder, False, self._problem(folder)) for folder in self._added.values()]
        return tuple(configured + added)

    def of(self, user: User) -> tuple[SharedFolder, ...]:
        """What is shared with a user, apart from the home."""
        return tuple(
            listed.folder for listed in self.all() if listed.problem is None and listed.folder.audience.includes(user)
        )

    def put(self, folder: SharedFolder) -> ListedFolder:
        """Add a folder, or change one that was added. Raises RequestError, and FolderError for what is not there."""
        self._refuse_configured(folder.name)
        check_source(folder.source, self._settings.roots, self._settings.homes, self._private)
        check_target(folder.target, self._private)
        others = [(name, target) for name, target in self._targets() if name != folder.name]
        check_targets([*others, (folder.name, folder.target)])
        look_at(folder.source)
        self._keep({**self._added, folder.name: folder})
        return ListedFolder(folder, False)

    def remove(self, name: str) -> ListedFolder | None:
        """Share a folder no more; None if there is none of that name. Kernels that run keep it until their end."""
        self._refuse_configured(name)
        folder = self._added.get(name)
        if folder is None:
            return None
        self._keep({other: kept for other, kept in self._added.items() if other != name})
        return ListedFolder(folder, False)

    def mounts_of(self, user: User, owner: str = "") -> tuple[Mount, ...]:
        """What a kernel of this user gets, looked at now: blocks. ``owner``: uid:gid of a home that is made.

        Raises FolderError.
        """
        mounts = []
        if self._settings.home:
            source = home_of(self._settings.home, user.name)
            found = make_home(source, *self._home_owner(owner)) if self._settings.make_homes else look_at(source)
            mounts.append(Mount(source, self._settings.home_target, read_only=False, identity=found))
        for folder in self.of(user):
            mounts.append(Mount(folder.source, folder.target, folder.read_only, look_at(folder.source)))
        return tuple(mounts)

    def _home_owner(self, owner: str) -> tuple[int, int]:
        uid, _, gid = (self._settings.home_owner or owner or f"{os.getuid()}:{os.getgid()}").partition(":")
        return int(uid), int(gid)

    def _targets(self) -> list[tuple[str, str]]:
        home = [(HOME, self._settings.home_target)] if self._settings.home else []
        folders = [*self._settings.folders, *self._added.values()]
        return [*home, *((folder.name, folder.target) for folder in folders)]

    def _problem(self, folder: SharedFolder) -> str | None:
        """Why a folder that was added cannot be given: the configuration changed since."""
        own = [(name, target) for name, target in self._targets() if name != folder.name]
        try:
            self._refuse_configured(folder.name)
            check_source(folder.source, self._settings.roots, self._settings.homes, self._private)
            check_target(folder.target, self._private)
            check_targets([*own, (folder.name, folder.target)])
        except RequestError as error:
            return str(error)
        return None

    def _refuse_configured(self, name: str) -> None:
        if name == HOME or any(folder.name == name for folder in self._settings.folders):
            raise TakenError(
                f"asked to change the folder {name!r}; found it in the configuration; change it there (c.SharedFolders)"
            )

    def _keep(self, added: dict[str, SharedFolder]) -> None:
        """The file first: what is given to kernels is what is remembered."""
        write_folders(self._state, added.values())
        self._added = added
        self._log.info("folders=changed added=%d", len(added))


def working_folder(folder: str, mounts: Iterable[Mount], home: str) -> str:
    """Where a kernel begins: its notebook's folder, if that lies in what is mounted; else its home. Blocks."""
    seen = seen_inside(folder, [(mount.source, mount.target) for mount in mounts]) if folder else None
    return seen if seen is not None and is_folder(folder) else home
