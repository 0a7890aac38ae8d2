"""The account that listens at a loopback address, as the kernel says it.

Any account may listen at a free port. A program that is about to send a secret to a loopback
address asks here first, which account would get it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import pwd
import socket
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from .errors import AliquotError
from .listening_sockets import ListeningSocket, listening_sockets, plain_address

# The number of the gateway's account, in the environment of a server or a command.
ACCOUNT_VARIABLE = "ALIQUOT_GATEWAY_ACCOUNT"
_LOCALHOST = ("127.0.0.1", "::1")
_ROOT = 0


class ListenerError(AliquotError):
    """No process, or one of another account, listens where the gateway should."""


def account_in(environ: Mapping[str, str]) -> int | None:
    """Return the gateway's account that the environment names; None where it names none.

    Raises ListenerError.
    """
    if not (account := environ.get(ACCOUNT_VARIABLE, "")):
        return None
    if not account.isdigit():
        raise ListenerError(f"{ACCOUNT_VARIABLE}={account!r} is not valid. Use the number of the gateway's account")
    return int(account)


def check_listener(url: str, account: int) -> None:
    """Check that a token may be sent to *url*: that *account*, or root, listens there.

    An address that is none of this machine's loopback is not checked. Raises ListenerError.
    """
    if (found := listening_accounts(url)) is None:
        return
    if not found:
        raise ListenerError(f"{url} does not answer: no process listens there. Try again when it is back")
    if others := sorted(found - {_ROOT, account}):
        raise ListenerError(
            f"the address {url} is held by a process of the account {account_name(others[0])}, not by one of "
            f"{account_name(account)} or root. No token is sent there. Ask an administrator to end that process"
        )


def listening_accounts(url: str) -> set[int] | None:
    """Return the accounts that get connections to a loopback address; None for any other address.

    Raises ListenerError where the system does not tell.
    """
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if not (addresses := _loopback_addresses(parts.hostname or "")):
        return None
    try:
        listeners = listening_sockets()
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        raise ListenerError(f"cannot see which account the gateway's port has: {reason}") from error
    return {uid for one in addresses for uid in _accounts_at(one, port, listeners)}


def is_loopback(host: str) -> bool:
    """Return whether what is sent to a host stays on this machine's loopback."""
    return bool(_loopback_addresses(host))


def is_this_machine(host: str) -> bool:
    """Return whether a host is this machine: its loopback, its name, or an address of it. No name server is asked."""
    if is_loopback(host) or host.lower() == socket.gethostname().lower():
        return True
    return any(_is_own(address) for address in _addresses(host))


def account_name(uid: int) -> str:
    """Return the name of an account, or its number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _loopback_addresses(host: str) -> tuple[str, ...]:
    """Return the loopback addresses that a client of *host* tries; empty for any other host."""
    if host == "localhost":
        return _LOCALHOST
    tried = (plain_address(address) for address in _addresses(host))
    return tuple(address for address in tried if ipaddress.ip_address(address).is_loopback)


def _addresses(host: str) -> Iterator[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Yield the addresses that a host stands for, without asking a name server.

    Other names than this machine's own are not looked up.
    """
    if host.lower() == socket.gethostname().lower():
        with contextlib.suppress(OSError):  # a machine that does not know its name: no client reaches it so
            for found in sorted({str(info[4][0]) for info in socket.getaddrinfo(host, None)}):
                yield ipaddress.ip_address(found.partition("%")[0])
        return
    with contextlib.suppress(ValueError):
        yield ipaddress.ip_address(host)
        return
    with contextlib.suppress(OSError, UnicodeError):
        yield ipaddress.IPv4Address(socket.inet_aton(host))  # 127.1, or one number: clients take them as well


def _is_own(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether this machine has an address: a socket may be bound to no other."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as bound:
        bound.bind((str(address), 0))
        return True
    return False


def _accounts_at(address: str, port: int, listeners: list[ListeningSocket]) -> set[int]:
    """Return the accounts that get connections to this address.

    The kernel prefers a socket that is bound to the address itself to one that is bound to all.
    """
    is_v4 = ipaddress.ip_address(address).version == 4
    for bound in (address, "0.0.0.0", "::") if is_v4 else (address, "::"):
        if found := {one.uid for one in listeners if (one.address, one.port) == (bound, port)}:
            return found
    return set()
