"""Accounts that only the programs of a test have, in a mount namespace: files for /etc, and homes.

`namespaced.py` puts the files in their place. The tests themselves know the accounts by number.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

GATEWAY = "aliquot"
UIDS = {GATEWAY: 2999, "ada": 3001, "bob": 3002, "eve": 3003, "twin": 3003, "door": 3004, "low": 101, "homeless": 3005}
UIDS["dockhand"] = 3006
# Their numbers are those of no group of the machine; names may be: both are the group then.
GROUPS = {"docker": (3900, ("dockhand",)), "students": (3901, ("ada",))}
_SHELLS = {"door": "/usr/sbin/nologin"}
# Of hub_process.PASSWORD, as /etc/shadow has it: `openssl passwd -6 -salt aliquot`.
_PASSWORD = "$6$aliquot$6XFHwJz9KUeMG5SkLrebIJd83TU.3ZSXociVDEuzC0k1U4fEwYWFqmuUBNzaD0DMpSoUDby.I8yU9gvt6BZgX1"
_NAMESPACED = Path(__file__).resolve().parent / "namespaced.py"


class MadeAccounts:
    """The accounts below a folder, which every account can pass through."""

    def __init__(self, folder: Path) -> None:
        self.homes = folder / "homes"
        self._files = folder / "etc"
        for made in (self.homes, self._files):
            made.mkdir()
            made.chmod(0o711)
        for name, uid in UIDS.items():
            if name != "homeless":
                self.make_folder(uid, self.homes / name)
        self.write(*UIDS)

    def write(self, *names: str, groups: Mapping[str, tuple[int, tuple[str, ...]]] = GROUPS) -> None:
        """Make these the accounts and groups, beside the machine's. The files keep their inodes: they are mounted."""
        lines = {"passwd": "", "group": "", "shadow": ""}
        for name in names:
            uid, shell = UIDS[name], _SHELLS.get(name, "/bin/bash")
            lines["passwd"] += f"{name}:x:{uid}:{uid}::{self.homes / name}:{shell}\n"
            lines["group"] += f"{name}:x:{uid}:\n"
            lines["shadow"] += f"{name}:{'*' if name == GATEWAY else _PASSWORD}:19000:0:99999:7:::\n"
        for group, (gid, members) in groups.items():
            lines["group"] += f"{group}:x:{gid}:{','.join(one for one in members if one in names)}\n"
        for file, text in lines.items():
            known = Path("/etc", file)
            (self._files / file).write_text((known.read_text() if known.exists() else "") + text)

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs *command* where the accounts are."""
        return [sys.executable, os.fspath(_NAMESPACED), os.fspath(self._files), *command]

    @staticmethod
    def make_folder(uid: int, path: Path) -> Path:
        """Make a private folder of an account."""
        path.mkdir(mode=0o700)
        os.chown(path, uid, uid)
        return path
