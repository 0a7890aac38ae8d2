"""The policy which users may have normal-priority kernels, which are protected from all others.

Pure.

The setting is in ``config.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from jupyter_aliquot.gateway.sizes.grammar import parse_size_name, size_name
from jupyter_aliquot.provisioner.errors import LimitError, SizeNameError
from jupyter_aliquot.provisioner.resources import Request, WorkloadClass

from .principals import User

ALL_USERS = "*"
TEAM = "@"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ClassPolicy:
    """The policy of ``normal_priority_for``: users by name, teams as ``@team``, ``*`` for all.

    Administrators always may.

    It may also be a function of a User, which decides about administrators, too.
    """

    normal_priority_for: tuple[str, ...] | Callable[[User], object] = (ALL_USERS,)

    def may_have_normal_priority(self, user: User) -> bool:
        """Return whether this user may start a normal-priority kernel, or change a kernel to one."""
        if callable(self.normal_priority_for):
            return _answer(self.normal_priority_for, user)
        named = {user.name, *(f"{TEAM}{team}" for team in user.teams)} - {""}
        return (
            user.is_admin or ALL_USERS in self.normal_priority_for or bool(named.intersection(self.normal_priority_for))
        )

    def check(self, user: User, request: Request, before: WorkloadClass | None = None, *, kernelspec: str = "") -> None:
        """Refuse a class that this user may not have, unless the kernel has it already.

        Raises LimitError.
        """
        if request.workload_class in (before, WorkloadClass.OPPORTUNISTIC) or self.may_have_normal_priority(user):
            return
        instead = "The kernel stays as it is" if before is not None else f"Choose {_kernelspec_instead(kernelspec)}"
        raise LimitError(
            f"Requested {request.gpus} GPU with normal priority, but {user.name or 'this user'} may have low-priority "
            f"kernels only (c.Aliquot.normal_priority_for). {instead}"
        )

    def offered(self, user: User, requests: Iterable[Request]) -> list[Request]:
        """Return these sizes, each in a class that this user may have, and each once."""
        if self.may_have_normal_priority(user):
            return list(dict.fromkeys(requests))
        return list(dict.fromkeys(replace(one, workload_class=WorkloadClass.OPPORTUNISTIC) for one in requests))


def _answer(rule: Callable[[User], object], user: User) -> bool:
    try:
        return bool(rule(user))
    except Exception:
        # The administrator's own function failed. Nothing that it protects is given then.
        _log.exception("normal_priority_for=failed user=%s; the answer is no", user.name)
        return False


def _kernelspec_instead(kernelspec: str) -> str:
    try:
        sized = parse_size_name(kernelspec)
    except SizeNameError:
        sized = None
    if sized is None:
        return "a kernelspec whose name ends in -low"
    low = replace(sized.request, workload_class=WorkloadClass.OPPORTUNISTIC)
    return f"the kernelspec {size_name(sized.base, low, sized.host)}"
