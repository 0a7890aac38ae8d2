"""Processes for the compute keeper, with real pages and no sockets.

The tests write what the processes' hooks would write.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import mmap
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jupyter_aliquot.gpu_hook.agent.compute.loop import ComputeKeeper
from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND, DeviceSample, Verdict
from jupyter_aliquot.gpu_hook.agent.compute.settings import ComputeSettings
from jupyter_aliquot.gpu_hook.agent.devices.devices import DeviceReading
from jupyter_aliquot.gpu_hook.agent.ledger.journal import Reservation
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts
from jupyter_aliquot.gpu_hook.agent.pages.activity_page import ActivitySide
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import MEASURED, AgentSide, Order
from jupyter_aliquot.gpu_hook.agent.pages.hook_page import HookSide
from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.gpu_hook.protocol.codec import (
    ACTIVITY_INTERVALS,
    ACTIVITY_PAGE_BYTES,
    ACTIVITY_PAGE_MAGIC,
    PAGE_BYTES,
    ActivityPage,
    ActivityPageKind,
    ActivityPageNotice,
    AgentPage,
    Gate,
    HookPage,
    Pace,
    Role,
    WorkloadClass,
)

GIB = 1 << 30


def uuid_of(device: int) -> str:
    return f"GPU-00000000-0000-0000-0000-0000000000a{device}"


@dataclass
class AKernel:
    kernel_id: str
    is_production: bool = True
    hundredths: int = 50
    devices: tuple[int, ...] = (0,)
    is_swapped_out: bool = False

    @property
    def reservation(self) -> Reservation:
        parts = tuple(Part(uuid_of(d), d, self.hundredths, GIB) for d in self.devices)
        workload_class = "production" if self.is_production else "opportunistic"
        whole = self.hundredths * len(parts)
        return Reservation(self.kernel_id, "ada", whole, None, workload_class, "", {}, parts, 0.0)


class AProcess:
    """Implements compute.facts.Session, and plays its hook."""

    def __init__(self, number: int, kernel: AKernel) -> None:
        self.number, self.pid, self.role, self.kernel = number, 1000 + number, Role.PROCESS, kernel
        workload_class = WorkloadClass.PRODUCTION if kernel.is_production else WorkloadClass.OPPORTUNISTIC
        self.agent_side = AgentSide(kernel.reservation.parts, 1, workload_class)
        self.hook_side = HookSide()
        self.activity_page: ActivitySide | None = ActivitySide()
        self.page = mmap.mmap(self.agent_side.descriptor, PAGE_BYTES, prot=mmap.PROT_READ)
        self.hook_page = mmap.mmap(self.hook_side.descriptor, PAGE_BYTES)
        self.own_activity_page = mmap.mmap(self.activity_page.descriptor, ACTIVITY_PAGE_BYTES)
        self.notices: list[ActivityPageNotice] = []
        self.peers: dict[int, mmap.mmap] = {}
        self.room = 1000  # free room in its socket, in notices
        self.occupied = 0
        self.is_closed = False

    def notify(self, notice: ActivityPageNotice, descriptor: int | None = None) -> bool:
        if self.room == 0:
            return False
        self.room -= 1
        self.notices.append(notice)
        if notice.kind is ActivityPageKind.GONE:
            self.peers.pop(notice.number).close()
        else:
            assert descriptor is not None
            assert notice.number not in self.peers
            self.peers[notice.number] = mmap.mmap(descriptor, ACTIVITY_PAGE_BYTES, prot=mmap.PROT_READ)
        return True

    @property
    def gate(self) -> Gate:
        return Gate(struct.unpack_from("=I", self.page, AgentPage.GATE)[0])

    def word(self, offset: int, device: int = 0) -> int:
        start = AgentPage.DEVICES + device * AgentPage.DEVICE_BYTES + offset
        return int(struct.unpack_from("=Q", self.page, start)[0])

    def half_word(self, offset: int, device: int = 0) -> int:
        start = AgentPage.DEVICES + device * AgentPage.DEVICE_BYTES + offset
        return int(struct.unpack_from("=I", self.page, start)[0])

    def pace(self, device: int = 0) -> Pace:
        return Pace(self.half_word(AgentPage.PACE, device))

    def say(self, offset: int, value: int, device: int = 0, format: str = "=Q") -> None:
        start = HookPage.DEVICES + device * HookPage.DEVICE_BYTES + offset
        struct.pack_into(format, self.hook_page, start, value)

    def show(self, offset: int, value: int, device: int = 0, format: str = "=Q") -> None:
        assert self.own_activity_page is not None
        struct.pack_into(
            format, self.own_activity_page, ActivityPage.DEVICES + device * ActivityPage.DEVICE_BYTES + offset, value
        )

    def map_activity_page(self) -> None:
        assert self.own_activity_page is not None
        struct.pack_into("=I", self.own_activity_page, 0, ACTIVITY_PAGE_MAGIC)

    def begin(self, now: int, device: int = 0) -> None:
        self.show(ActivityPage.SINCE, now, device)
        self.show(ActivityPage.IS_ACTIVE, 1, device, "=I")

    def end(self, began: int, now: int, device: int = 0) -> None:
        """End work that began at ``began``, now."""
        assert self.own_activity_page is not None
        start = ActivityPage.DEVICES + device * ActivityPage.DEVICE_BYTES
        count = struct.unpack_from("=Q", self.own_activity_page, start + ActivityPage.INTERVAL_COUNT)[0]
        place = start + ActivityPage.INTERVALS + count % ACTIVITY_INTERVALS * ActivityPage.INTERVAL_BYTES
        struct.pack_into("=QQ", self.own_activity_page, place, began, now)
        self.show(ActivityPage.INTERVAL_COUNT, count + 1, device)
        self.occupied += now - began
        self.say(HookPage.OCCUPIED, self.occupied, device)
        self.show(ActivityPage.SINCE, now, device)
        self.show(ActivityPage.IS_ACTIVE, 0, device, "=I")

    def close(self) -> None:
        """Close the process. Idempotent. A mapping in Python holds a descriptor, too."""
        if self.is_closed:
            return
        self.is_closed = True
        for mapping in (self.page, self.hook_page, self.own_activity_page, *self.peers.values()):
            if mapping is not None:
                mapping.close()
        self.agent_side.close()
        self.hook_side.close()
        if self.activity_page is not None:
            self.activity_page.close()


class Scripted:
    """A controller that returns the verdicts of ``answer``, and keeps its samples."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.looks: list[DeviceSample] = []

    def step(self, look: DeviceSample) -> Verdict:
        self.looks.append(look)
        verdict: Verdict = self.answer(look)
        return verdict


class AnActuation:
    """An Actuation with pacing alone."""

    paces, runs_side_by_side = True, False


@dataclass
class SomeLeases:
    out: set[str] = field(default_factory=set)
    unswappable: set[str] = field(default_factory=set)

    def keep_out(self, kernel_id: str) -> None:
        self.out.add(kernel_id)

    def let_in(self, kernel_id: str) -> None:
        self.out.discard(kernel_id)

    def is_kept_out(self, kernel_id: str) -> bool:
        return kernel_id in self.out - self.unswappable


class AWorld:
    """A keeper, its clock, and the processes that joined."""

    def __init__(self, answer: Any = lambda look: Verdict({}), settings: ComputeSettings | None = None) -> None:
        self.now = 1000 * MILLISECOND
        self.leases = SomeLeases()
        self.controllers: list[Scripted] = []

        def make() -> Scripted:
            self.controllers.append(Scripted(answer))
            return self.controllers[-1]

        actuation: Any = AnActuation()
        self.keeper = ComputeKeeper(
            settings or ComputeSettings(), lambda: self.now, self.leases, actuation, make, lambda: 0
        )
        self.processes: list[AProcess] = []

    def join(self, kernel: AKernel) -> AProcess:
        process = AProcess(len(self.processes) + 1, kernel)
        self.processes.append(process)
        self.keeper.joining(kernel, process)
        self.keeper.joined(kernel, process)
        return process

    def leave(self, process: AProcess) -> None:
        self.keeper.left(process)
        process.close()

    def run(self, milliseconds: int, each: int = 20) -> None:
        for _ in range(0, milliseconds, each):
            self.now += each * MILLISECOND
            self.keeper.run_pass()

    def ask_nvml(self, seconds: float = 1.0, device: int = 0, is_lost: bool = False, **busy: float) -> None:
        """Give the keeper a reading of NVML.

        ``busy``: p1=0.5 is the GPU time of process number 1.
        """
        facts = DeviceFacts(uuid_of(device), device, "a device", GIB)
        told = {1000 + int(name[1:]): amount for name, amount in busy.items()}
        use = 50 if told else 0
        reading = DeviceReading(facts, utilization_percent=use, busy=told, covered_seconds=seconds, is_lost=is_lost)
        self.keeper.saw_devices([reading])

    def close(self) -> None:
        self.keeper.close()
        for process in self.processes:
            process.close()


def count_pages() -> int:
    """Return how many descriptors of shared pages this process has.

    Servers of other tests, in threads of this process, open descriptors of other kinds at any time.
    """
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # a thread closed it meanwhile
            count += os.readlink(f"/proc/self/fd/{name}").startswith("/memfd:aliquot-")
    return count


PRODUCTION, HARVEST = AKernel("p"), AKernel("h", is_production=False)


def in_a_loop(test: Callable[..., None]) -> Callable[[], None]:
    """Run a test in an event loop, which the keeper's timer needs.

    The timer never fires during a test: the test runs the keeper itself.
    """

    async def body() -> None:
        worlds: list[AWorld] = []

        def a_world(*arguments: Any, **fields: Any) -> AWorld:
            worlds.append(AWorld(*arguments, **fields))
            return worlds[-1]

        try:
            test(a_world)
        finally:
            for world in worlds:
                world.close()

    def run() -> None:
        gc.collect()  # garbage of earlier tests would be closed in the middle of this one
        pages = count_pages()
        asyncio.run(body())
        assert count_pages() <= pages

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def hold_all(look: DeviceSample) -> Verdict:
    return Verdict({one.key: MEASURED if one.is_production else Order(Gate.CLOSED) for one in look.processes})


def peers(process: AProcess) -> int:
    return len(process.peers)
