"""The system accounts that kernels may run as, and what a kernel gets of its account.

This module looks accounts up and refuses those that are no person's. It changes no process.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import AccountError

_LEAST_UID = 1000
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_DEFAULT_UMASK = 0o022
_LOGIN_DEFS = Path("/etc/login.defs")
_NO_LOGIN = frozenset({"nologin", "false"})
# What a kernel needs of the environment of the program that starts it.
_KEPT_NAMES = frozenset({"LANG", "LANGUAGE", "TZ", "JPY_SESSION_NAME"})
_KEPT_PREFIXES = ("LC_",)


@dataclass(frozen=True)
class Account:
    """An entry of the system's list of accounts."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str


def find_account(name: str) -> Account:
    """Return the account of this name, if kernels may run as it. Raises AccountError."""
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError, OSError):
        raise AccountError(
            f"Requested to run a kernel as {name!r}, but this machine has no such account. Ask an administrator to "
            "make it, or to name another in c.Aliquot.account_of"
        ) from None
    least = least_uid()
    if found.pw_uid < least:
        raise AccountError(
            f"Requested to run a kernel as {name!r}, but this account of the system (number {found.pw_uid}) is no "
            f"person's: those have numbers from {least} on. Ask an administrator for an account"
        )
    if os.path.basename(found.pw_shell) in _NO_LOGIN:
        raise AccountError(
            f"Requested to run a kernel as {name!r}, but this account may not log in: its shell is {found.pw_shell}. "
            "Ask an administrator for a shell or another account"
        )
    _check_number(found)
    return Account(found.pw_name, found.pw_uid, found.pw_gid, found.pw_dir, found.pw_shell)


def _check_number(found: pwd.struct_passwd) -> None:
    """Refuse a name that shares its number with another: the system tells the two not apart."""
    try:
        first = pwd.getpwuid(found.pw_uid).pw_name
    except (KeyError, OSError):
        raise AccountError(
            f"Requested to run a kernel as {found.pw_name!r}, but this machine finds no account by its number "
            f"{found.pw_uid}. Ask an administrator to look at the machine's list of accounts"
        ) from None
    if first != found.pw_name:
        raise AccountError(
            f"Requested to run a kernel as {found.pw_name!r}, but the account {first!r} has the same number "
            f"{found.pw_uid}. Give each account a number of its own"
        )


def least_uid() -> int:
    """Return the least number of a person's account: UID_MIN of /etc/login.defs, and never root's."""
    told = login_defs("UID_MIN", "")
    return max(1, int(told)) if told.isdecimal() else _LEAST_UID


def account_groups(account: Account) -> frozenset[str]:
    """Return the names of the account's groups; none for an account that was removed."""
    names = set()
    for gid in os.getgrouplist(account.name, account.gid) if account.name else ():
        with contextlib.suppress(KeyError):
            names.add(grp.getgrgid(gid).gr_name)
    return frozenset(names)


def account_environment(account: Account, env: Mapping[str, str], program: str) -> dict[str, str]:
    """Return the environment of a login of the account, and what *env* has of language and zone.

    PATH begins with the folder of the kernel's *program*, as in an environment that is active.
    """
    kept = {name: value for name, value in env.items() if name in _KEPT_NAMES or name.startswith(_KEPT_PREFIXES)}
    folder = os.path.dirname(program) if os.path.isabs(program) else ""
    path = login_defs("ENV_PATH", _DEFAULT_PATH).removeprefix("PATH=")
    return {
        **kept,
        "HOME": account.home,
        "USER": account.name,
        "LOGNAME": account.name,
        "SHELL": account.shell or "/bin/sh",
        "PATH": f"{folder}{os.pathsep}{path}" if folder and folder not in path.split(os.pathsep) else path,
    }


def account_umask() -> int:
    """Return the umask of logins: UMASK of /etc/login.defs."""
    try:
        return int(login_defs("UMASK", ""), 8) & 0o777
    except ValueError:
        return _DEFAULT_UMASK


def login_defs(name: str, default: str) -> str:
    """Return a value of /etc/login.defs."""
    try:
        lines = _LOGIN_DEFS.read_text(errors="replace").splitlines()
    except OSError:
        return default
    for line in lines:
        words = line.split(None, 1)
        if len(words) == 2 and words[0] == name:
            return words[1].strip()
    return default
