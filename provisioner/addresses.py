"""Checks of the address of a server: its form, and whether its port speaks the scheme that it names.

A client looks after its request failed, for words that help: a handshake may fail for reasons of its own, as for want
of a client's certificate. No token is sent here.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from urllib.parse import SplitResult, urlsplit

from .listener import is_loopback

_PATIENCE_SECONDS = 2.0
_LONGEST_LINE = 1000
_SECRET_BEHIND = re.compile("[?#]")
_PORTS = {"http": 80, "https": 443}
_PLAIN_REQUEST = b"HEAD / HTTP/1.0\r\n\r\n"
_OF_OTHER_CAUSES = (ssl.SSLCertVerificationError, ConnectionRefusedError, socket.gaierror)
# A server of TLS answers a plain request so, too.
_REFUSED = b"400"
_IN_PLAIN_TEXT = (
    " only where you trust the network on the way: the token then goes there in plain text, for all to read. Else ask "
    "an administrator for the server's https address"
)


def address_problem(url: str) -> str:
    """Return what is wrong with the form of an address, and the right form; empty for one that has it."""
    parts, shown = _split(url), shown_address(url)
    if parts is None or parts.scheme not in _PORTS or not parts.hostname or not url.isprintable() or " " in url:
        return f"{shown!r} is no address of a server. Write http:// or https:// before HOST:PORT/BASE/"
    if parts.username is not None:
        return f"{shown!r} has a user's name in it. Write HOST:PORT alone; a token has a variable of its own"
    if mark := _SECRET_BEHIND.search(url):
        return (
            f"{shown!r} goes on with a {mark[0]!r}. Leave out everything from that on, and set "
            "JUPYTER_GATEWAY_AUTH_TOKEN to the token"
        )
    return ""


def shown_address(url: str) -> str:
    """Return what a message may repeat: a password may stand before an "@", and a token behind a "?"."""
    parts = _SECRET_BEHIND.split(url, maxsplit=1)
    if "@" in "".join(parts[1:]):
        return "…"  # the password may have the "?" in it
    return f"…@{parts[0].rpartition('@')[2]}" if "@" in parts[0] else parts[0]


def is_of_tls(error: BaseException) -> bool:
    """Return whether a request may have failed as the port does not speak TLS."""
    return isinstance(error, OSError) and not isinstance(error, _OF_OTHER_CAUSES)


def scheme_problem(url: str) -> str:
    """Return that the port of an address speaks another scheme, and the right one; empty where none is known to.

    Blocks for a few seconds. For use once a request has failed.
    """
    parts = _split(url)
    if parts is None or parts.scheme not in _PORTS or not parts.hostname:
        return ""
    place = (parts.hostname, parts.port or _PORTS[parts.scheme])
    if parts.scheme == "https":
        if not _speaks_tls(place) and _speaks_plain_http(place):
            risk = "" if is_loopback(parts.hostname) else _IN_PLAIN_TEXT
            return f"{url} does not speak https: its port speaks plain HTTP. Use {_with(parts, 'http')}{risk}"
    elif _speaks_tls(place):
        return f"{url} does not speak plain HTTP: its port speaks TLS. Use {_with(parts, 'https')}"
    return ""


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


def _speaks_tls(place: tuple[str, int]) -> bool:
    """Return whether TLS answers a handshake; the certificates do not matter here."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection(place, _PATIENCE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=place[0]),
        ):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # TLS says why it refuses
    except (OSError, ValueError):
        return False


def _speaks_plain_http(place: tuple[str, int]) -> bool:
    """Return whether the port answers a plain request, with anything but a refusal of the request itself."""
    with contextlib.suppress(OSError), socket.create_connection(place, _PATIENCE_SECONDS) as plain:
        plain.sendall(_PLAIN_REQUEST)
        with plain.makefile("rb") as answer:
            protocol, _, rest = answer.readline(_LONGEST_LINE).partition(b" ")
            return protocol.startswith(b"HTTP/") and rest[:3].isdigit() and not rest.startswith(_REFUSED)
    return False
