"""A user's own folder on the disk: opened below the user's root, without a link and on one file system.

A folder is a user's own if it lies below a root of that user and has the root's owner on the disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass

from jupyter_aliquot.provisioner.containers.plan import FolderIdentity
from jupyter_aliquot.provisioner.errors import FolderError

from .birth import born_of
from .safe_open import identity_of, opened

_ENTER = os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True)
class OwnFolder:
    """A user's own folder as it lies on the disk now. ``born`` is 0 where the file system does not tell."""

    identity: FolderIdentity
    born: int = 0


def identify_own(root: str, source: str, shown: str) -> OwnFolder:
    """Return the folder at *source*, which lies below *root*. Blocks.

    Args:
        root: The folder of the host that is all of its user's own.
        source: The folder on the host.
        shown: Its path for errors, which users read: they learn nothing of the host.

    Raises:
        FolderError: It is missing, a link or another file system is on the way, or another account
            owns it.
    """
    asked = f"The folder {shown!r} cannot be shared"
    with ExitStack() as kept:
        try:
            top = kept.enter_context(opened(root))
        except FolderError:
            raise FolderError(f"{asked}, for your files cannot be opened. Ask an administrator") from None
        try:
            return _identify_below(top, source[len(root) :].strip("/").split("/"), asked)
        except NotADirectoryError:
            raise FolderError(
                f"{asked}, for a symbolic link or a file is on the way to it, and links are not followed. Name the "
                "folder itself"
            ) from None
        except OSError as error:
            raise FolderError(f"{asked}: {error.strerror}. Make it, or name another one") from error


def _identify_below(top: int, parts: Iterable[str], asked: str) -> OwnFolder:
    """Walk down from the open folder *top*. Raises FolderError and OSError."""
    descriptor = os.dup(top)
    try:
        for part in parts:
            above, descriptor = descriptor, os.open(part, _ENTER, dir_fd=descriptor)
            os.close(above)
            # Before anything asks the file system itself: one of a user's own making may not answer.
            if _mount_of(descriptor) != _mount_of(top):
                raise FolderError(f"{asked}, for another file system is mounted at {part!r}. Choose another folder")
        if os.fstat(descriptor).st_uid != os.fstat(top).st_uid:
            raise FolderError(f"{asked}, for it has another owner than your files. Choose a folder of yours")
        return OwnFolder(identity_of(descriptor), born_of(descriptor))
    finally:
        os.close(descriptor)


def _mount_of(descriptor: int) -> str:
    """Return the number of the mount that an open folder is in. A mount of the same file system differs."""
    with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as lines:
        return next((line.split()[1] for line in lines if line.startswith("mnt_id:")), "")
