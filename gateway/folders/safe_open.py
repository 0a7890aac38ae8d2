"""Checks of shared folders on the disk without following any link, and making of homes.

A user may replace one of their folders by a symbolic link or another folder at any moment. Each
component is therefore opened from the one before it, and device and inode are kept for the check
after the mount.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from jupyter_aliquot.provisioner.containers.plan import FolderIdentity
from jupyter_aliquot.provisioner.errors import FolderError

from .rules import parts_of

_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def identify_folder(path: str) -> FolderIdentity:
    """Return the identity of the folder at *path*, reached through folders alone.

    Raises FolderError.
    """
    with opened(path) as descriptor:
        return identity_of(descriptor)


def make_home(path: str, user_id: int, group_id: int) -> FolderIdentity:
    """Return the identity of the home at *path*, made for this owner alone if it is missing.

    Raises FolderError.
    """
    above, _, name = path.rpartition("/")
    with opened(above or "/") as parent:
        try:
            os.mkdir(name, 0o700, dir_fd=parent)
        except FileExistsError:
            return identify_folder(path)
        except OSError as error:
            raise FolderError(f"The home {path!r} cannot be created: {error.strerror}. Create it by hand") from error
        try:
            with _closing(
                os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            ) as new:
                os.fchown(new, user_id, group_id)
                os.fchmod(new, 0o700)
                return identity_of(new)
        except OSError as error:
            os.rmdir(name, dir_fd=parent)
            raise FolderError(
                f"The new home {path!r} cannot be given to {user_id}:{group_id}: {error.strerror}. Run "
                "the server as root, or create homes by hand (c.SharedFolders.make_homes = False)"
            ) from error


def is_folder(path: str) -> bool:
    """Return whether *path* is a folder that is reached through folders alone."""
    try:
        identify_folder(path)
    except FolderError:
        return False
    return True


@contextmanager
def opened(path: str) -> Iterator[int]:
    """Open the folder at *path*.

    Raises FolderError for a link on the way, and for a path that is no folder.
    """
    descriptor = os.open("/", _LOOK)
    try:
        so_far = ""
        for part in parts_of(path):
            so_far = f"{so_far}/{part}"
            above, descriptor = descriptor, _step(descriptor, part, path, so_far)
            os.close(above)
        yield descriptor
    finally:
        os.close(descriptor)


def identity_of(descriptor: int) -> FolderIdentity:
    """Return the identity of an open folder, independent of its name."""
    found = os.fstat(descriptor)
    return FolderIdentity(found.st_dev, found.st_ino)


def _step(above: int, part: str, path: str, so_far: str) -> int:
    try:
        descriptor = os.open(part, _LOOK, dir_fd=above)
    except OSError as error:
        raise FolderError(
            f"The folder {path!r} cannot be opened at {so_far!r}: {error.strerror}. Create it, or stop sharing it"
        ) from error
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(kind):
        return descriptor
    os.close(descriptor)
    what = "a symbolic link" if stat.S_ISLNK(kind) else "no folder"
    raise FolderError(
        f"The folder {path!r} cannot be opened: {so_far!r} is {what}, and links are not followed. "
        "Put the folder itself there"
    )


@contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)
