"""Run a command where the machine has other accounts: ``python namespaced.py FOLDER COMMAND``.

The command has a mount namespace of its own, in which FOLDER's passwd, group and shadow stand in
/etc, and every account may execute this Python. The machine keeps its files.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

_CLONE_NEWNS = 0x00020000
_FILES = ("passwd", "group", "shadow")
_OTHERS_PASS = 0o001


def enter(folder: Path) -> None:
    """Enter the namespace. Raises OSError and CalledProcessError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    _mount("--make-rprivate", "/")
    for name in _FILES:
        _mount("--bind", str(folder / name), f"/etc/{name}")
    _open_the_way(Path(sys.executable).resolve(), folder / "python")


def can_enter() -> bool:
    """Tell whether this process may have such a namespace."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if os.geteuid() == 0 and ctypes.CDLL(None).unshare(_CLONE_NEWNS) == 0 else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _open_the_way(python: Path, place: Path) -> None:
    """Let every account pass to this Python: put it alone into the first folder that is closed."""
    closed = next((one for one in reversed(python.parents) if not one.stat().st_mode & _OTHERS_PASS), None)
    if closed is None:
        return
    installed = python.parent.parent
    place.mkdir(exist_ok=True)
    _mount("--bind", str(installed), str(place))
    _mount("-t", "tmpfs", "-o", "mode=755", "none", str(closed))
    installed.mkdir(parents=True)
    _mount("--bind", str(place), str(installed))


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


if __name__ == "__main__":
    enter(Path(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
