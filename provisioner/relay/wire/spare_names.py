"""Second names of the kernel's sockets, in the relay's own folder.

The kernel's container does not reach that folder. A relay makes the names when it joins its kernel.
The kernel binds its sockets once: if their own names were removed, a relay that follows a killed
one joins the kernel by these.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Sequence
from pathlib import Path

_REFUSED = (errno.EPERM, errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP)


class SpareNames:
    """The names ``b-1`` … ``b-5`` of one relay's folder.

    They are hard links to the sockets that it joined.
    """

    def __init__(self, prefix: Path, ports: Sequence[int]) -> None:
        self.paths = [Path(f"{os.fspath(prefix)}-{port}") for port in ports]

    def keep(self, descriptors: Sequence[int]) -> None:
        """Name the sockets behind these descriptors, in the order of the ports. Raises OSError.

        On systems that let only their owner link them (``fs.protected_hardlinks``), they get no
        names.
        """
        for descriptor, path in zip(descriptors, self.paths, strict=True):
            with contextlib.suppress(FileNotFoundError):
                if os.lstat(path).st_ino == os.fstat(descriptor).st_ino:
                    continue
                os.unlink(path)
            try:
                _link(descriptor, path)
            except OSError as error:
                if error.errno not in _REFUSED:
                    raise

    def answer(self) -> bool:
        """Tell whether each name is there, and a process listens at it."""
        return all(is_listened_at(path) for path in self.paths)

    def remove(self) -> None:
        """Remove the names of a kernel that ended: the next one has other sockets."""
        for path in self.paths:
            with contextlib.suppress(OSError):
                os.unlink(path)


def is_listened_at(path: Path) -> bool:
    """Tell whether a process listens at this socket. Never waits for it."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)  # a kernel that takes no connection lives, and must not make us wait
        return stat.S_ISSOCK(path.lstat().st_mode) and probe.connect_ex(os.fspath(path)) in (0, errno.EAGAIN)
    return False


def _link(descriptor: int, path: Path) -> None:
    """Make a hard link to a descriptor's file.

    os.link follows the symbolic link in /proc only if it gets a folder's descriptor.
    """
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.link(f"/proc/self/fd/{descriptor}", path.name, dst_dir_fd=folder)
    finally:
        os.close(folder)
