"""Who may have kernels of the production class, which are protected from all others. Pure; the knob is config.py's."""

from __future__ import annotations

from dataclasses import dataclass

from aliquot.gateway.auth import User
from aliquot.provisioner.errors import LimitError
from aliquot.provisioner.resources import Request, WorkloadClass

EVERYBODY = "*"
TEAM = "@"


@dataclass(frozen=True)
class ClassPolicy:
    """``production_for``: users by name, teams as ``@team``, ``*`` for everybody. Administrators always may."""

    production_for: tuple[str, ...] = (EVERYBODY,)

    def may_have_production(self, user: User) -> bool:
        """Whether this user may start a production kernel, and make one of another."""
        named = {user.name, *(f"{TEAM}{team}" for team in user.teams)} - {""}
        return user.is_admin or EVERYBODY in self.production_for or bool(named.intersection(self.production_for))

    def check(self, user: User, request: Request, before: WorkloadClass | None = None) -> None:
        """Raises LimitError for a class that this user may not have. One that the kernel has already may stay."""
        if request.workload_class in (before, WorkloadClass.OPPORTUNISTIC) or self.may_have_production(user):
            return
        raise LimitError(
            f"asked {request.gpus} GPU of the class production; {user.name} may have opportunistic kernels only "
            "(c.Aliquot.production_for). Ask for the class opportunistic: a kernelspec whose name ends in -low"
        )
