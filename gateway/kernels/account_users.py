"""The user of the Hub for each account of the machine, and whether the account may ask for GPUs by itself.

The inverse of `owner_accounts`. It reads root's list of accounts, as the relay host does for kernels
that the gateway starts.
"""

from __future__ import annotations

import pwd
from collections.abc import Callable, Mapping
from pathlib import Path

from jupyter_aliquot.provisioner.accounts import find_account
from jupyter_aliquot.provisioner.errors import AccountError
from jupyter_aliquot.provisioner.kernel_accounts import check_kernel_account

from .owner_accounts import OwnerAccounts, Rule

_ASK = "Ask an administrator to name the user in c.Aliquot.user_of"


class AccountUsers:
    """The users of accounts.

    *account_of* is the setting of that name. *user_of* is its inverse where that is not clear: a
    table of users by accounts' names, or a function. *listed* is root's list.
    """

    def __init__(self, account_of: Rule, user_of: Rule, listed: Path) -> None:
        self._rule = account_of
        self._inverse = user_of
        self._listed = listed
        self._accounts = OwnerAccounts(account_of)

    def of(self, uid: int) -> str:
        """Return the user of an account's number. Raises AccountError, which says why it may not ask."""
        try:
            name = pwd.getpwuid(uid).pw_name
        except (KeyError, OSError):
            raise AccountError(
                f"Requested a GPU as the account {uid}, but this machine has no such account. Ask an administrator "
                "to make it"
            ) from None
        account = find_account(name)
        check_kernel_account(account, self._listed)
        user = self._user_of(name)
        if self._accounts.of(user).uid != uid:
            raise AccountError(
                f"Requested a GPU as the account {name!r}, but its user {user!r} has another account "
                f"(c.Aliquot.account_of). {_ASK}"
            )
        return user

    def _user_of(self, name: str) -> str:
        """Return the user's name of an account's name. Raises AccountError."""
        if callable(self._inverse):
            return _answer(self._inverse, name)
        if name in self._inverse:
            return self._inverse[name]
        if callable(self._rule):
            raise AccountError(
                f"Requested a GPU as the account {name!r}, but the gateway cannot tell its user: c.Aliquot.account_of "
                f"is a function. {_ASK}"
            )
        return _only_user(self._rule, name)


def _only_user(rule: Mapping[str, str], name: str) -> str:
    named = sorted(user for user, account in rule.items() if account == name)
    if len(named) > 1:
        raise AccountError(
            f"Requested a GPU as the account {name!r}, but it is the account of several users "
            f"({', '.join(named[:5])}). {_ASK}"
        )
    return named[0] if named else name


def _answer(rule: Callable[[str], str], name: str) -> str:
    try:
        found = rule(name)
    except Exception as error:  # an administrator's code, and one account must not stop the others
        raise AccountError(
            f"Requested a GPU as the account {name!r}, but c.Aliquot.user_of failed: {error!r}. Ask an administrator "
            "to mend it"
        ) from error
    if not isinstance(found, str) or not found:
        raise AccountError(f"Requested a GPU as the account {name!r}, but c.Aliquot.user_of returned {found!r}. {_ASK}")
    return found
