"""A process's activity page: the third shared page, on which its hook shows its work.

The agent reads it, and so do the other processes that the agent lets read it. Its owner gets a
descriptor for writing, others one for reading. Two measures keep others from writing it: the file
belongs to the agent's user alone, and once its owner has mapped it, the agent seals it against
further mappings for writing. Its contents are untrusted; the reader bounds them
(compute/reading.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from typing import NamedTuple

from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import ActivityPage

from .shared_page import FUTURE_WRITE_SEAL, SIZE_SEALS


class ActivityWords(NamedTuple):
    """The words of an activity page about one device. Untrusted; times in nanoseconds."""

    is_active: int
    since: int
    interval_count: int
    lost: int


class ActivitySide:
    """One activity page.

    ``descriptor`` is for its owner, until ``close_descriptor``; ``reader`` is for other processes,
    while the activity page lives.
    """

    def __init__(self) -> None:
        self.descriptor = self.reader = self._sealer = -1
        try:
            self.descriptor = os.memfd_create("aliquot-activity-page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self.descriptor, protocol.ACTIVITY_PAGE_BYTES)
            os.fchmod(self.descriptor, 0o600)
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, SIZE_SEALS)
            self.reader = os.open(f"/proc/self/fd/{self.descriptor}", os.O_RDONLY | os.O_CLOEXEC)
            self._sealer = os.dup(self.descriptor)
            self._map = mmap.mmap(self.reader, protocol.ACTIVITY_PAGE_BYTES, prot=mmap.PROT_READ)
        except OSError:
            self._close_descriptors()
            raise
        # Aligned native words: each load is one machine word, so it is never torn.
        self._bytes = memoryview(self._map)
        self._words = self._bytes.cast("Q")
        self._half_words = self._bytes.cast("I")

    def read(self, device: int) -> ActivityWords:
        start = ActivityPage.DEVICES + device * ActivityPage.DEVICE_BYTES
        words = self._words[start // 8 : start // 8 + 4].tolist()
        return ActivityWords(self._half_words[start // 4], *words[1:])

    def intervals(self, device: int) -> list[int]:
        """Return the ring: starts and ends, alternating."""
        start = (ActivityPage.DEVICES + device * ActivityPage.DEVICE_BYTES + ActivityPage.INTERVALS) // 8
        return self._words[start : start + 2 * protocol.ACTIVITY_INTERVALS].tolist()

    def seal(self) -> bool:
        """Forbid further mappings for writing, once the owner has its own.

        Return whether the seal is in place.
        """
        if self._sealer < 0:
            return True
        if self._half_words[ActivityPage.MAGIC // 4] != protocol.ACTIVITY_PAGE_MAGIC:
            return False
        with contextlib.suppress(OSError):  # before Linux 5.1 the file's mode alone has to do
            fcntl.fcntl(self._sealer, fcntl.F_ADD_SEALS, FUTURE_WRITE_SEAL | fcntl.F_SEAL_SEAL)
        os.close(self._sealer)
        self._sealer = -1
        return True

    def close_descriptor(self) -> None:
        """Close our copy of the descriptor: the owner has its own now."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def close(self) -> None:
        self._close_descriptors()
        self._words.release()
        self._half_words.release()
        self._bytes.release()
        self._map.close()

    def _close_descriptors(self) -> None:
        for descriptor in {self.descriptor, self.reader, self._sealer} - {-1}:
            os.close(descriptor)
        self.descriptor = self.reader = self._sealer = -1
