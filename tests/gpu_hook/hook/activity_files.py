"""Boards as an agent makes them, and the notices that hand them out."""

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
from jupyter_aliquot.gpu_hook.protocol.codec import Board, BoardKind, BoardNotice

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class BoardFile:
    """One memfd. ``has_magic``: as if its owner had mapped it."""

    def __init__(self, size: int = protocol.BOARD_BYTES, seals: int = SEALS, has_magic: bool = False) -> None:
        self.descriptor = os.memfd_create("board", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, size)
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals)
        self.reader = os.open(f"/proc/self/fd/{self.descriptor}", os.O_RDONLY | os.O_CLOEXEC)
        self.map = mmap.mmap(self.descriptor, size)
        if has_magic:
            struct.pack_into("=II", self.map, 0, protocol.BOARD_MAGIC, protocol.VERSION)

    def close(self) -> None:
        os.close(self.descriptor)
        os.close(self.reader)
        self.map.close()

    def __enter__(self) -> BoardFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_mapped(self) -> bool:
        return load_half(self.map, Board.MAGIC) == protocol.BOARD_MAGIC

    def word(self, offset: int, device: int = 0) -> int:
        return load(self.map, Board.DEVICES + device * Board.DEVICE_BYTES + offset)

    def is_active(self, device: int = 0) -> int:
        return self.word(Board.IS_ACTIVE, device) & 0xFFFFFFFF

    def show(self, is_active: int, since: int, device: int = 0) -> None:
        at = Board.DEVICES + device * Board.DEVICE_BYTES
        store(self.map, at + Board.SINCE, since)
        store_half(self.map, at + Board.IS_ACTIVE, is_active)

    def intervals(self, device: int = 0) -> list[tuple[int, int]]:
        """Return the intervals of the ring, oldest first."""
        count = self.word(Board.INTERVAL_COUNT, device)
        at = Board.DEVICES + device * Board.DEVICE_BYTES + Board.INTERVALS
        slots = [
            at + number % protocol.BOARD_INTERVALS * Board.INTERVAL_BYTES
            for number in range(max(0, count - protocol.BOARD_INTERVALS), count)
        ]
        return [(load(self.map, slot), load(self.map, slot + 8)) for slot in slots]


def send(connection: Any, notice: BoardNotice, *descriptors: int) -> None:
    """Send a notice to the process of a connection, as the agent would.

    A lost connection receives nothing.
    """
    send_packet(connection, protocol.pack(notice), *descriptors)


def send_packet(connection: Any, packet: bytes, *descriptors: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        socket.send_fds(connection.socket, [packet], list(descriptors))


def hand_own(connection: Any, board: BoardFile) -> None:
    send(connection, BoardNotice(BoardKind.OWN), board.descriptor)
