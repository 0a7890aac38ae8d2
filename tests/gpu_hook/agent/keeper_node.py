"""A device and its lease keeper in virtual time.

The kernels' moves end when the test ends them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from jupyter_aliquot.gpu_hook.agent.activity.idleness import Activity, Moment, Telemetry
from jupyter_aliquot.gpu_hook.agent.devices.devices import DeviceReading
from jupyter_aliquot.gpu_hook.agent.ledger.journal import Reservation
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts
from jupyter_aliquot.gpu_hook.agent.scheduling.keeper import LeaseKeeper
from jupyter_aliquot.gpu_hook.agent.scheduling.views import Policy
from jupyter_aliquot.gpu_hook.agent.swap.facts import DeviceBytes, Move, MoveRefusal, MoveResult, ResidencyFacts
from jupyter_aliquot.gpu_hook.agent.swap.table import KernelState
from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.gpu_hook.protocol.codec import PinReason, ResidencyMode

MIB = 1 << 20
CARD = 1000 * MIB
UUID = "GPU-a"


class AResidency:
    """One kernel's moves: each waits in ``move`` for the test to give its result."""

    def __init__(self, kernel_id: str, amount: int, state: KernelState) -> None:
        self.kernel_id, self.amount, self.state = kernel_id, amount, state
        self.unswappable = 0
        self.context = 0
        self.since = 0.0
        self.not_saved = ""
        self.telemetry = Telemetry()
        self.waits_since: float | None = None
        self.gave_up_at: float | None = None
        self.refusal: MoveRefusal | None = None
        self.mode_reason = ""
        self.mode = ResidencyMode.VMM
        self.move: asyncio.Future[Move] | None = None
        self.prepared = 0
        self.silent_pids: tuple[int, ...] = ()

    def facts(self) -> ResidencyFacts:
        is_out = self.state in (KernelState.SWAPPED, KernelState.CHECKPOINTED, KernelState.SWAPPING_IN)
        away = self.amount - self.unswappable if is_out else 0
        device = DeviceBytes(
            UUID, self.amount, self.amount - self.unswappable, away, self.unswappable, self.amount - away, self.context
        )
        return ResidencyFacts(
            kernel_id=self.kernel_id,
            state=self.state,
            mode=self.mode,
            mode_reason=self.mode_reason,
            since=self.since,
            devices=(device,),
            pin_reasons=PinReason(0),
            refusal=self.refusal,
            waits_since=self.waits_since,
            gave_up_at=self.gave_up_at,
            telemetry=(self.telemetry,),
            silent_pids=self.silent_pids,
        )

    async def swap_out(self, reason: str) -> Move:
        return await self._move(KernelState.SWAPPING_OUT, KernelState.SWAPPED)

    async def swap_in(self) -> Move:
        return await self._move(KernelState.SWAPPING_IN, KernelState.RESIDENT)

    async def checkpoint(self) -> Move:
        return await self._move(KernelState.SWAPPING_OUT, KernelState.CHECKPOINTED)

    def why_not_saved(self, facts: ResidencyFacts) -> str:
        return self.not_saved

    async def prepare(self) -> bool:
        self.prepared += 1
        return True

    async def _move(self, during: KernelState, after: KernelState) -> Move:
        before, self.state = self.state, during
        self.move = asyncio.get_running_loop().create_future()
        move = await self.move
        self.state = after if move.is_done else before
        if after is KernelState.RESIDENT and move.is_done:
            self.waits_since = None
        return move


@dataclass
class TheCreditQueues:
    wanted_bytes: dict[int, int] = field(default_factory=dict)
    wanted_context_bytes: dict[int, int] = field(default_factory=dict)
    answers: list[str] = field(default_factory=list)
    given: Callable[[], None] = lambda: None

    def give_room(self) -> None:
        self.answers.append("given")
        self.given()
        self.wanted_bytes = {}

    def refuse_room(self) -> None:
        self.answers.append("refused")
        self.wanted_bytes = {}


@dataclass
class AKernel:
    kernel_id: str
    reservation: Reservation
    residency: AResidency
    credit_queues: TheCreditQueues = field(default_factory=TheCreditQueues)
    activity: Activity | None = None
    is_expecting: bool = False
    worked_at: float | None = None

    def grow(self, amount: int) -> None:
        def given() -> None:
            self.residency.amount += amount

        self.credit_queues.wanted_bytes, self.credit_queues.given = {0: amount}, given


class ANode:
    """A device of 1000 MiB, and its keeper."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.told: list[str] = []
        self.kernels: list[AKernel] = []
        self.host_room: int | None = None
        policy = Policy(hold_seconds=5, quantum_seconds=30, quantum_moves=0, patience_seconds=60)
        self.keeper = LeaseKeeper(policy, self.moment, self.lent, lambda: self.host_room, self.told.append)
        self.look()

    def moment(self) -> Moment:
        return Moment(self.now, self.now)

    def lent(self, uuid: str) -> int:
        return sum(kernel.residency.amount for kernel in self.kernels)

    def look(self, others: int = 0) -> None:
        used = others + sum(self.on_device().values())
        reading = DeviceReading(DeviceFacts(UUID, 0, "a", CARD), used_bytes=used)
        for _ in range(3):
            self.keeper.room.look([reading], self.on_device())

    def on_device(self) -> dict[str, int]:
        return {UUID: sum(kernel.residency.facts().devices[0].on_device_bytes for kernel in self.kernels)}

    def kernel(self, name: str, mib: int, state: KernelState = KernelState.RESIDENT, **more: Any) -> AKernel:
        """Add a kernel that has long been idle."""
        part = Part(UUID, 0, 100, CARD)
        reservation = Reservation(name, "ada", 100, None, "production", "", {}, (part,), 1.0)
        kernel = AKernel(name, replace(reservation, **more), AResidency(name, mib * MIB, state))
        kernel.activity = Activity(0, 0, 0.0)
        self.kernels.append(kernel)
        self.keeper.add(kernel, kernel.residency)
        return kernel

    async def turn(self, later: float = 0.0) -> None:
        self.now += later
        self.keeper.run_pass()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def finish(self, kernel: AKernel, result: MoveResult = MoveResult.DONE) -> None:
        """End the kernel's move, and let the keeper look again."""
        assert kernel.residency.move is not None
        kernel.residency.move.set_result(Move(result, moved_bytes=kernel.residency.amount, copy_seconds=1.0))
        for _ in range(3):
            await asyncio.sleep(0)
        await self.turn()


def call(kernel: AKernel, node: ANode) -> None:
    """Let a call of a swapped kernel wait on the device."""
    kernel.residency.waits_since = node.now
    kernel.residency.telemetry = Telemetry(last_call=node.now, waiting_calls=1)
