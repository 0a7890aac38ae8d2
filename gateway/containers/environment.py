"""The variables that reach a kernel's environment. Pure.

They are those of its request, by an allow-list, and those of the server that are no secrets. The
provisioner's ``launch_spec`` adds the variables of the grant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# No request may set these: they name the user, tell the loader what to load, or are set by Aliquot.
_RESERVED_NAMES = frozenset({"HOME", "KERNEL_ID", "KERNEL_USERNAME", "PATH"})
_RESERVED_PREFIXES = ("ALIQUOT_", "JPY_", "JUPYTER", "LD_")

# The server's own credentials for a Hub or another gateway, and its user. They are not for users'
# kernels.
_SERVERS_NAMES = frozenset({"CONFIGPROXY_AUTH_TOKEN", "JUPYTER_TOKEN", "JUPYTER_TOKEN_FILE"})
_SERVERS_PREFIXES = ("JPY_", "JUPYTERHUB_", "JUPYTER_GATEWAY_", "KERNEL_")
_OF_THE_SESSION = "JPY_SESSION_NAME"


def is_reserved(name: str) -> bool:
    """Return whether no request may set this variable.

    A prefix (``LD_*``) is reserved if all its names are.
    """
    return name in _RESERVED_NAMES or name.startswith(_RESERVED_PREFIXES)


def allowed_env(env: Mapping[str, str], allowed: Iterable[str]) -> dict[str, str]:
    """Return the variables of a request that its kernel gets.

    A name that ends in ``*`` allows all that begin so.
    """
    names = frozenset(allowed)
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    return {
        name: value
        for name, value in env.items()
        if (name in names or (prefixes and name.startswith(prefixes))) and not is_reserved(name)
    }


def without_servers_own(env: Mapping[str, str]) -> dict[str, str]:
    """Return a kernel's environment without the credentials of a server of several users.

    On a user's own server they stay: a notebook may talk to the Hub as its user.
    """
    return {name: value for name, value in env.items() if name == _OF_THE_SESSION or not _is_servers(name)}


def _is_servers(name: str) -> bool:
    return name in _SERVERS_NAMES or name.startswith(_SERVERS_PREFIXES)
