"""Access of users without the role admin on a server of several users: two tables and their rules.

Everything else is denied, with the handlers of other extensions. The levels of access to one kernel
are here, too; ``sharing/rights.py`` decides which user has which level.
"""

from __future__ import annotations

import re
from enum import IntEnum


class Access(IntEnum):
    """A user's access to a kernel. Each level has all of those below it."""

    NONE = 0
    # See it and its output.
    READ = 1
    # Run code in it, interrupt and restart it.
    WRITE = 2
    # End it, change its size, share it.
    OWN = 3

    @property
    def word(self) -> str:
        """Return the word in REST."""
        return self._name_.lower()  # the name, without the enum's look-up of it


REFUSAL = (
    "This server gives its users kernels; files, terminals and pages belong to its administrators. "
    "Connect your own Jupyter to it instead (docs/how-to/two-users.md)."
)

# Actions by Jupyter's own names of resources. `api` is the version, the status and the user's own
# identity.
_ACTIONS: dict[str, frozenset[str]] = {
    "aliquot": frozenset({"read", "write"}),
    "api": frozenset({"read"}),
    "csp": frozenset({"write"}),
    "kernels": frozenset({"read", "write", "execute"}),
    "kernelspecs": frozenset({"read"}),
    "sessions": frozenset({"read", "write"}),
}

# Not every handler asks the authorizer (JupyterLab's own do not), so paths are a second, outer
# gate.
_PATHS = re.compile(
    r"/(?:"
    r"api/?|api/(?:spec\.yaml|status|me|security/csp-report)"
    r"|api/(?:kernels|sessions|kernelspecs)(?:/.*)?"
    r"|kernelspecs/.*"
    r"|aliquot/.*"
    r"|login|logout|oauth_callback|static/.*|favicon\.ico"
    r")"
)


def may_do(action: str, resource: str) -> bool:
    """Return whether a user may do *action* on resources of this kind at all."""
    return action in _ACTIONS.get(resource, frozenset())


def may_reach(path: str, base_url: str) -> bool:
    """Return whether a user may reach this path of a request.

    An encoded path is matched as it is.
    """
    prefix = base_url.rstrip("/")
    return path.startswith(prefix) and _PATHS.fullmatch(path[len(prefix) :]) is not None
