"""What reaches a kernel's environment: of its own request by an allow-list, and of the server's own what is no secret.

Pure. Whose request it is, stock_handlers knows; what a grant sets, launch_spec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# A request cannot set these, whatever is allowed: who somebody is, what the loader loads, and what we set ourselves.
_RESERVED_NAMES = frozenset({"HOME", "KERNEL_ID", "KERNEL_USERNAME", "PATH"})
_RESERVED_PREFIXES = ("ALIQUOT_", "JPY_", "JUPYTER", "LD_")

# The server's own part in a Hub, in another gateway, and who it was started for: no user's kernel is that.
_SERVERS_NAMES = frozenset({"CONFIGPROXY_AUTH_TOKEN", "JUPYTER_TOKEN", "JUPYTER_TOKEN_FILE"})
_SERVERS_PREFIXES = ("JPY_", "JUPYTERHUB_", "JUPYTER_GATEWAY_", "KERNEL_")
_OF_THE_SESSION = "JPY_SESSION_NAME"


def is_reserved(name: str) -> bool:
    """Whether no request may set this variable. A prefix (``LD_*``) is reserved when all that begins so is."""
    return name in _RESERVED_NAMES or name.startswith(_RESERVED_PREFIXES)


def allowed_env(env: Mapping[str, str], allowed: Iterable[str]) -> dict[str, str]:
    """What of a request's variables its kernel gets; a name that ends in ``*`` allows all that begin so."""
    names = frozenset(allowed)
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    return {
        name: value
        for name, value in env.items()
        if (name in names or (prefixes and name.startswith(prefixes))) and not is_reserved(name)
    }


def without_servers_own(env: Mapping[str, str]) -> dict[str, str]:
    """A kernel's environment on a server of several people, whose credentials are none of theirs.

    On a server of one person's own they stay: a notebook may talk to the Hub as its user.
    """
    return {name: value for name, value in env.items() if name == _OF_THE_SESSION or not _is_servers(name)}


def _is_servers(name: str) -> bool:
    return name in _SERVERS_NAMES or name.startswith(_SERVERS_PREFIXES)
