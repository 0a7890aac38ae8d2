"""The objects that the kernel manager and its kernels use, made by the extension.

Jupyter Server makes its kernel manager from a class, with itself as the parent, after the extension
made these. The manager therefore asks the extensions of its parent for the services, in its
constructor; nothing is put into a manager that is already made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jupyter_events import EventLogger
from jupyter_server.serverapp import ServerApp

from jupyter_aliquot.gateway.base.lead import ALONE, Lead, lead_error
from jupyter_aliquot.gateway.containers.planner import ContainerPlanner
from jupyter_aliquot.gateway.limits.guard import LimitGuard
from jupyter_aliquot.gateway.relays.pool import RelayLinks
from jupyter_aliquot.gateway.scheduling.admission import Admission
from jupyter_aliquot.gateway.state.persistence import KernelMemory
from jupyter_aliquot.gateway.terminations.recorder import KernelEndings
from jupyter_aliquot.provisioner.control_groups import WITHOUT_GROUPS, ControlGroups
from jupyter_aliquot.provisioner.runtime.base import Containers
from jupyter_aliquot.provisioner.terminations import Asked

from .owner_accounts import OwnerAccounts

_KERNEL_EVENTS = "https://events.jupyter.org/jupyter_server/kernel_actions/v1"
_ONE_ACCOUNT = (
    "Kernels outside of containers run under this server's own account, which cannot limit their CPUs and memory."
)
_LIMITS_ARE_OFF = "This server limits no CPUs and no memory of processes (c.HostLimits.processes)."


def _never() -> bool:
    return False


@dataclass(frozen=True)
class KernelServices:
    """The services of one server. The defaults describe a server that does not load the extension.

    Without ``admission`` each provisioner asks the node agent itself, without ``containers`` no
    kernel starts in a container, without ``memory`` no later gateway finds the kernels, without
    ``links`` the clients talk to a kernel's sockets, and without ``endings`` the reasons of
    terminations are not kept.
    """

    admission: Admission | None = None
    limits: LimitGuard | None = None
    memory: KernelMemory | None = None
    endings: KernelEndings | None = None
    links: RelayLinks | None = None
    containers: ContainerPlanner | None = None
    container_runtime: Containers | None = None
    # Whether that makes pods, so that a kernel of no image has no place.
    starts_pods: bool = False
    # Asked before kernels start, and before a rule ends one.
    lead: Lead = ALONE
    # Tells the node agent of an interrupt, so that a call that waits for GPU memory gives up.
    tell_interrupt: Callable[[str], Awaitable[None]] | None = None
    # True where the server has several users: a kernel must not see the variables that the server
    # was started with.
    hides_servers_env: Callable[[], bool] = _never
    # The accounts that kernels run as; None: all run as the gateway's.
    accounts: OwnerAccounts | None = None
    # Whether such a kernel has a part of the host in proportion to its share.
    limits_processes: bool = False
    # True where a kernel that is a process would be root's, for a user who is not.
    refuses_processes: Callable[[], bool] = _never

    def check_end(self, asked: Asked) -> None:
        """Refuse to end a kernel by a rule while another replica may lead. Raises EngineUnavailableError."""
        if not asked.by and not self.lead.is_current():
            raise lead_error("the end of a kernel")

    def why_no_process_limits(self) -> str:
        """Return why a kernel that is a process has no limits on its host; empty where it has."""
        if self.accounts is None:
            return _ONE_ACCOUNT
        if not self.limits_processes:
            return _LIMITS_ARE_OFF
        return "" if ControlGroups().are_prepared() else WITHOUT_GROUPS


@runtime_checkable
class MakesKernelServices(Protocol):
    """An extension of the server that makes the services of its kernel manager."""

    def kernel_services(self) -> KernelServices: ...


def event_logger_of(server: object) -> EventLogger | None:
    """Return the server's event logger if it knows the events of kernels; None before the first kernel."""
    logger = getattr(server, "event_logger", None)
    return logger if isinstance(logger, EventLogger) and _KERNEL_EVENTS in logger.schemas else None


def services_of(server: object) -> KernelServices:
    """Return the services that an extension of *server* makes; default ones if none does."""
    if isinstance(server, ServerApp):
        for apps in server.extension_manager.extension_apps.values():
            for app in apps:
                if isinstance(app, MakesKernelServices):
                    return app.kernel_services()
    return KernelServices()
