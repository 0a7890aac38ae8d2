"""Check that an engine mounted the folder that the gateway checked.

A path may lead elsewhere by the time the engine follows it. This module reads /proc and ends no
process by itself.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from jupyter_aliquot.provisioner.errors import FolderError

from .plan import FolderIdentity, Mount

_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class ContainerNotVisible(Exception):
    """The container's process is not visible from here.

    Its engine is elsewhere, or our rights do not suffice.
    """


def check_mounts(pid: int, mounts: Iterable[Mount], proc: Path = Path("/proc")) -> None:
    """Compare each mount that has an identity with what the process `pid` finds at its target.

    Raises FolderError for another folder, whose kernel must be ended, and ContainerNotVisible if
    the mounts cannot be compared from here.
    """
    checked = [mount for mount in mounts if mount.identity is not None]
    if not checked:
        return
    root = _open_root(pid, proc)
    try:
        for mount in checked:
            found = _look(root, mount.target)
            if found != mount.identity:
                # A process that ended meanwhile has lost its mounts: the bare places below them are
                # then visible.
                os.close(_open_root(pid, proc))
                raise FolderError(
                    f"Requested to mount {mount.source!r} at {mount.target!r}, but another folder is "
                    "mounted there than the one that was checked: it was replaced meanwhile, and the kernel was "
                    "ended. Start it again"
                )
    finally:
        os.close(root)


def _open_root(pid: int, proc: Path) -> int:
    """Open the root of a process.

    A process that has ended has none, and loses it before its mounts.
    """
    try:
        return os.open(proc / str(pid) / "root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ContainerNotVisible(f"the root of process {pid} cannot be opened: {error.strerror}") from error


def _look(root: int, target: str) -> FolderIdentity | None:
    """Return the identity of what lies at `target` below `root`.

    None for a link on the way, which the image or a user put there.
    """
    descriptor = os.dup(root)
    try:
        for part in target.strip("/").split("/"):
            above, descriptor = descriptor, os.open(part, _LOOK, dir_fd=descriptor)
            os.close(above)
            if stat.S_ISLNK(os.fstat(descriptor).st_mode):
                return None
        found = os.fstat(descriptor)
        return FolderIdentity(found.st_dev, found.st_ino)
    except OSError:
        return None
    finally:
        os.close(descriptor)
