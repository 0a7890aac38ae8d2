"""The two shared pages of a process: ours, which it can only read, and its own, which we do not trust.

Both are size-sealed memfds. Ours is handed out through a descriptor opened for reading, and sealed against writing
by anybody but this mapping, so that a process cannot reopen it for writing either.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass

from aliquot.gpu_hook import protocol
from aliquot.gpu_hook.placement import Part
from aliquot.gpu_hook.protocol import AgentPage, HookPage

_F_SEAL_FUTURE_WRITE = 0x0010  # Linux 5.1; not in the fcntl module
_SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


@dataclass(frozen=True)
class HookWords:
    """What a hook says of one device. Untrusted: the reader bounds it by what was lent."""

    charged_bytes: int
    peak_bytes: int
    refusals: int


class _Page:
    """One mapped memfd, and the descriptor that is passed on until ``close_descriptor``."""

    def __init__(self, name: str, other_side_writes: bool) -> None:
        self.descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.descriptor, protocol.PAGE_BYTES)
            self._map = mmap.mmap(self.descriptor, protocol.PAGE_BYTES)
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _SIZE_SEALS)
            if other_side_writes:
                fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
            else:
                self._forbid_writing()
        except OSError:
            os.close(self.descriptor)
            raise
        # Aligned native words: each store and load is one machine word, never a torn one.
        self._bytes = memoryview(self._map)
        self.words = self._bytes.cast("Q")
        self.half_words = self._bytes.cast("I")

    def _forbid_writing(self) -> None:
        with contextlib.suppress(OSError):  # before Linux 5.1 the read-only descriptor alone has to do
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _F_SEAL_FUTURE_WRITE)
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

    def set_bytes(self, offset: int, value: bytes) -> None:
        self._bytes[offset : offset + len(value)] = value


class AgentSide:
    """The page that the agent writes for one process."""

    def __init__(
        self, parts: Sequence[Part], generation: int, workload_class: protocol.WorkloadClass, version: int
    ) -> None:
        self._page = _Page("aliquot-agent-page", other_side_writes=False)
        page = self._page
        page.words[AgentPage.GENERATION // 8] = generation
        page.half_words[AgentPage.WORKLOAD_CLASS // 4] = workload_class
        page.half_words[AgentPage.DEVICE_COUNT // 4] = len(parts)
        for device, part in enumerate(parts):
            start = AgentPage.DEVICES + device * AgentPage.DEVICE_BYTES
            page.set_bytes(start + AgentPage.UUID, protocol.device_uuid_bytes(part.uuid))
            page.words[(start + AgentPage.QUOTA) // 8] = part.quota_bytes
            page.half_words[(start + AgentPage.SHARE_HUNDREDTHS) // 4] = part.hundredths
        page.half_words[AgentPage.VERSION // 4] = version
        page.half_words[AgentPage.MAGIC // 4] = protocol.PAGE_MAGIC
        self.device_count = len(parts)
        self._written: dict[int, tuple[int, int, int]] = {}

    @property
    def descriptor(self) -> int:
        return self._page.descriptor

    def write(self, device: int, charged: int, charged_elsewhere: int, busy_nanoseconds: int) -> None:
        """Write the sampled words of one device, when they changed."""
        sample = (charged, charged_elsewhere, busy_nanoseconds)
        if self._written.get(device) == sample:
            return
        self._written[device] = sample
        start = AgentPage.DEVICES + device * AgentPage.DEVICE_BYTES
        words = self._page.words
        words[(start + AgentPage.CHARGED) // 8] = charged
        words[(start + AgentPage.CHARGED_ELSEWHERE) // 8] = charged_elsewhere
        words[(start + AgentPage.BUSY_NANOSECONDS) // 8] = busy_nanoseconds

    def close_descriptor(self) -> None:
        """The process has its own now."""
        self._page.close_descriptor()

    def close(self) -> None:
        self._page.close()


class HookSide:
    """The page that the hook writes, as the agent reads it."""

    def __init__(self) -> None:
        self._page = _Page("aliquot-hook-page", other_side_writes=True)

    @property
    def descriptor(self) -> int:
        return self._page.descriptor

    def charged(self, device: int) -> int:
        """The one word that is read often."""
        return self._page.words[(HookPage.DEVICES + device * HookPage.DEVICE_BYTES + HookPage.CHARGED) // 8]

    def read(self, device: int) -> HookWords:
        start = (HookPage.DEVICES + device * HookPage.DEVICE_BYTES) // 8
        words = self._page.words
        return HookWords(
            charged_bytes=words[start + HookPage.CHARGED // 8],
            peak_bytes=words[start + HookPage.PEAK // 8],
            refusals=words[start + HookPage.REFUSALS // 8],
        )

    def close_descriptor(self) -> None:
        """The process has its own now."""
        self._page.close_descriptor()

    def close(self) -> None:
        self._page.close()
