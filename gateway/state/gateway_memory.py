"""What this server remembers beyond its own life, and what it says where it can remember nothing."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from jupyter_core.paths import jupyter_data_dir
from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

from jupyter_aliquot.gateway.config import Aliquot
from jupyter_aliquot.provisioner.errors import StateError

from .session_table import usable_database
from .state_dir import GatewayFolder, NameTakenError, claim_folder, default_name

_HOUR_SECONDS = 3600.0
_DAY_SECONDS = 24 * _HOUR_SECONDS
_FOR_EVER_SECONDS = 100 * 365 * _DAY_SECONDS


@dataclass(frozen=True)
class GatewayMemory:
    """The gateway's folder; None: nothing is remembered, for the reasons in ``remarks``."""

    folder: GatewayFolder | None = None
    remarks: tuple[str, ...] = ()

    def tell_stopping(self) -> None:
        if self.folder is not None:
            self.folder.tell_stopping()

    def close(self) -> None:
        if self.folder is not None:
            self.folder.close()


def claim_memory(server: ServerApp, knobs: Aliquot, log: logging.Logger, *, is_remote: bool = False) -> GatewayMemory:
    """Take the gateway's name and folder. A name that somebody chose and another server has ends this server.

    ``is_remote``: its kernels are on a gateway elsewhere, and it remembers its sessions alone.
    """
    folders = "servers" if is_remote else "gateways"
    root = Path(knobs.state_dir or Path(jupyter_data_dir()) / "aliquot" / folders)
    name = knobs.gateway_name or default_name(server.root_dir)
    try:
        folder = claim_folder(root, name, is_chosen=bool(knobs.gateway_name))
    except StateError as error:
        if isinstance(error, NameTakenError):
            log.critical("%s", error)
            server.exit(1)
        log.error("state=unavailable reason=%s", error)
        lost = "notebooks will not find their kernels after a restart" if is_remote else "kernels end with it"
        return GatewayMemory(None, (f"This server's {lost}, for nothing can be remembered: {error}.",))
    log.info("gateway=%s state=%s", folder.name, folder.path)
    keep_sessions(server, folder, "RemoteSessionManager" if is_remote else "OwnedSessionManager", log)
    return GatewayMemory(folder)


def keep_sessions(server: ServerApp, folder: GatewayFolder, manager: str, log: logging.Logger) -> None:
    """Put the table of sessions into the folder, where nobody chose another place for it."""
    chosen = [server.config.get(name, {}) for name in ("SessionManager", "GatewaySessionManager", manager)]
    if not any("database_filepath" in section for section in chosen):
        path = usable_database(folder.sessions, log)
        server.update_config(Config({manager: {"database_filepath": path}}))


def orphan_seconds(knobs: Aliquot, *, is_service: bool) -> float:
    """How long kernels wait for this server to come back. ``is_service``: whether it is `aliquot serve`.

    A service is expected back after a night's outage; behind somebody's own JupyterLab, which may never be started
    again in that folder, kernels must not hold a machine's GPUs for a day.
    """
    if knobs.orphan_seconds == -1:
        return _DAY_SECONDS if is_service else _HOUR_SECONDS
    return knobs.orphan_seconds or _FOR_EVER_SECONDS
