"""The accounts of relays that a host of root forks: which one a request may name, and the change to it.

The host alone runs as root. It serves one gateway, whose account may start relays; a relay and its
kernel have the account that the request names, or the gateway's own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from jupyter_aliquot.provisioner.accounts import Account, account_groups, account_umask, find_account
from jupyter_aliquot.provisioner.errors import AccountError
from jupyter_aliquot.provisioner.kernel_accounts import ACCOUNT_LIST, check_kernel_account
from jupyter_aliquot.provisioner.relay.wire.peer import Refusal

from .login_limits import apply_limits
from .owner_work import NO_GROUP

_KEYCTL = {"x86_64": 250, "aarch64": 219}
_JOIN_SESSION_KEYRING = 1


class TenantError(Exception):
    """The host cannot serve a gateway of this account; the message is for the administrator."""


@dataclass(frozen=True)
class Tenants:
    """The accounts that a host of root serves: those of kernels, and its ``gateway``'s.

    ``account_list``: root's file of the accounts that may have kernels.
    """

    gateway: Account
    account_list: Path = ACCOUNT_LIST

    @classmethod
    def of(cls, name: str, account_list: Path = ACCOUNT_LIST) -> Tenants:
        """Return the tenants of the gateway whose account has this name. Raises TenantError."""
        if os.geteuid() != 0:
            raise TenantError(f"--account={name} is for a relay host of root, but this one runs as {os.geteuid()}")
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            raise TenantError(f"--account={name}: this machine has no such account. Name the gateway's") from None
        if found.pw_uid == 0:
            raise TenantError("--account=root: give the gateway an account of its own, which is not root")
        return cls(Account(found.pw_name, found.pw_uid, found.pw_gid, found.pw_dir, found.pw_shell), account_list)

    def requested(self, name: str) -> Account:
        """Return the account of a request; without a name the gateway's. Raises Refusal."""
        if not name or name == self.gateway.name:
            return self.gateway
        try:
            found = find_account(name)
            check_kernel_account(found, self.account_list)
            return found
        except AccountError as error:
            raise Refusal("account", str(error)) from error

    def owner_of(self, folder: Path) -> Account:
        """Return the account of a relay's folder, whatever its files say. Raises Refusal.

        An account that was removed since has no name any more; its kernel lives on.
        """
        uid = folder.lstat().st_uid
        if uid == self.gateway.uid:
            return self.gateway
        if uid == 0:
            raise Refusal("account", f"{folder} is root's, and no relay runs as root")
        try:
            found = pwd.getpwuid(uid)
        except KeyError:
            return Account("", uid, NO_GROUP, "/", "/bin/sh")
        return Account(found.pw_name, uid, found.pw_gid, found.pw_dir, found.pw_shell)

    def prepare_folder(self, folder: Path, account: Account) -> None:
        """Make a relay's folder for this account. Raises OSError.

        The gateway passes through it by its group, and reads the files in it, which inherit the
        group. Kernels in containers, whose relays are the gateway's, have accounts of their own.
        """
        folder.mkdir(mode=0o700)
        kernel_folder = folder / "k"
        kernel_folder.mkdir(mode=0o700)
        is_gateways = account.uid == self.gateway.uid
        os.chown(kernel_folder, account.uid, account.gid)
        kernel_folder.chmod(0o777 if is_gateways else 0o700)
        os.chown(folder, account.uid, self.gateway.gid)
        folder.chmod(0o700 if is_gateways else 0o2710)

    def spill_dir(self, top: Path, account: Account) -> Path:
        """Return the account's part of the folder for output, which is made. Raises OSError."""
        with contextlib.suppress(FileExistsError):
            top.mkdir(mode=0o700, parents=True)
        found = top.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0:
            raise NotADirectoryError(None, f"{top} is not a folder of root; remove it, or set --spill-dir")
        if stat.S_IMODE(found.st_mode) == 0o700:  # as made now, or by a host without other accounts
            top.chmod(0o711)
        elif not found.st_mode & stat.S_IXOTH:
            raise PermissionError(None, f"{top} is closed to other accounts; make its mode 711, or set --spill-dir")
        own = top / str(account.uid)
        own.mkdir(mode=0o700, exist_ok=True)
        os.chown(own, account.uid, account.gid)
        return own

    def become(self, account: Account) -> None:
        """Become the account, in the forked child: limits and groups, then the ids. Raises OSError."""
        if account.uid != self.gateway.uid:
            apply_limits(account.name, account_groups(account))
            os.umask(account_umask())
        if account.name:
            os.initgroups(account.name, account.gid)
        else:
            os.setgroups([])
        os.setgid(account.gid)
        os.setuid(account.uid)
        _leave_keyring()
        if 0 in (os.getuid(), os.geteuid()):
            raise PermissionError(None, "a relay must not run as root")


def _leave_keyring() -> None:
    """Join a new session keyring: that of the host is of root's login, with the keys in it.

    A system without keyrings, or one that forbids them, has none to leave.
    """
    number = _KEYCTL.get(platform.machine())
    if number is not None:
        ctypes.CDLL(None, use_errno=True).syscall(number, _JOIN_SESSION_KEYRING, None)
