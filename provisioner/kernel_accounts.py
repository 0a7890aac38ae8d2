"""The accounts as which a relay host of root runs kernels: root's own list, and who never is one.

The gateway names the account of a kernel. A gateway that was taken over could name any, so the host
asks this module, which reads root's file and nothing of the gateway's. It changes no process.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from .accounts import Account, account_groups
from .errors import AccountError

ACCOUNT_LIST = Path("/etc/aliquot/kernel-accounts")
# A member becomes root without being asked for more than the account has: by sudo's rules, by a
# container that has the host's files, or by the disk itself.
ROOTLIKE_GROUPS = frozenset(
    [
        "root",
        "sudo",
        "google-sudoers",
        "wheel",
        "admin",
        "jupyterhub-admins",
        "docker",
        "microk8s",
        "lxd",
        "incus-admin",
        "libvirt",
        "disk",
        "shadow",
        "kmem",
    ]
)
_NUMBERS = re.compile(r"(\d+)-(\d+)", re.ASCII)
# Names of a directory (ada@example.org, EXAMPLE\ada) are names, too; digits alone would be a number.
_NAME = re.compile(r"(?![\d.-]+$)\w[\w.@\\-]*\$?")
_GROUP = re.compile(r"@(\w[\w .@\\-]*)")
_LONGEST_FILE = 1 << 20


class AccountListError(Exception):
    """The list cannot be trusted or read. ``found`` says why, ``remedy`` what to do."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(f"{found}. {remedy}")
        self.found = found
        self.remedy = remedy


@dataclass(frozen=True)
class AccountList:
    """The lines of the list: names of accounts, names of groups, and ranges of numbers."""

    names: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    ranges: tuple[range, ...] = field(default=())

    def has(self, account: Account, groups: frozenset[str]) -> bool:
        """Return whether a line has this account, which is in these groups."""
        return (
            account.name in self.names or bool(groups & self.groups) or any(account.uid in one for one in self.ranges)
        )


def check_kernel_account(account: Account, path: Path = ACCOUNT_LIST) -> None:
    """Refuse an account that root's list leaves out, or through which a kernel becomes root.

    Without a list, accounts of all persons may have kernels; a list elsewhere than at ACCOUNT_LIST
    was named by root, and has to be there. Raises AccountError.
    """
    asked = f"Requested to run a kernel as {account.name!r}, but"
    try:
        listed = read_account_list(path, must_exist=path != ACCOUNT_LIST)
    except AccountListError as error:
        raise AccountError(f"{asked} {error}") from error
    groups = account_groups(account)
    if listed is not None and not listed.has(account, groups):
        raise AccountError(
            f"{asked} {path} does not list this account. Ask an administrator to add a line to it: the account's name, "
            "@ and the name of a group, or a range of numbers"
        )
    rootlike = sorted(groups & ROOTLIKE_GROUPS)
    if rootlike and (listed is None or account.name not in listed.names):
        raise AccountError(
            f"{asked} it is in the group {rootlike[0]!r}, whose members can become root. Ask an administrator to take "
            f"the account out of the group, or to list it by its name in {path}"
        )


def read_account_list(path: Path = ACCOUNT_LIST, *, must_exist: bool = False) -> AccountList | None:
    """Return the list; None where there is none, and no other account can have removed it.

    Raises AccountListError.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        if must_exist:
            raise AccountListError(
                f"there is no list of accounts at {path}", "Make it, or name the right one: --kernel-accounts=FILE"
            ) from None
        folder = next(one for one in path.parents if one.exists())
        _check_owner(path, (folder,))
        return None
    except OSError as error:
        raise AccountListError(f"the list of accounts {path} cannot be read: {error.strerror}", _mode(path)) from error
    with os.fdopen(descriptor, "rb") as file:
        _check_owner(path, (path.parent,), found := os.fstat(descriptor))
        if not stat.S_ISREG(found.st_mode):
            raise AccountListError(f"the list of accounts {path} is no plain file", f"Replace it: sudoedit {path}")
        text = file.read(_LONGEST_FILE).decode(errors="replace")
    return _parse(path, text)


def _check_owner(path: Path, folders: Iterable[Path], found: os.stat_result | None = None) -> None:
    """Refuse a file that another account than root can change, make or remove."""
    files = [] if found is None else [(path, found)]
    for place, told in (*files, *((folder, folder.stat()) for folder in folders)):
        if told.st_uid != 0 or told.st_mode & 0o022:
            raise AccountListError(
                f"the list of accounts {path} counts only where root alone can change it, and {place} is of account "
                f"{told.st_uid} with mode {stat.S_IMODE(told.st_mode):04o}",
                _mode(path),
            )


def _mode(path: Path) -> str:
    return f"Make it root's: sudo chown root: {path.parent} {path}; sudo chmod go-w {path.parent} {path}"


def _parse(path: Path, text: str) -> AccountList:
    names, groups, ranges = set(), set(), []
    for number, line in enumerate(text.splitlines(), 1):
        word = line.partition("#")[0].strip()
        if group := _GROUP.fullmatch(word):
            groups.add(group[1])
        elif (numbers := _NUMBERS.fullmatch(word)) and int(numbers[1]) <= int(numbers[2]):
            ranges.append(range(int(numbers[1]), int(numbers[2]) + 1))
        elif _NAME.fullmatch(word):
            names.add(word)
        elif word:
            raise AccountListError(
                f"line {number} of the list of accounts {path} cannot be read: {word[:60]!r}",
                "Write one account a line: its name, @ and the name of a group, or a range such as 2000-2999",
            )
    return AccountList(frozenset(names), frozenset(groups), tuple(ranges))
