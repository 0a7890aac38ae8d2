"""A gateway at a port below 1024, which no other account can take while the gateway is away.

The Hub, as root, starts it as its account and with the right to listen there, which an account
alone has not.
"""

from __future__ import annotations

from pwd import struct_passwd
from urllib.parse import urlsplit

_FIRST_FREE_PORT = 1024
_RIGHT = "+net_bind_service"


def is_reserved(url: str) -> bool:
    """Return whether an account needs a right to listen at the port of *url*."""
    port = urlsplit(url).port
    return port is not None and port < _FIRST_FREE_PORT


def with_right_to_listen(account: struct_passwd) -> list[str]:
    """Return the words before a command that root runs as *account*, with that right alone.

    The Hub sets the variables of the account that it starts a service as, which is root here.
    """
    variables = {"HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name, "SHELL": account.pw_shell}
    become = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--init-groups"]
    rights = [f"--inh-caps={_RIGHT}", f"--ambient-caps={_RIGHT}"]
    return ["env", *(f"{name}={value}" for name, value in variables.items()), "setpriv", *become, *rights, "--"]
