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
import time
from collections.abc import Iterable

log = logging.getLogger(__name__)

_CREDENTIALS = struct.Struct("3i")
_ASKERS = 128
_SECONDS = 1.0
# A claim is bound before it listens, and may end while it is asked.
_TRIES, _PAUSE_SECONDS = 20, 0.005


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
        self._lost: set[str] = set()

    def claim(self, uuids: Iterable[str]) -> None:
        """Claim the devices that are not claimed yet.

        Two agents of one account may share a device, as a demonstration beside a server does: that
        account's kernels are one power. The second one claims it at a look after the first has
        ended. A claim of another account does not end the second one then, which has kernels on
        the device.

        Raises DeviceClaimedError for a device that this agent does not hand out yet.
        """
        for uuid in uuids:
            if uuid in self._held:
                continue
            try:
                self._claim(uuid)
            except DeviceClaimedError as error:
                if uuid not in self._shared:
                    raise
                if uuid not in self._lost:
                    self._lost.add(uuid)
                    log.error("event=device_claimed device=%s reason=%r", uuid, str(error))

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
        for _ in range(_TRIES):
            if (claim := _bound(name)) is not None:
                claim.setblocking(False)
                asyncio.get_running_loop().add_reader(claim, _answer, claim)
                self._held[uuid] = claim
                return
            if (holder := _holder(uuid, name)) is not None:
                break
            if uuid in self._shared:
                return  # the next look asks again
            time.sleep(_PAUSE_SECONDS)
        else:
            raise _not_answered(uuid, name, "it does not listen")
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

    None: no process listens; the holder ends or begins just now.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_SECONDS)
        try:
            asking.connect(name)
        except ConnectionRefusedError:
            return None
        except OSError as error:
            raise _not_answered(uuid, name, str(error)) from error
        pid, uid, _ = _CREDENTIALS.unpack(asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid


def _not_answered(uuid: str, name: str, reason: str) -> DeviceClaimedError:
    return DeviceClaimedError(
        f"the device {uuid} is claimed by a process that does not answer ({reason}). Try again; if it stays, "
        f"'ss -xap' names the process that holds {name[1:]!r}"
    )


def _account(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
