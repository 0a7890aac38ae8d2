"""One size-sealed memfd that the agent shares with a process, and the agent's mapping of it.

This module knows no word in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import threading

from jupyter_aliquot.gpu_hook.protocol import codec as protocol

FUTURE_WRITE_SEAL = 0x0010  # Linux 5.1; not in the fcntl module
SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class SharedPage:
    """One mapped memfd, and the descriptor to hand over until ``close_descriptor``."""

    def __init__(self, name: str, other_side_writes: bool, size_bytes: int = protocol.PAGE_BYTES) -> None:
        self.descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, size_bytes)
            self._map = mmap.mmap(self.descriptor, size_bytes)
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, SIZE_SEALS)
            if other_side_writes:
                fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
            else:
                self._forbid_writing()
        except OSError:
            os.close(self.descriptor)
            raise
        # Aligned native words: each store and load is one machine word, so it is never torn.
        self._bytes = memoryview(self._map)
        self.words = self._bytes.cast("Q")
        self.half_words = self._bytes.cast("I")

    def _forbid_writing(self) -> None:
        with contextlib.suppress(OSError):  # before Linux 5.1 the read-only descriptor alone has to do
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, FUTURE_WRITE_SEAL)
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
        writable = self.descriptor
        self.descriptor = os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC)
        os.close(writable)

    def close_descriptor(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def close(self) -> None:
        self.close_descriptor()
        self.words.release()
        self.half_words.release()
        self._bytes.release()
        self._map.close()

    def get_bytes(self, offset: int, length: int) -> bytes:
        return bytes(self._bytes[offset : offset + length])

    def set_bytes(self, offset: int, value: bytes) -> None:
        self._bytes[offset : offset + len(value)] = value


def fence() -> None:
    """Order stores before it before stores after it, on arm64 too.

    Two lock operations do; one would not.
    """
    for _ in range(2):
        with _fence_lock:
            pass


_fence_lock = threading.Lock()  # protects no data
