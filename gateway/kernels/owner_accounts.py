"""The system accounts of kernels' owners, for a gateway whose kernels run as their owners.

The relay host of root checks each account again and changes to it: this module decides nothing that
root relies on.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_aliquot.gateway.containers.planner import WORKING_VARIABLE
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.accounts import Account, account_environment, find_account
from jupyter_aliquot.provisioner.errors import AccountError
from jupyter_aliquot.provisioner.relay.client.control import list_kernelspecs

Rule = Mapping[str, str] | Callable[[str], str]


class OwnerAccounts:
    """The account of each user.

    *rule*: the accounts of users that have another name, or a function of the user's name.
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    def of(self, user: str) -> Account:
        """Return the account of a user. Raises AccountError."""
        if callable(self._rule):
            try:
                found = self._rule(user)
            except Exception as error:  # an administrator's code, and one user must not stop the others
                raise AccountError(
                    f"Requested the account of {user!r}, but c.Aliquot.account_of failed: {error!r}. Ask an "
                    "administrator to mend it"
                ) from error
            if not isinstance(found, str) or not found:
                raise AccountError(
                    f"Requested the account of {user!r}, but c.Aliquot.account_of returned {found!r}. Ask an "
                    "administrator for an account"
                )
            return find_account(found)
        return find_account(self._rule.get(user, user))

    def uid_of(self, user: str) -> int | None:
        """Return the number of a user's account; None for a user without one."""
        try:
            return self.of(user).uid
        except AccountError:
            return None

    def has_folder(self, user: str, folder: Path) -> bool:
        """Return whether a relay's folder is of this user's account. Root gave it to the account.

        Raises AccountError where the account cannot be looked up.
        """
        try:
            uid = os.stat(folder).st_uid
        except OSError:
            return False
        return uid == self.of(user).uid

    def kernelspecs_from(
        self, runtime: RuntimeDir, folders: Sequence[str] = ()
    ) -> Callable[[str, str], Awaitable[Mapping[str, Any]]]:
        """Return the function that asks the relay host for the kernelspecs in a user's home, or in *folders*."""

        async def ask(user: str, known: str) -> Mapping[str, Any]:
            return await list_kernelspecs(runtime, self.of(user).name, known, folders)

        return ask

    def start_arguments(
        self, user: str, program: str, env: Mapping[str, str], requested: Mapping[str, str]
    ) -> dict[str, Any]:
        """Return the arguments of a start as the user's account: its name, environment and folder.

        *requested* are the variables of the request, which name the notebook's folder. Raises
        AccountError.
        """
        account = self.of(user)
        folder = requested.get(WORKING_VARIABLE, "")
        is_folder = os.path.isabs(folder) and "\0" not in folder
        return {
            "account": account.name,
            "env": account_environment(account, env, program),
            "cwd": folder if is_folder else account.home,
        }


def requested_folder(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variable of a request that names the notebook's folder; empty without one."""
    return {WORKING_VARIABLE: env[WORKING_VARIABLE]} if WORKING_VARIABLE in env else {}
