"""The address that the Hub has given to its gateway: whether the gateway can listen there, and why not.

JupyterHub takes any program that answers there for the gateway.
"""

from __future__ import annotations

import errno
import socket

from jupyter_aliquot.gateway.base.errors import CommandError
from jupyter_aliquot.provisioner.listener import ListenerError, account_name, listening_accounts

_REMEDY = (
    "a port below 1024 is one that no other account can take: configure(gateway_user=…, url='http://127.0.0.1:890')"
)


def check_address(ip: str, port: int) -> None:
    """Raise CommandError where another program holds the address, or this account may not have it."""
    try:
        found = socket.getaddrinfo(ip or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        place = f"{ip or '*'}:{port}"
        if error.errno == errno.EADDRINUSE:
            raise CommandError(
                f"this gateway cannot listen at {place}: {_holder(port)} holds it, and JupyterHub takes that for the "
                f"gateway. End it (ss -ltnp shows its pid); the Hub then starts the gateway by itself. And {_REMEDY}"
            ) from error
        if error.errno == errno.EACCES:
            raise CommandError(
                f"this gateway may not listen at {place}: the port is below 1024, and a Hub of root gives the right to "
                "it with configure(gateway_user=…) alone. Set that, or use a port from 1024"
            ) from error
        raise CommandError(f"this gateway cannot listen at {place}: {error.strerror or error}") from error


def _holder(port: int) -> str:
    """Return whose program holds a port, at the loopback address where most are."""
    try:
        accounts = listening_accounts(f"http://127.0.0.1:{port}")
    except ListenerError:
        accounts = None
    names = ", ".join(sorted(map(account_name, accounts or ())))
    return f"a program of the account {names}" if names else "another program"
