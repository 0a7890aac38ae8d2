"""Ports for servers that tests start, and start again at the same place. It reserves none."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_COUNT = 12_000


def free_port() -> int:
    """One below those that the system gives to any connection: while a server is away, none gets its port."""
    first_given = int(_RANGE.read_text().split()[0])
    below = range(max(1024, first_given - _COUNT), first_given)
    while True:
        port = random.SystemRandom().choice(below)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
