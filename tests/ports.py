"""Ports for servers that tests start, and start again at the same place.

No other process gets such a port meanwhile.
"""

from __future__ import annotations

import errno
import functools
import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_COUNT = 12_000


def free_port() -> int:
    """Return a port below the range that the system gives to any connection.

    So no connection gets it while a server is away. A server takes seconds from here until it
    listens, and other runs of tests choose meanwhile: two that got the same port would talk to the
    first that listens, and their tests know each other's tokens.

    Raises OSError if none is left.
    """
    below = _below()
    for port in random.SystemRandom().sample(below, len(below)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                _reserve(port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return port
    raise OSError(errno.EADDRINUSE, f"asked for a port of {below}, found none that is free")


def _below() -> range:
    first_given = int(_RANGE.read_text().split()[0])
    return range(max(1024, first_given - _COUNT), first_given)


@functools.cache
def _reserved() -> dict[int, socket.socket]:
    """Return the reserved sockets by port.

    Their names mark the ports; the system frees them with this process.
    """
    return {}


def _reserve(port: int) -> None:
    """Reserve a port. Raises OSError if another process, or this one, got it before."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0aliquot-test-port-{port}")
    except OSError:
        name.close()
        raise
    _reserved()[port] = name
