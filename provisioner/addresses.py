"""Checks of the address of a server: its form, and whether its port speaks the scheme that it names.

A server waits for the rest of what it takes for a request. So a client that speaks TLS to a port of plain HTTP would
wait until its time is over. No token is sent here.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from functools import lru_cache
from urllib.parse import SplitResult, urlsplit

_PATIENCE_SECONDS = 2.0
_PORTS = {"http": 80, "https": 443}
_PLAIN_REQUEST = b"HEAD / HTTP/1.0\r\n\r\n"


def address_problem(url: str) -> str:
    """Return what is wrong with the form of an address, and the right form; empty for one that has it."""
    parts = _split(url)
    if parts is None or parts.scheme not in _PORTS or not parts.hostname or not url.isprintable() or " " in url:
        return f"{_shown(url)!r} is no address of a server. Write http:// or https:// before HOST:PORT/BASE/"
    if parts.username is not None:
        return f"{_shown(url)!r} has a user's name in it. Write HOST:PORT alone; a token has a variable of its own"
    return ""


def scheme_problem(url: str) -> str:
    """Return that the port of an address speaks another scheme, and the right one; empty where none is known to.

    Blocks: for an address with ``https`` that is right for one handshake, else for a few seconds.
    """
    parts = _split(url)
    if parts is None or parts.scheme not in _PORTS or not parts.hostname:
        return ""
    place = (parts.hostname, parts.port or _PORTS[parts.scheme])
    if parts.scheme == "https":
        if not _speaks_tls(place) and _speaks_plain_http(place):
            return f"{url} does not speak https: its port speaks plain HTTP. Use {_with(parts, 'http')}"
    elif _speaks_tls(place):
        return f"{url} does not speak plain HTTP: its port speaks TLS. Use {_with(parts, 'https')}"
    return ""


@lru_cache(maxsize=64)
def first_scheme_problem(url: str) -> str:
    """Return the same, found once: the answer does not change while a program runs, but for a server that is away."""
    return scheme_problem(url)


def _split(url: str) -> SplitResult | None:
    """Return the parts of an address; None where it has a port that is no number."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts


def _with(parts: SplitResult, scheme: str) -> str:
    return parts._replace(scheme=scheme).geturl()


def _shown(url: str) -> str:
    """Return what an error may repeat: a password may stand before an "@"."""
    return f"…@{url.rpartition('@')[2]}" if "@" in url else url


def _speaks_tls(place: tuple[str, int]) -> bool:
    """Return whether a handshake succeeds; the certificate does not matter here."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection(place, _PATIENCE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=place[0]),
        ):
            return True
    except (OSError, ValueError):
        return False


def _speaks_plain_http(place: tuple[str, int]) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(place, _PATIENCE_SECONDS) as plain:
        plain.sendall(_PLAIN_REQUEST)
        return plain.recv(5) == b"HTTP/"
    return False
