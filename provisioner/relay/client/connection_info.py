"""Make the connection info of a kernel's relay: sockets in the place of ports.

This module opens no socket. The kernel manager is Jupyter's; its connection file, its clients and
`jupyter console --existing` follow the connection info.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import zmq
from jupyter_client._version import version_info
from jupyter_client.connect import port_names

from jupyter_aliquot.provisioner.relay.wire.files import CLIENT_LINKS, RelayRecord, keep_links

# The first version whose clients speak CurveZMQ over ipc.
_CURVE_OVER_IPC = (8, 10)


def reason_against(manager: Any, folder: Path) -> str:
    """Return why this kernel manager's clients cannot connect to a relay; empty if they can."""
    ports = [getattr(manager, name) for name in port_names]
    if manager.transport == "ipc" and manager.ip == _prefix(folder):
        return ""
    if any(ports):
        return f"its manager was given ports of its own ({', '.join(map(str, ports))})"
    if manager.transport == "tcp" and not _is_loopback(manager.ip):
        return f"its manager is to listen at {manager.ip}"
    return "" if manager.transport in ("tcp", "ipc") else f"its manager's transport is {manager.transport}"


def lead_clients(manager: Any, record: RelayRecord) -> None:
    """Make the manager's connection info that of the relay. Raises OSError."""
    keep_links(record.folder)
    tell_manager(manager, record)


def tell_manager(manager: Any, record: RelayRecord) -> None:
    """Do the same without the links, which clients need: the relay may be starting."""
    manager.cache_ports = False
    manager.transport, manager.ip = "ipc", _prefix(record.folder)
    for name in port_names:
        setattr(manager, name, record.front[name])


def curve_keys(manager: Any) -> tuple[str, str]:
    """Return the CurveZMQ keys for the client sockets; empty if the manager's policy wants none.

    Makes them at the first start, as Jupyter's own provisioner would; later it finds them on the
    manager.
    """
    if version_info[:2] < _CURVE_OVER_IPC:
        return "", ""
    policy = manager._transport_encryption_policy()
    if policy == "disabled" or (policy == "auto" and not manager._kernel_supports_curve_encryption()):
        return "", ""
    if manager.curve_publickey is None:
        manager.curve_publickey, manager.curve_secretkey = zmq.curve_keypair()
    return manager.curve_publickey.decode(), manager.curve_secretkey.decode()


def _prefix(folder: Path) -> str:
    return os.fspath(folder / CLIENT_LINKS)


def _is_loopback(ip: str) -> bool:
    return ip.startswith("127.") or ip in ("", "localhost", "::1")
