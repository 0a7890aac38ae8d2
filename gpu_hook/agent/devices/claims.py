"""The claim of this agent on its devices, which the agents of all accounts see.

The claim is a socket in the kernel's abstract namespace, named by the device. It needs no folder
that all accounts may write, ends with the process, and the kernel tells who holds it. It holds for
agents of one network namespace: those of one machine, unless one runs in a container with a network
of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import pwd
import socket
import struct
from collections.abc import Iterable

log = logging.getLogger(__name__)

_CREDENTIALS = struct.Struct("3i")
_ASKERS = 128
_SECONDS = 1.0


class DeviceClaimedError(Exception):
    """The agent of another account hands out the device. The message is for the user."""


class DeviceClaims:
    """The devices that this agent claimed. Of one event loop.

    ``machine`` tells software GPUs apart: each state file is a machine of its own, whose devices may
    have the UUIDs of others. It is empty for real devices.
    """

    def __init__(self, machine: str = "") -> None:
        self._machine = machine
        self._held: dict[str, socket.socket] = {}
        self._shared: set[str] = set()

    def claim(self, uuids: Iterable[str]) -> None:
        """Claim the devices that are not claimed yet. Raises DeviceClaimedError.

        Two agents of one account may share a device, as a demonstration beside a server does: that
        account's kernels are one power. The second one claims it at a look after the first has
        ended.
        """
        for uuid in uuids:
            if uuid not in self._held:
                self._claim(uuid)

    def close(self) -> None:
        """Let other agents claim the devices."""
        loop = asyncio.get_running_loop()
        for held in self._held.values():
            loop.remove_reader(held)
            held.close()
        self._held.clear()

    def _claim(self, uuid: str) -> None:
        machine = hashlib.sha256(self._machine.encode()).hexdigest()[:16] if self._machine else ""
        name = f"\0aliquot-agent/{machine}/{uuid}"
        if (claim := _bound(name)) is not None:
            claim.setblocking(False)
            asyncio.get_running_loop().add_reader(claim, _answer, claim)
            self._held[uuid] = claim
            return
        if (holder := _holder(uuid, name)) is None:
            return
        pid, uid = holder
        if uid != os.geteuid():
            raise DeviceClaimedError(
                f"the device {uuid} is handed out by the node agent of the account {_account(uid)} (pid {pid}), and "
                "one device has one agent. Ask for kernels there, or have that agent ended"
            )
        if uuid not in self._shared:
            self._shared.add(uuid)
            log.warning("event=device_shared device=%s with_pid=%d", uuid, pid)


def _bound(name: str) -> socket.socket | None:
    """Return a socket that holds this name; None where another process does."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        claim.bind(name)
        claim.listen(_ASKERS)
    except OSError:
        claim.close()
        return None
    return claim


def _answer(claim: socket.socket) -> None:
    """Let an asker go: it has learned from the kernel who listens here."""
    with contextlib.suppress(OSError):
        claim.accept()[0].close()


def _holder(uuid: str, name: str) -> tuple[int, int] | None:
    """Return the pid and the account of the process that holds the claim, as the kernel says.

    None: it ends or begins just now, and the next look asks again.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_SECONDS)
        try:
            asking.connect(name)
        except ConnectionRefusedError:
            return None
        except OSError as error:
            raise DeviceClaimedError(
                f"the device {uuid} is claimed by a process that does not answer ({error}). Try again; if it stays, "
                f"'ss -xlp' names the process that holds {name[1:]!r}"
            ) from error
        pid, uid, _ = _CREDENTIALS.unpack(asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid


def _account(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
