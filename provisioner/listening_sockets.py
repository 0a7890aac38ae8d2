"""The TCP sockets of this machine that listen, with their accounts, as the kernel tells them.

The kernel's socket diagnostics walk the listening sockets alone. /proc/net/tcp walks the tables of
all connections, which takes tens of milliseconds on a large machine: it serves where a kernel, or
a sandbox, has no diagnostics.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"
# linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_NLM_F_REQUEST, _NLM_F_DUMP, _NLM_F_DUMP_INTR = 0x1, 0x300, 0x10
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_TCP_LISTEN = 10
_KERNEL = 0  # as the sender of an answer
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence number, port
_REQUEST = struct.Struct("=BBBxI48x")  # family, protocol, extensions, states, an empty socket id
# family, state, timer, retransmissions; the socket id: ports, source, destination, interface, cookie
_ANSWER = struct.Struct("=4B2s2s16s16sI8sIIIII")
_MOST_BYTES = 1 << 16
_ANSWER_SECONDS = 2.0
_TRIALS = 5


@dataclass(frozen=True)
class ListeningSocket:
    """One socket: the address and port to which it is bound, and the account that made it."""

    address: str
    port: int
    uid: int


def listening_sockets() -> list[ListeningSocket]:
    """Return the listening sockets of TCP. Raises OSError where the system does not tell."""
    try:
        return [*_told(socket.AF_INET), *_told(socket.AF_INET6)]
    except OSError:
        return list(_in_tables())


def plain_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """Return the address as text; an IPv4 address within IPv6 as the IPv4 address that it is."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _told(family: int) -> list[ListeningSocket]:
    """Ask the socket diagnostics, again where sockets came or went meanwhile. Raises OSError."""
    for _ in range(_TRIALS):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as asked:
            asked.settimeout(_ANSWER_SECONDS)
            request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 1 << _TCP_LISTEN)
            flags = _NLM_F_REQUEST | _NLM_F_DUMP
            asked.send(_HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, flags, 1, 0) + request)
            found = _answers(asked, family)
        if found is not None:
            return found
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def _answers(asked: socket.socket, family: int) -> list[ListeningSocket] | None:
    """Return the sockets of one answer; None for one that other changes made incomplete. Raises OSError."""
    found: list[ListeningSocket] = []
    is_whole = True
    while True:
        data, (sender, _) = asked.recvfrom(_MOST_BYTES)
        if sender != _KERNEL:
            continue
        for kind, flags, body in _messages(data):
            is_whole = is_whole and not flags & _NLM_F_DUMP_INTR
            if kind == _NLMSG_DONE:
                return found if is_whole else None
            if kind == _NLMSG_ERROR:
                number = -struct.unpack_from("=i", body)[0]
                raise OSError(number, os.strerror(number))
            if kind == _SOCK_DIAG_BY_FAMILY:
                found.append(_read(body, family))


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield type, flags and body of the messages in a datagram. Raises OSError."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, flags, _, _ = _HEADER.unpack_from(data, at)
        if not _HEADER.size <= length <= len(data) - at:
            raise OSError(errno.EBADMSG, os.strerror(errno.EBADMSG))
        yield kind, flags, data[at + _HEADER.size : at + length]
        at += (length + 3) & ~3


def _read(body: bytes, family: int) -> ListeningSocket:
    if len(body) < _ANSWER.size:
        raise OSError(errno.EBADMSG, os.strerror(errno.EBADMSG))
    _, _, _, _, port, _, source, _, _, _, _, _, _, uid, _ = _ANSWER.unpack_from(body)
    address = source[:4] if family == socket.AF_INET else source
    return ListeningSocket(plain_address(ipaddress.ip_address(address)), int.from_bytes(port, "big"), uid)


def _in_tables() -> Iterator[ListeningSocket]:
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except FileNotFoundError:
            continue  # a machine without IPv6
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTENS:
                address, _, port = fields[1].partition(":")
                yield ListeningSocket(_address(address), int(port, 16), int(fields[7]))


def _address(digits: str) -> str:
    """Return an address that the kernel writes as words of 32 bits, in this machine's byte order."""
    words = [bytes.fromhex(digits[at : at + 8]) for at in range(0, len(digits), 8)]
    packed = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    return plain_address(ipaddress.ip_address(packed))
