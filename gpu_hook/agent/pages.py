"""The two shared pages of a process: ours, which it can only read, and its own, which we do not trust.

Both are size-sealed memfds. Ours is handed out through a descriptor opened for reading, and sealed against writing
by anybody but this mapping, so that a process cannot reopen it for writing either.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import mmap
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aliquot.gpu_hook import protocol
from aliquot.gpu_hook.placement import Part
from aliquot.gpu_hook.protocol import AgentPage, HookPage

_F_SEAL_FUTURE_WRITE = 0x0010  # Linux 5.1; not in the fcntl module
_KNOWN_STAYING = (protocol.Staying.MODE << 1) - 1
_SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


@dataclass(frozen=True)
class HookWords:
    """What a hook says of one device, or of host memory. Untrusted: the reader bounds it by what was lent."""

    charged_bytes: int
    peak_bytes: int
    refusals: int


@dataclass(frozen=True)
class ResidencyWords:
    """What a hook says of where its process's memory is. Untrusted, too; ``last_call`` in seconds, 0.0: none yet."""

    staying: protocol.Staying
    waiting_calls: int
    calls_inside: int
    last_call: float


@dataclass(frozen=True)
class ResidencyPlan:
    """How a process is to hold and to move its memory, as its page tells it. Does not change while it lives."""

    mode: protocol.ResidencyMode = protocol.ResidencyMode.OFF
    least_elastic_bytes: int = 0
    chunk_bytes: int = 0
    ring_bytes: int = 0
    copy_threads: int = 0
    copy_streams: int = 0


@dataclass(frozen=True)
class ProcessEntry:
    """One line of the table of a kernel's processes."""

    pid: int
    own_pid: int
    device: int
    charged_bytes: int


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
        self,
        parts: Sequence[Part],
        generation: int,
        workload_class: protocol.WorkloadClass,
        version: int,
        host_quota_bytes: int = protocol.NO_LIMIT,
        plan: ResidencyPlan | None = None,
    ) -> None:
        self._page = _Page("aliquot-agent-page", other_side_writes=False)
        page = self._page
        page.half_words[AgentPage.DEVICE_COUNT // 4] = len(parts)
        for device, part in enumerate(parts):
            start = AgentPage.DEVICES + device * AgentPage.DEVICE_BYTES
            page.set_bytes(start + AgentPage.UUID, protocol.device_uuid_bytes(part.uuid))
        self._has_host_memory = version > 1
        self.set_grant(parts, generation, workload_class, host_quota_bytes)
        if version > 2 and plan is not None:
            self._write_plan(plan)
        self._has_lease = version > 2
        page.half_words[AgentPage.VERSION // 4] = version
        page.half_words[AgentPage.MAGIC // 4] = protocol.PAGE_MAGIC
        self.device_count = len(parts)
        self._written: dict[int, tuple[int, int]] = {}
        self._processes = b""

    @property
    def descriptor(self) -> int:
        return self._page.descriptor

    def write(self, device: int, charged: int, charged_elsewhere: int) -> None:
        """Write what was charged on one device, or of host memory, when it changed."""
        if self._written.get(device) == (charged, charged_elsewhere):
            return
        self._written[device] = (charged, charged_elsewhere)
        words = self._page.words
        if device != protocol.HOST_MEMORY:
            start = AgentPage.DEVICES + device * AgentPage.DEVICE_BYTES
            words[(start + AgentPage.CHARGED) // 8] = charged
            words[(start + AgentPage.CHARGED_ELSEWHERE) // 8] = charged_elsewhere
        elif self._has_host_memory:
            words[AgentPage.HOST_CHARGED // 8] = charged
            words[AgentPage.HOST_CHARGED_ELSEWHERE // 8] = charged_elsewhere

    def write_busy(self, device: int, busy_nanoseconds: int, utilization_percent: int) -> None:
        start = AgentPage.DEVICES + device * AgentPage.DEVICE_BYTES
        self._page.words[(start + AgentPage.BUSY_NANOSECONDS) // 8] = busy_nanoseconds
        self._page.half_words[(start + AgentPage.UTILIZATION) // 4] = utilization_percent

    def set_enforcer(self, enforcer: protocol.Enforcer) -> None:
        """What holds the limits now, on all of the kernel's devices."""
        for device in range(self.device_count):
            start = AgentPage.DEVICES + device * AgentPage.DEVICE_BYTES
            self._page.half_words[(start + AgentPage.ENFORCER) // 4] = enforcer

    def set_grant(
        self, parts: Sequence[Part], generation: int, workload_class: protocol.WorkloadClass, host_quota_bytes: int
    ) -> None:
        """The size and class in force, on the same devices. The generation comes last: who sees it sees the rest."""
        words, half_words = self._page.words, self._page.half_words
        half_words[AgentPage.WORKLOAD_CLASS // 4] = workload_class
        for device, part in enumerate(parts):
            start = AgentPage.DEVICES + device * AgentPage.DEVICE_BYTES
            words[(start + AgentPage.QUOTA) // 8] = part.quota_bytes
            half_words[(start + AgentPage.SHARE_HUNDREDTHS) // 4] = part.hundredths
        if self._has_host_memory:
            words[AgentPage.HOST_QUOTA // 8] = host_quota_bytes
        _fence()
        words[AgentPage.GENERATION // 8] = generation

    def set_lease(self, lease: protocol.Lease) -> None:
        """Whether its calls may go on. A hook of before knows no lease, and none is taken from it."""
        if self._has_lease:
            self._page.half_words[AgentPage.LEASE // 4] = lease

    def _write_plan(self, plan: ResidencyPlan) -> None:
        page = self._page
        page.half_words[AgentPage.RESIDENCY_MODE // 4] = plan.mode
        page.words[AgentPage.LEAST_ELASTIC // 8] = plan.least_elastic_bytes
        page.words[AgentPage.CHUNK // 8] = plan.chunk_bytes
        page.words[AgentPage.RING // 8] = plan.ring_bytes
        page.half_words[AgentPage.COPY_THREADS // 4] = plan.copy_threads
        page.half_words[AgentPage.COPY_STREAMS // 4] = plan.copy_streams

    def write_processes(self, table: bytes) -> None:
        """Replace the table (see ``pack_processes``), when it changed. A reader in between sees an odd sequence."""
        if table == self._processes:
            return
        self._processes = table
        half_words = self._page.half_words
        half_words[AgentPage.PROCESS_SEQUENCE // 4] = (half_words[AgentPage.PROCESS_SEQUENCE // 4] + 1) & 0xFFFFFFFF
        _fence()
        half_words[AgentPage.PROCESS_COUNT // 4] = len(table) // AgentPage.PROCESS.size
        self._page.set_bytes(AgentPage.PROCESSES, table)
        _fence()
        half_words[AgentPage.PROCESS_SEQUENCE // 4] = (half_words[AgentPage.PROCESS_SEQUENCE // 4] + 1) & 0xFFFFFFFF

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
        if device == protocol.HOST_MEMORY:
            return self._page.words[HookPage.HOST_CHARGED // 8]
        return self._page.words[(HookPage.DEVICES + device * HookPage.DEVICE_BYTES + HookPage.CHARGED) // 8]

    def read(self, device: int) -> HookWords:
        """Of one device, or of host memory (HOST_MEMORY)."""
        words = self._page.words
        if device == protocol.HOST_MEMORY:
            return HookWords(
                charged_bytes=words[HookPage.HOST_CHARGED // 8],
                peak_bytes=words[HookPage.HOST_PEAK // 8],
                refusals=words[HookPage.HOST_REFUSALS // 8],
            )
        start = (HookPage.DEVICES + device * HookPage.DEVICE_BYTES) // 8
        return HookWords(
            charged_bytes=words[start + HookPage.CHARGED // 8],
            peak_bytes=words[start + HookPage.PEAK // 8],
            refusals=words[start + HookPage.REFUSALS // 8],
        )

    def elastic(self, device: int) -> int:
        """Of the charged bytes, those that can leave."""
        return self._page.words[(HookPage.DEVICES + device * HookPage.DEVICE_BYTES + HookPage.ELASTIC) // 8]

    def swapped(self, device: int) -> int:
        """Of these, those on the host now."""
        return self._page.words[(HookPage.DEVICES + device * HookPage.DEVICE_BYTES + HookPage.SWAPPED) // 8]

    def launches(self, device: int) -> int:
        return self._page.words[(HookPage.DEVICES + device * HookPage.DEVICE_BYTES + HookPage.LAUNCHES) // 8]

    def residency(self) -> int:
        """Where its memory is: a Residency, if it is one."""
        return self._page.half_words[HookPage.RESIDENCY // 4]

    def read_residency(self) -> ResidencyWords:
        half_words = self._page.half_words
        return ResidencyWords(
            staying=protocol.Staying(half_words[HookPage.STAYING // 4] & _KNOWN_STAYING),
            waiting_calls=half_words[HookPage.WAITING_CALLS // 4],
            calls_inside=half_words[HookPage.CALLS_INSIDE // 4],
            last_call=self._page.words[HookPage.LAST_CALL // 8] / 1e9,
        )

    def close_descriptor(self) -> None:
        """The process has its own now."""
        self._page.close_descriptor()

    def close(self) -> None:
        self._page.close()


def pack_processes(entries: Iterable[ProcessEntry]) -> bytes:
    """The table of a kernel's processes, once for the pages of all of them; what it has no room for is left out."""
    shown = itertools.islice(entries, protocol.MAX_PROCESSES)
    return b"".join(AgentPage.PROCESS.pack(e.pid, e.own_pid, e.device, 0, e.charged_bytes) for e in shown)


def _fence() -> None:
    """Keep stores before it before those after it, on arm64 too: two lock operations do, one would not."""
    for _ in range(2):
        with _fence_lock:
            pass


_fence_lock = threading.Lock()  # guards nothing
