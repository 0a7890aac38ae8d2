"""The home of an account, for a kernel's container that runs as that account.

It is mounted where it lies on the machine. Whether the account may enter it is tried as the account:
modes alone do not tell, for access lists and network file systems decide as well.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable

from jupyter_aliquot.provisioner.accounts import Account
from jupyter_aliquot.provisioner.containers.plan import Mount
from jupyter_aliquot.provisioner.errors import FolderError, RequestError

from .rules import check_target, lies_in
from .safe_open import identify_folder

# A home on a network disk whose server is away would keep the start for ever.
_SECONDS = 20.0
_ENTER = 'cd -- "$1"'


def home_mount(account: Account, groups: Iterable[int], roots: Iterable[str], private: Iterable[str]) -> Mount:
    """Return the mount of the account's home at its own path, checked on the disk now.

    Blocks. Raises RequestError for a home that may not be shared, FolderError for one that the account
    cannot enter.
    """
    home = os.path.normpath(account.home) if account.home.startswith("/") else account.home
    check_target(home, private)
    known = tuple(roots)
    if not any(lies_in(home, root) for root in known):
        shown = ", ".join(map(repr, known)) or "none"
        raise RequestError(
            f"Requested the home {home!r} of the account {account.name!r}, but it lies in none of the configured "
            f"roots ({shown}). Ask an administrator to add the folder of homes to c.SharedFolders.roots"
        )
    identity = identify_folder(home)
    check_enters(account, groups, home)
    return Mount(home, home, read_only=False, identity=identity)


def check_enters(account: Account, groups: Iterable[int], folder: str) -> None:
    """Refuse a folder that the account cannot enter. Blocks. Raises FolderError.

    A gateway that is not root can try as its own account alone, and starts no container of another.
    """
    if os.geteuid() not in (0, account.uid):
        return
    identity: dict[str, int | list[int]] = {}
    if os.geteuid() == 0:
        identity = {"user": account.uid, "group": account.gid, "extra_groups": list(groups)}
    asked = f"Requested a kernel with the home {folder!r} of the account {account.name!r} (number {account.uid})"
    try:
        tried = subprocess.run(
            ["/bin/sh", "-c", _ENTER, "sh", folder],
            cwd="/",
            env={"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            **identity,  # type: ignore[call-overload]  # its overloads know no table of arguments
        )
    except subprocess.TimeoutExpired:
        raise FolderError(
            f"{asked}, but the folder does not answer within {_SECONDS:g} s. Ask an administrator whether its file "
            "server runs"
        ) from None
    if tried.returncode != 0:
        raise FolderError(
            f"{asked}, but that account cannot enter it. Ask an administrator to give the folder, and the way to it, "
            f"to the account: chown {account.name} {folder}"
        )
