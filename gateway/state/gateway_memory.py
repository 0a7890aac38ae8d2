"""The state that outlives this server, and the warnings of a server that can keep none."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from jupyter_core.paths import jupyter_data_dir
from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

from jupyter_aliquot.gateway.base.lead import ALONE, Lead
from jupyter_aliquot.gateway.config import Aliquot
from jupyter_aliquot.provisioner.errors import StateError

from .session_table import usable_database
from .state_dir import GatewayFolder, NameTakenError, claim_folder, default_name

_HOUR_SECONDS = 3600.0
_DAY_SECONDS = 24 * _HOUR_SECONDS
_FOR_EVER_SECONDS = 100 * 365 * _DAY_SECONDS


@dataclass(frozen=True)
class GatewayMemory:
    """The gateway's state folder, None where no state is kept, for the reasons in ``remarks``; and its lead."""

    folder: GatewayFolder | None = None
    remarks: tuple[str, ...] = ()
    lead: Lead = ALONE

    def tell_stopping(self) -> None:
        if self.folder is not None:
            self.folder.tell_stopping()

    def close(self) -> None:
        if self.folder is not None:
            self.folder.close()


def claim_memory(
    server: ServerApp,
    settings: Aliquot,
    log: logging.Logger,
    lead: Lead = ALONE,
    *,
    is_remote: bool = False,
) -> GatewayMemory:
    """Take the gateway's name and folder.

    If another server has a name that was configured, this server ends.

    A server in gateway mode (*is_remote*) keeps its sessions alone: its kernels are the gateway's.
    """
    folders = "servers" if is_remote else "gateways"
    root = Path(settings.state_dir or Path(jupyter_data_dir()) / "aliquot" / folders)
    name = settings.gateway_name or default_name(server.root_dir)
    try:
        folder = claim_folder(root, name, is_chosen=bool(settings.gateway_name))
    except StateError as error:
        if isinstance(error, NameTakenError):
            log.critical("%s", error)
            server.exit(1)
        log.error("state=unavailable reason=%s", error)
        lost = "notebooks will not find their kernels after a restart" if is_remote else "kernels end with it"
        return GatewayMemory(None, (f"This server's {lost}, because it can keep no state: {error}.",), lead)
    log.info("gateway=%s state=%s", folder.name, folder.path)
    keep_sessions(server, folder, "RemoteSessionManager" if is_remote else "OwnedSessionManager", log)
    return GatewayMemory(folder, lead=lead)


def keep_sessions(server: ServerApp, folder: GatewayFolder, manager: str, log: logging.Logger) -> None:
    """Put the table of sessions into the folder, unless another place is configured for it."""
    chosen = [server.config.get(name, {}) for name in ("SessionManager", "GatewaySessionManager", manager)]
    if not any("database_filepath" in section for section in chosen):
        path = usable_database(folder.sessions, log)
        server.update_config(Config({manager: {"database_filepath": path}}))


def orphan_seconds(settings: Aliquot, *, is_service: bool) -> float:
    """Return how long kernels wait for this server to come back.

    *is_service*: it is `aliquot serve`.

    A service is expected back after a night's outage. A user's own JupyterLab may never be started
    again in that folder, and its kernels must not hold a machine's GPUs for a day.
    """
    if settings.orphan_seconds == -1:
        return _DAY_SECONDS if is_service else _HOUR_SECONDS
    return settings.orphan_seconds or _FOR_EVER_SECONDS
