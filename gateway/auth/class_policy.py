"""Who may have kernels of the production class, which are protected from all others. Pure; the knob is config.py's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from jupyter_aliquot.gateway.sizes.grammar import parse_size_name, size_name
from jupyter_aliquot.provisioner.errors import LimitError, SizeNameError
from jupyter_aliquot.provisioner.resources import Request, WorkloadClass

from .principals import User

EVERYBODY = "*"
TEAM = "@"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ClassPolicy:
    """``production_for``: users by name, teams as ``@team``, ``*`` for everybody; administrators always may.

    Or a function of a User, which decides about administrators, too.
    """

    production_for: tuple[str, ...] | Callable[[User], object] = (EVERYBODY,)

    def may_have_production(self, user: User) -> bool:
        """Whether this user may start a production kernel, and make one of another."""
        if callable(self.production_for):
            return _answer(self.production_for, user)
        named = {user.name, *(f"{TEAM}{team}" for team in user.teams)} - {""}
        return user.is_admin or EVERYBODY in self.production_for or bool(named.intersection(self.production_for))

    def check(self, user: User, request: Request, before: WorkloadClass | None = None, *, kernelspec: str = "") -> None:
        """Raises LimitError for a class that this user may not have. One that the kernel has already may stay."""
        if request.workload_class in (before, WorkloadClass.OPPORTUNISTIC) or self.may_have_production(user):
            return
        instead = "The kernel stays as it is" if before is not None else f"Choose {_kernelspec_instead(kernelspec)}"
        raise LimitError(
            f"asked {request.gpus} GPU of the class production; {user.name or 'nobody'} may have opportunistic kernels "
            f"only (c.Aliquot.production_for). {instead}"
        )

    def offered(self, user: User, requests: Iterable[Request]) -> list[Request]:
        """These sizes, each in a class that this user may have; each once."""
        if self.may_have_production(user):
            return list(dict.fromkeys(requests))
        return list(dict.fromkeys(replace(one, workload_class=WorkloadClass.OPPORTUNISTIC) for one in requests))


def _answer(rule: Callable[[User], object], user: User) -> bool:
    try:
        return bool(rule(user))
    except Exception:
        # The administrator's own code: nobody gets by its failing what it protects.
        _log.exception("production_for=failed user=%s; the answer is no", user.name)
        return False


def _kernelspec_instead(kernelspec: str) -> str:
    try:
        sized = parse_size_name(kernelspec)
    except SizeNameError:
        sized = None
    if sized is None:
        return "a kernelspec whose name ends in -low"
    low = replace(sized.request, workload_class=WorkloadClass.OPPORTUNISTIC)
    return f"the kernelspec {size_name(sized.base, low)}"
