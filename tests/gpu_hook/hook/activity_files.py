"""ActivityPages as an agent makes them, and the notices that hand them out."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import socket
import struct
from typing import Any

from shared_words import load, load_half, store, store_half

from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import ActivityPage, ActivityPageKind, ActivityPageNotice

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class ActivityFile:
    """One memfd. ``has_magic``: as if its owner had mapped it."""

    def __init__(self, size: int = protocol.ACTIVITY_PAGE_BYTES, seals: int = SEALS, has_magic: bool = False) -> None:
        self.descriptor = os.memfd_create("activity page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, size)
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals)
        self.reader = os.open(f"/proc/self/fd/{self.descriptor}", os.O_RDONLY | os.O_CLOEXEC)
        self.map = mmap.mmap(self.descriptor, size)
        if has_magic:
            struct.pack_into("=II", self.map, 0, protocol.ACTIVITY_PAGE_MAGIC, protocol.VERSION)

    def close(self) -> None:
        os.close(self.descriptor)
        os.close(self.reader)
        self.map.close()

    def __enter__(self) -> ActivityFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_mapped(self) -> bool:
        return load_half(self.map, ActivityPage.MAGIC) == protocol.ACTIVITY_PAGE_MAGIC

    def word(self, offset: int, device: int = 0) -> int:
        return load(self.map, ActivityPage.DEVICES + device * ActivityPage.DEVICE_BYTES + offset)

    def is_active(self, device: int = 0) -> int:
        return self.word(ActivityPage.IS_ACTIVE, device) & 0xFFFFFFFF

    def show(self, is_active: int, since: int, device: int = 0) -> None:
        at = ActivityPage.DEVICES + device * ActivityPage.DEVICE_BYTES
        store(self.map, at + ActivityPage.SINCE, since)
        store_half(self.map, at + ActivityPage.IS_ACTIVE, is_active)

    def intervals(self, device: int = 0) -> list[tuple[int, int]]:
        """Return the intervals of the ring, oldest first."""
        count = self.word(ActivityPage.INTERVAL_COUNT, device)
        at = ActivityPage.DEVICES + device * ActivityPage.DEVICE_BYTES + ActivityPage.INTERVALS
        slots = [
            at + number % protocol.ACTIVITY_INTERVALS * ActivityPage.INTERVAL_BYTES
            for number in range(max(0, count - protocol.ACTIVITY_INTERVALS), count)
        ]
        return [(load(self.map, slot), load(self.map, slot + 8)) for slot in slots]


def send(connection: Any, notice: ActivityPageNotice, *descriptors: int) -> None:
    """Send a notice to the process of a connection, as the agent would.

    A lost connection receives nothing.
    """
    send_packet(connection, protocol.pack(notice), *descriptors)


def send_packet(connection: Any, packet: bytes, *descriptors: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        socket.send_fds(connection.socket, [packet], list(descriptors))


def hand_own(connection: Any, activity: ActivityFile) -> None:
    send(connection, ActivityPageNotice(ActivityPageKind.OWN), activity.descriptor)
