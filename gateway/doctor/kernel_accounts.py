"""Check root's list of the accounts as which a relay host of root runs kernels."""

from __future__ import annotations

import grp
import pwd
from collections.abc import Sequence
from pathlib import Path

from jupyter_aliquot.provisioner.accounts import Account, account_groups, least_uid
from jupyter_aliquot.provisioner.kernel_accounts import ROOTLIKE_GROUPS, AccountListError, read_account_list

from .runner import FAIL, OK, WARN, Finding

_ABOUT = "kernel accounts"


def look_at_list(path: Path, root: Path) -> Sequence[Finding]:
    """Return what is found of the list at *path*, below *root*."""
    try:
        listed = read_account_list(root / path.relative_to("/"))
    except AccountListError as error:
        return [Finding(_ABOUT, FAIL, error.found, error.remedy)]
    if listed is None:
        told = f"no list at {path}: kernels may be of each account from {least_uid()} on that cannot become root"
        return [Finding(_ABOUT, OK, told)]
    findings = [Finding(_ABOUT, OK, f"{path} lists the accounts that may have kernels")]
    for group in sorted(listed.groups):
        findings += _look_at_group(path, group)
    for name in sorted(listed.names):
        findings += _look_at_account(path, name)
    return findings


def _look_at_group(path: Path, name: str) -> Sequence[Finding]:
    try:
        grp.getgrnam(name)
    except KeyError:
        told = f"{path} lists @{name}, and this machine has no such group"
        return [Finding(_ABOUT, WARN, told, f"correct the name in {path}, or make the group")]
    return []


def _look_at_account(path: Path, name: str) -> Sequence[Finding]:
    remedy = f"take {name} out of {path}"
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        return [Finding(_ABOUT, WARN, f"{path} lists {name}, and this machine has no such account", remedy)]
    if found.pw_uid < least_uid():
        told = f"{path} lists {name}, an account of the system (uid {found.pw_uid}): its kernels are refused"
        return [Finding(_ABOUT, WARN, told, remedy)]
    account = Account(name, found.pw_uid, found.pw_gid, found.pw_dir, found.pw_shell)
    if rootlike := sorted(account_groups(account) & ROOTLIKE_GROUPS):
        told = f"{path} lists {name}, of the group {rootlike[0]}: a gateway that is taken over becomes root by it"
        return [Finding(_ABOUT, WARN, told, f"{remedy}, or the account out of the group")]
    return []
