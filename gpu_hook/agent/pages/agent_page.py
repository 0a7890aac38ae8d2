"""The page that the agent writes for one process: its limits and orders.

The process can only read it. The agent hands out a descriptor opened for reading, and seals the
file against writing by any but its own mapping, so that a process cannot reopen it for writing.
hook_page.py and activity_page.py have the process's own pages.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import NO_LIMIT, AgentPage, Gate, Pace

from .shared_page import SharedPage, fence


@dataclass(frozen=True)
class ResidencyPlan:
    """The way in which a process holds and moves its memory, as its page says.

    It does not change while the process lives.
    """

    mode: protocol.ResidencyMode = protocol.ResidencyMode.OFF
    least_swappable_bytes: int = 0
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


@dataclass(frozen=True)
class Order:
    """The words of one process's page for one device; see aliquot_pages.h.

    The default lets everything pass.
    """

    gate: Gate = Gate.OPEN
    pace: Pace = Pace.OFF
    allowed: int = NO_LIMIT
    allowed_with_busy_peers: int = NO_LIMIT
    in_flight_cap: int = 0
    batch_microseconds: int = 1000
    idle_window_min: int = 0  # these three in microseconds
    idle_window_max: int = 0
    idle_resume: int = 0
    solo_window: int = 0
    is_sampled: bool = False


OPEN = Order()
MEASURED = Order(gate=Gate.PACED, pace=Pace.MEASURE)


class AgentSide:
    """The page that the agent writes for one process."""

    def __init__(
        self,
        parts: Sequence[Part],
        generation: int,
        workload_class: protocol.WorkloadClass,
        host_quota_bytes: int = protocol.NO_LIMIT,
        plan: ResidencyPlan | None = None,
    ) -> None:
        self._page = SharedPage("aliquot-agent-page", other_side_writes=False)
        page = self._page
        page.half_words[AgentPage.DEVICE_COUNT // 4] = len(parts)
        self._set_devices(parts)
        self.set_grant(parts, generation, workload_class, host_quota_bytes)
        if plan is not None:
            self._write_plan(plan)
        page.half_words[AgentPage.VERSION // 4] = protocol.VERSION
        page.half_words[AgentPage.MAGIC // 4] = protocol.PAGE_MAGIC
        self.device_count = len(parts)
        self._written: dict[int, tuple[int, int]] = {}
        self._processes = b""
        self._orders: dict[int, Order] = {}
        self._gate = Gate.OPEN

    @property
    def descriptor(self) -> int:
        return self._page.descriptor

    def write(self, device: int, charged: int, charged_elsewhere: int) -> None:
        """Write the bytes charged on one device, or of host memory, when they changed."""
        if self._written.get(device) == (charged, charged_elsewhere):
            return
        self._written[device] = (charged, charged_elsewhere)
        words = self._page.words
        if device != protocol.HOST_MEMORY:
            start = AgentPage.DEVICES + device * AgentPage.DEVICE_BYTES
            words[(start + AgentPage.CHARGED) // 8] = charged
            words[(start + AgentPage.CHARGED_ELSEWHERE) // 8] = charged_elsewhere
        else:
            words[AgentPage.HOST_CHARGED // 8] = charged
            words[AgentPage.HOST_CHARGED_ELSEWHERE // 8] = charged_elsewhere

    def write_busy(self, device: int, busy_nanoseconds: int, utilization_percent: int) -> None:
        start = AgentPage.DEVICES + device * AgentPage.DEVICE_BYTES
        self._page.words[(start + AgentPage.BUSY_NANOSECONDS) // 8] = busy_nanoseconds
        self._page.half_words[(start + AgentPage.UTILIZATION) // 4] = utilization_percent

    def set_enforcer(self, enforcer: protocol.Enforcer) -> None:
        """Write the enforcer that holds the limits, for all of the kernel's devices."""
        for device in range(self.device_count):
            start = AgentPage.DEVICES + device * AgentPage.DEVICE_BYTES
            self._page.half_words[(start + AgentPage.ENFORCER) // 4] = enforcer

    def set_grant(
        self, parts: Sequence[Part], generation: int, workload_class: protocol.WorkloadClass, host_quota_bytes: int
    ) -> None:
        """Write the size and class in force.

        The generation is written last: a reader that sees it sees the rest.
        """
        words, half_words = self._page.words, self._page.half_words
        half_words[AgentPage.WORKLOAD_CLASS // 4] = workload_class
        for device, part in enumerate(parts):
            start = AgentPage.DEVICES + device * AgentPage.DEVICE_BYTES
            words[(start + AgentPage.QUOTA) // 8] = part.quota_bytes
            half_words[(start + AgentPage.SHARE_HUNDREDTHS) // 4] = part.hundredths
        words[AgentPage.HOST_QUOTA // 8] = host_quota_bytes
        fence()
        words[AgentPage.GENERATION // 8] = generation

    def move(
        self, parts: Sequence[Part], generation: int, workload_class: protocol.WorkloadClass, host_quota_bytes: int
    ) -> None:
        """Write the other devices behind the process's ordinals.

        No call of it is under way then. With another generation its hook asks the driver for them anew.
        """
        self._set_devices(parts)
        fence()
        self.set_grant(parts, generation, workload_class, host_quota_bytes)

    def _set_devices(self, parts: Sequence[Part]) -> None:
        for device, part in enumerate(parts):
            start = AgentPage.DEVICES + device * AgentPage.DEVICE_BYTES
            self._page.set_bytes(start + AgentPage.UUID, protocol.device_uuid_bytes(part.uuid))

    def set_lease(self, lease: protocol.Lease) -> None:
        """Write whether the process's calls may go on."""
        self._page.half_words[AgentPage.LEASE // 4] = lease

    def count_interrupt(self) -> None:
        """Tell the process that its kernel's user interrupts it."""
        at = AgentPage.INTERRUPTS // 4
        self._page.half_words[at] = (self._page.half_words[at] + 1) & 0xFFFFFFFF

    def set_order(self, device: int, order: Order) -> None:
        """Write what the process may do on one device, when that changed.

        ``set_gate`` writes the gate. The pace is written after the words that it depends on.
        """
        before = self._orders.get(device, OPEN)
        if before == order:
            return
        self._orders[device] = order
        start = AgentPage.DEVICES + device * AgentPage.DEVICE_BYTES
        words, half_words = self._page.words, self._page.half_words
        words[(start + AgentPage.ALLOWED) // 8] = order.allowed
        words[(start + AgentPage.ALLOWED_WITH_BUSY_PEERS) // 8] = order.allowed_with_busy_peers
        for offset, value in (
            (AgentPage.IN_FLIGHT_CAP, order.in_flight_cap),
            (AgentPage.BATCH, order.batch_microseconds),
            (AgentPage.IDLE_WINDOW_MIN, order.idle_window_min),
            (AgentPage.IDLE_WINDOW_MAX, order.idle_window_max),
            (AgentPage.IDLE_RESUME, order.idle_resume),
            (AgentPage.SOLO_WINDOW, order.solo_window),
            (AgentPage.IS_SAMPLED, order.is_sampled),
        ):
            half_words[(start + offset) // 4] = value
        if order.pace != before.pace:
            fence()
            half_words[(start + AgentPage.PACE) // 4] = order.pace

    def set_gate(self, gate: Gate) -> None:
        """Write the gate of all the process's devices.

        A hook that reads it also reads the orders before it.
        """
        if gate is not self._gate:
            self._gate = gate
            fence()
            self._page.half_words[AgentPage.GATE // 4] = gate

    def _write_plan(self, plan: ResidencyPlan) -> None:
        page = self._page
        page.half_words[AgentPage.RESIDENCY_MODE // 4] = plan.mode
        page.words[AgentPage.LEAST_SWAPPABLE // 8] = plan.least_swappable_bytes
        page.words[AgentPage.CHUNK // 8] = plan.chunk_bytes
        page.words[AgentPage.RING // 8] = plan.ring_bytes
        page.half_words[AgentPage.COPY_THREADS // 4] = plan.copy_threads
        page.half_words[AgentPage.COPY_STREAMS // 4] = plan.copy_streams

    def write_processes(self, table: bytes) -> None:
        """Replace the table (see ``pack_processes``), when it changed.

        A reader in between sees an odd sequence.
        """
        if table == self._processes:
            return
        self._processes = table
        half_words = self._page.half_words
        half_words[AgentPage.PROCESS_SEQUENCE // 4] = (half_words[AgentPage.PROCESS_SEQUENCE // 4] + 1) & 0xFFFFFFFF
        fence()
        half_words[AgentPage.PROCESS_COUNT // 4] = len(table) // AgentPage.PROCESS.size
        self._page.set_bytes(AgentPage.PROCESSES, table)
        fence()
        half_words[AgentPage.PROCESS_SEQUENCE // 4] = (half_words[AgentPage.PROCESS_SEQUENCE // 4] + 1) & 0xFFFFFFFF

    def close_descriptor(self) -> None:
        """Close our copy of the descriptor: the process has its own now."""
        self._page.close_descriptor()

    def close(self) -> None:
        self._page.close()


def pack_processes(entries: Iterable[ProcessEntry]) -> bytes:
    """Return the table of a kernel's processes, for the pages of all of them.

    Processes for which it has no room are left out.
    """
    shown = itertools.islice(entries, protocol.MAX_PROCESSES)
    return b"".join(AgentPage.PROCESS.pack(e.pid, e.own_pid, e.device, 0, e.charged_bytes) for e in shown)
