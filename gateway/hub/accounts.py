"""The accounts of the gateway and of its kernels: what `configure` decides, refuses, and has the log say.

It changes no configuration.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from pwd import struct_passwd
from typing import Any, Union
from urllib.parse import urlsplit

from traitlets.utils.importstring import import_item

from jupyter_aliquot.gateway.base.sockets import peer
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.accounts import find_account
from jupyter_aliquot.provisioner.errors import AccountError
from jupyter_aliquot.provisioner.kernel_accounts import ACCOUNT_LIST, AccountListError, read_account_list

from .settings import HubConfigError, HubSettings

_FIRST_FREE_PORT = 1024
_RIGHT = "+net_bind_service"
_OF_ACCOUNTS = frozenset({"default", "localprocess", "localprocessspawner", "sudospawner", "systemd", "systemdspawner"})
_OF_NO_ACCOUNTS = frozenset({"simple", "simplelocalprocessspawner"})
_OPTION = "--Aliquot.run_kernels_as="
# A unit of the relay host that starts together with the Hub's has listened by then.
_PATIENCE_SECONDS = 3.0
_BETWEEN_LOOKS_SECONDS = 0.1

Log = Union[logging.Logger, "logging.LoggerAdapter[Any]"]


def with_kernel_accounts(settings: HubSettings, user_id: int, spawner: str) -> HubSettings:
    """Return the settings with `run_kernels_as` decided, where the configuration leaves it open.

    Kernels are their owners' where root starts the gateway as an account of its own, and the
    spawner starts each user's server as the user's account. Raises HubConfigError.
    """
    if settings.run_kernels_as:
        return settings
    are_owners = depends_on_spawner(settings, user_id) and settings.account_id() != 0 and changes_accounts(spawner)
    return replace(settings, run_kernels_as="owner" if are_owners else "gateway")


def depends_on_spawner(settings: HubSettings, user_id: int) -> bool:
    """Return whether kernels are their owners' only where the spawner changes accounts."""
    if settings.run_kernels_as:
        return settings.runs_as_owner
    own_option = any(option.startswith(_OPTION) for option in settings.gateway_options)
    # Without an account the Hub would refuse the gateway, unless it is to be root's, for containers.
    return user_id == 0 and settings.is_managed and bool(settings.gateway_user) and not own_option


def changes_accounts(spawner: str) -> bool:
    """Return whether the spawner starts each user's server as the user's own account.

    *spawner* has the names of its class and those it is made of; empty: JupyterHub's default.
    """
    names = [name.rpartition(".")[2].lower() for name in (spawner.split() or ["default"])]
    if len(names) == 1 and names[0] not in _OF_ACCOUNTS | _OF_NO_ACCOUNTS:
        names = [cls.__name__.lower() for cls in _classes_of(spawner)]
    return _OF_NO_ACCOUNTS.isdisjoint(names) and not _OF_ACCOUNTS.isdisjoint(names)


def check_spawner(decided_for: str, spawner: type) -> None:
    """Refuse a start by another kind of spawner than the one that decided about kernels' accounts.

    *decided_for* has the names that `changes_accounts` reads; a configuration may choose the class
    after it calls `configure`. Raises HubConfigError.
    """
    found = " ".join(cls.__name__ for cls in spawner.__mro__)
    if (changes := changes_accounts(found)) == changes_accounts(decided_for):
        return
    named = decided_for.split()[0].rpartition(".")[2] if decided_for else "JupyterHub's own"
    does = "starts servers as their users' accounts" if changes else "starts servers without changing the account"
    raise HubConfigError(
        f"the Hub's configuration chooses {spawner.__name__} after Aliquot's configure(), which decided for {named} "
        f"whose accounts kernels have, and {spawner.__name__} {does}; an administrator should call configure() last"
    )


def _classes_of(text: str) -> Sequence[type]:
    """Return the class that a text of c.JupyterHub.spawner_class names, and those it is made of."""
    try:
        named = [entry.load() for entry in entry_points(group="jupyterhub.spawners") if entry.name == text.lower()]
        found = named[0] if named else import_item(text)
    except Exception:  # a module of the administrator's may raise any; the Hub imports it a moment later, and says so
        return ()
    return found.__mro__ if isinstance(found, type) else ()


def check_owners(settings: HubSettings, user_id: int, spawner: str) -> None:
    """Refuse kernels as their owners where root or the accounts are missing. Raises HubConfigError."""
    if not settings.runs_as_owner:
        return
    if user_id != 0:
        raise HubConfigError(
            "configure(run_kernels_as='owner'): only root can start kernels as their owners, and this Hub runs as "
            f"{user_id}. Run the Hub as root, or remove run_kernels_as"
        )
    if not settings.is_managed:
        raise HubConfigError(
            "configure(run_kernels_as='owner') is for a gateway that the Hub starts, and api_token=… for one that you "
            "start. Start that one with --Aliquot.run_kernels_as=owner, and aliquot relay --account=… as root"
        )
    if not settings.gateway_user:
        raise HubConfigError(
            "configure(run_kernels_as='owner'): the gateway needs an account of its own. Name it: "
            "configure(gateway_user='aliquot')"
        )
    if not changes_accounts(spawner):
        raise HubConfigError(
            f"configure(run_kernels_as='owner'): the spawner {spawner!r} starts users' servers without changing the "
            "account. Use the system's accounts (c.JupyterHub.spawner_class = 'jupyterhub.spawner.LocalProcessSpawner')"
        )
    for user, account in settings.account_of.items():
        try:
            find_account(account)
        except AccountError as error:
            raise HubConfigError(f"configure(account_of={{{user!r}: {account!r}}}): {error}") from None


def check_account(settings: HubSettings, user_id: int) -> None:
    """Refuse a gateway that would run as root, with every kernel, and would not start.

    Refuse an account that does not exist, or has no home of its own. Raises HubConfigError.
    """
    if not settings.is_managed:
        return
    if settings.gateway_user:
        _check_home(settings.account())
        user_id = settings.account_id()
    if user_id == 0 and "--allow-root" not in settings.gateway_options:
        raise HubConfigError(
            "This Hub would start the gateway and all kernels as root. Name an account for them "
            "(configure(gateway_user='aliquot')), start the gateway yourself (api_token=…), or, to try it, use "
            "gateway_options=['--allow-root', '--Aliquot.allow_root_kernels=True']"
        )


def _check_home(account: struct_passwd) -> None:
    """Refuse a home that the account does not own: the gateway keeps its kernels' records there."""
    try:
        is_own = stat.S_ISDIR((found := os.stat(account.pw_dir)).st_mode) and found.st_uid == account.pw_uid
    except OSError:
        is_own = False
    if not is_own:
        name, home = account.pw_name, account.pw_dir
        raise HubConfigError(
            f"configure(gateway_user={name!r}): its home {home} is not a folder of this account. Make it "
            f"(install -d -o {name} -m 700 {home}), or name another account"
        )


def say_accounts(settings: HubSettings, user_id: int, spawner: str, *, is_default: bool, log: Log) -> None:
    """Say in the Hub's log whose accounts kernels have, and what they lack to be their owners'."""
    if user_id != 0 or not settings.is_managed:
        return
    named = spawner.split()[0].rpartition(".")[2] if spawner else "LocalProcessSpawner"
    if not settings.runs_as_owner:
        whose = f"as the gateway's account, {settings.gateway_user or 'root'}"
        does = "as its user's account" if changes_accounts(spawner) else "without changing the account"
        log.info("Aliquot's kernels run %s; %s starts each server %s.", whose, named, does)
        return
    if is_default:
        log.info(
            "Aliquot's kernels run as their owners' accounts, as %s starts the servers. For the gateway's account: "
            "configure(run_kernels_as='gateway').",
            named,
        )
    for lack in _lacks(settings):
        log.warning("%s.", lack)
    if not ACCOUNT_LIST.exists():
        log.info(
            "Without %s kernels may be of each person's account that cannot become root. For the group 'students' "
            "alone: echo @students | sudo install -D -m 644 /dev/stdin %s",
            ACCOUNT_LIST,
            ACCOUNT_LIST,
        )


def _lacks(settings: HubSettings) -> list[str]:
    """Return what is missing for kernels as their owners, each in a sentence with what to do."""
    lacks = []
    try:
        read_account_list(ACCOUNT_LIST)
    except AccountListError as error:
        lacks.append(f"No kernel can start as its owner: {error.found}. {error.remedy}")
    if not settings.start_relay_host and (found := _relay_host_lacks(RuntimeDir(Path(settings.runtime_dir())))):
        lacks.append(found)
    return lacks


def _relay_host_lacks(runtime: RuntimeDir) -> str:
    path, deadline = runtime.relay_socket, time.monotonic() + _PATIENCE_SECONDS
    while (found := peer(path)) is None and time.monotonic() < deadline:
        time.sleep(_BETWEEN_LOOKS_SECONDS)  # a socket has no event
    if found is None:
        install = f"sudo {Path(sys.executable).parent}/aliquot install-service --hub"
        return (
            f"No kernel can start as its owner: no relay host listens at {path}. Start its unit (sudo systemctl "
            f"restart aliquot-relay; {install} makes it), or remove start_relay_host=False"
        )
    if found.uid != 0:
        return (
            f"No kernel can start as its owner: the relay host at {path} is {found}, and not root's. End it, and start "
            "root's: sudo systemctl restart aliquot-relay"
        )
    return ""


def is_reserved(url: str) -> bool:
    """Return whether an account needs a right to listen at the port of *url*."""
    port = urlsplit(url).port
    return port is not None and port < _FIRST_FREE_PORT


def with_right_to_listen(account: struct_passwd) -> list[str]:
    """Return the words before a command that root runs as *account*, with that right alone.

    No other account can take a port below 1024 while the gateway is away. The Hub sets the
    variables of the account that it starts a service as, which is root here.
    """
    variables = {"HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name, "SHELL": account.pw_shell}
    become = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--init-groups"]
    rights = [f"--inh-caps={_RIGHT}", f"--ambient-caps={_RIGHT}"]
    return ["env", *(f"{name}={value}" for name, value in variables.items()), "setpriv", *become, *rights, "--"]
