"""Ports for servers that tests start, and start again at the same place. Each is nobody else's meanwhile."""

from __future__ import annotations

import contextlib
import functools
import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_COUNT = 12_000


def free_port() -> int:
    """One below those that the system gives to any connection: while a server is away, none gets its port.

    A server takes seconds from here until it listens, and other runs of tests choose meanwhile: two that were given the
    same port would talk to the first that listens, and their tests know each other's tokens.
    """
    first_given = int(_RANGE.read_text().split()[0])
    below = range(max(1024, first_given - _COUNT), first_given)
    while True:
        port = random.SystemRandom().choice(below)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            _reserve(port)
            return port


@functools.cache
def _reserved() -> dict[int, socket.socket]:
    """By port: what has its name, which the system frees with this process."""
    return {}


def _reserve(port: int) -> None:
    """Raises OSError where another process, or this one, was given it before."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0aliquot-test-port-{port}")
    except OSError:
        name.close()
        raise
    _reserved()[port] = name
