"""Shared folders as values, and the settings that name them.

Only the roots are checked on the disk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_core.paths import jupyter_data_dir
from traitlets import Bool, List, TraitError, Unicode
from traitlets.config import Configurable

from jupyter_aliquot.gateway.auth.principals import Audience, read_audience
from jupyter_aliquot.gateway.base.fields import Entry
from jupyter_aliquot.gateway.config import Aliquot
from jupyter_aliquot.gpu_hook.paths import find_runtime_dir
from jupyter_aliquot.provisioner.errors import RequestError

from .rules import NAME, USER, check_home, check_root, check_source, check_target, check_targets, check_user_root

# The name of a home in lists. No folder can have it.
HOME = "home"
# The name in errors of the folder below which kernels find folders that other users share.
INVITED = "folders of other users"

_OWNER = re.compile(r"(\d{1,9}:\d{1,9})?", re.ASCII)


@dataclass(frozen=True)
class SharedFolder:
    """One host folder, its users and teams, and where their kernels find it."""

    name: str
    source: str
    target: str
    audience: Audience
    read_only: bool = True


@dataclass(frozen=True)
class FolderSettings:
    """The settings, read and checked."""

    roots: tuple[str, ...] = ()
    home: str = ""
    home_target: str = "/home/user"
    home_owner: str = ""
    make_homes: bool = False
    folders: tuple[SharedFolder, ...] = ()
    user_roots: tuple[str, ...] = ()
    invited_target: str = "/shared"

    @property
    def taken_targets(self) -> list[tuple[str, str]]:
        """Return the targets that no shared folder may have, by names."""
        home = [(HOME, self.home_target)] if self.home else []
        return [*home, *([(INVITED, self.invited_target)] if self.user_roots else [])]

    @property
    def homes(self) -> str:
        """Return the folder that holds all homes; empty if there are none."""
        return self.home.rpartition("/")[0] if self.home else ""


class SharedFolders(Configurable):
    """The host folders for kernels in containers."""

    roots = List(
        Unicode(), [], help="Folders of this machine in which all that is shared must lie; empty: nothing is shared."
    ).tag(config=True)
    home = Unicode(
        "", help=f"Each user's home on this machine, such as /srv/homes/{USER}; empty: kernels in containers have none."
    ).tag(config=True)
    home_target = Unicode("/home/user", help="Where a kernel finds its user's home; the same for all users.").tag(
        config=True
    )
    make_homes = Bool(False, help="Make a home that is not there, for its user alone (mode 0700).").tag(config=True)
    home_owner = Unicode(
        "",
        help="uid:gid on this machine of homes that are made; empty for the image's `user`, or the server's account.",
    ).tag(config=True)
    user_roots = List(
        Unicode(),
        [],
        help=f"Folders of each user, such as /srv/homes/{USER}, below which users invite others to folders of "
        "theirs; empty: only administrators share folders.",
    ).tag(config=True)
    invited_target = Unicode(
        "/shared", help="Where a kernel finds folders that other users share, each at OWNER/NAME below it."
    ).tag(config=True)
    folders: List[Any] = List(
        help="Folders shared with users and teams, each a table: see folders.md. REST may add more."
    ).tag(config=True)

    def read(self, private: Iterable[str]) -> FolderSettings:
        """Read and check all settings. *private* are Aliquot's own folders. Raises TraitError."""
        try:
            return self._read(tuple(private))
        except RequestError as error:
            raise TraitError(f"c.SharedFolders: {error}") from None

    def _read(self, private: tuple[str, ...]) -> FolderSettings:
        for root in self.roots:
            check_root(root)
            if os.path.realpath(root) != root:
                raise RequestError(f"The root {root!r} has a symbolic link on its way. Use {os.path.realpath(root)!r}")
        if not _OWNER.fullmatch(self.home_owner):
            raise RequestError(f"home_owner {self.home_owner!r} is not uid:gid. Use two numbers such as 1000:1000")
        if self.home:
            check_home(self.home, self.roots, private)
            check_target(self.home_target, private)
        homes = self.home.rpartition("/")[0] if self.home else ""
        folders = [read_folder(table, f"folders[{number}]") for number, table in enumerate(self.folders)]
        for folder in folders:
            check_source(folder.source, self.roots, homes, private)
            check_target(folder.target, private)
        if len({folder.name for folder in folders}) < len(folders):
            raise RequestError("Two folders have one name. Give each a name of its own")
        settings = FolderSettings(
            roots=tuple(self.roots),
            home=self.home,
            home_target=self.home_target,
            home_owner=self.home_owner,
            make_homes=self.make_homes,
            folders=tuple(folders),
            user_roots=self._user_roots(private),
            invited_target=self.invited_target,
        )
        check_targets([*settings.taken_targets, *((folder.name, folder.target) for folder in folders)])
        return settings

    def _user_roots(self, private: tuple[str, ...]) -> tuple[str, ...]:
        for template in self.user_roots:
            check_user_root(template, self.roots, private)
        if self.user_roots:
            check_target(self.invited_target, private)
        return tuple(self.user_roots)


def read_folder(table: object, where: str, name: str | None = None) -> SharedFolder:
    """Read one folder, from the configuration, a request or the file.

    With *name*, the table has none.

    Raises RequestError.
    """
    entry = Entry(where, table)
    name = entry.text("name") if name is None else name
    if not NAME.fullmatch(name) or name == HOME:
        raise entry.refused("name", name, f"at most 63 of a-z, 0-9, '.', '_' and '-', and not {HOME!r}")
    entry.where = f"the folder {name!r}"
    folder = SharedFolder(
        name=name,
        source=entry.text("source"),
        target=entry.text("target"),
        audience=read_audience(entry),
        read_only=entry.flag("read_only", True),
    )
    entry.finish()
    if folder.audience.is_empty:
        raise entry.refused("users", [], "users or teams that it is for; ['*'] for all users")
    return folder


def folder_table(folder: SharedFolder) -> Mapping[str, Any]:
    """Return a folder as `read_folder` reads it."""
    return {
        "name": folder.name,
        "source": folder.source,
        "target": folder.target,
        "users": sorted(folder.audience.users),
        "teams": sorted(folder.audience.teams),
        "read_only": folder.read_only,
    }


def private_folders(settings: Aliquot) -> tuple[str, ...]:
    """Return Aliquot's own folders, as they are written and resolved.

    They are never shared or covered in a kernel.

    They are the runtime folder with its sockets, and the folder of gateways' state.
    """
    runtime = settings.runtime_dir or str(find_runtime_dir().path)
    state = settings.state_dir or os.path.join(jupyter_data_dir(), "aliquot")
    paths = [os.path.abspath(path) for path in (runtime, state)]
    return tuple(dict.fromkeys([*paths, *map(os.path.realpath, paths)]))
