"""A node in virtual time whose kernels obey ``decide``.

It does what the keeper carries out, without any process. After every decision it checks the
invariants of decisions.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from jupyter_aliquot.gpu_hook.agent.scheduling.leases import (
    NEVER,
    Decision,
    DeviceView,
    Holding,
    KernelView,
    Policy,
    State,
    Want,
    decide,
)
from jupyter_aliquot.gpu_hook.agent.scheduling.turns import Turns

GIB = 1 << 30
TICK = 0.5


@dataclass
class AKernel:
    """A kernel.

    ``cells`` are the times when they arrive, and for how many seconds each wants its devices.
    """

    name: str
    bytes: dict[str, int]
    cells: list[tuple[float, float]] = field(default_factory=list)
    is_production: bool = True
    is_swappable: bool = True
    guarantee: int = 80 * GIB
    wants: dict[str, int] = field(default_factory=dict)  # bytes by which the next cell grows
    state: State = State.SWAPPED
    held_since: float = 0.0
    turns: Turns = field(default_factory=lambda: Turns(0.0, is_here=False))
    moving_since: float = 0.0
    moved_at: float = NEVER
    idle_since: float | None = 0.0
    wants_since: float | None = None
    left_seconds: float = 0.0  # of the open cell
    waits: list[float] = field(default_factory=list)  # of its cells, for memory

    def view(self, now: float) -> KernelView:
        is_open = self.left_seconds > 0
        needs = is_open and (self.state in (State.SWAPPED, State.SWAPPING_OUT) or bool(self.wants))
        if needs and self.wants_since is None:
            self.wants_since = now
        is_here = self.state in (State.RESIDENT, State.SWAPPING_OUT)
        holdings = tuple(
            Holding(
                uuid,
                amount if is_here else 0,
                swappable_bytes=amount if is_here and self.is_swappable else 0,
                away_bytes=0 if is_here else amount,
                wanted_bytes=self.wants.get(uuid, 0) if is_open else 0,
                guarantee_bytes=self.guarantee,
            )
            for uuid, amount in self.bytes.items()
        )
        return KernelView(
            self.name,
            holdings,
            self.state,
            self.is_production,
            Want.CALL if needs or (is_open and self.state is State.SWAPPING_IN) else Want.NONE,
            now if self.wants_since is None else self.wants_since,
            None if is_open else self.idle_since,
            self.held_since,
            self.turns.since,
            self.turns.ran_seconds(now if self.wants_since is None else self.wants_since) if is_open else 0.0,
            self.turns.last_seconds,
            self.moving_since,
            0.0 if self.is_swappable else NEVER,
        )


class AWorld:
    def __init__(self, devices: list[DeviceView], kernels: list[AKernel], policy: Policy | None = None) -> None:
        self.devices = devices
        self.kernels = {kernel.name: kernel for kernel in kernels}
        self.policy = policy or Policy(hold_seconds=2, quantum_seconds=10, move_seconds=0.0, patience_seconds=30)
        self.now = 0.0
        self.outs = 0

    def run(self, until: float, *, until_idle: bool = False) -> None:
        while self.now < until:
            self.step()
            if until_idle and not any(k.cells or k.left_seconds > 0 for k in self.kernels.values()):
                return

    def step(self) -> None:
        for kernel in self.kernels.values():
            self._live(kernel)
        views = [kernel.view(self.now) for kernel in self.kernels.values()]
        decision = decide(self.devices, views, self.now, self.policy)
        shuffled = random.Random(len(views)).sample(views, len(views))
        assert _as_sets(decide(self.devices, shuffled, self.now, self.policy)) == _as_sets(decision)
        self._check(views, decision)
        self._begin(decision)
        self.now += TICK

    def _live(self, kernel: AKernel) -> None:
        """Live for a tick: a move ends, a cell begins, runs and ends."""
        if kernel.moved_at <= self.now:
            kernel.moved_at = NEVER
            if kernel.state is State.SWAPPING_IN:
                kernel.state, kernel.held_since = State.RESIDENT, self.now
                kernel.turns.enter(self.now)
            else:
                kernel.state = State.SWAPPED
        if kernel.left_seconds <= 0 and kernel.cells and kernel.cells[0][0] <= self.now:
            kernel.left_seconds = kernel.cells.pop(0)[1]
            kernel.idle_since = None
            kernel.turns.begin_cell(self.now)
        elif kernel.left_seconds > 0 and kernel.state is State.RESIDENT and not kernel.wants:
            if kernel.wants_since is not None:
                kernel.waits.append(self.now - kernel.wants_since)
                kernel.wants_since = None
            kernel.left_seconds -= TICK
            if kernel.left_seconds <= 0:
                kernel.idle_since = self.now

    def _begin(self, decision: Decision) -> None:
        rates = {device.uuid: device.out_rate for device in self.devices}
        for name, state in [(o.kernel_id, State.SWAPPING_OUT) for o in decision.outs] + [
            (name, State.SWAPPING_IN) for name in decision.ins
        ]:
            kernel = self.kernels[name]
            seconds = max(amount / rates[uuid] for uuid, amount in kernel.bytes.items())
            if state is State.SWAPPING_OUT:
                kernel.turns.leave(self.now, is_busy=kernel.left_seconds > 0)
            kernel.state, kernel.moving_since, kernel.moved_at = state, self.now, self.now + seconds
        for name in decision.grown:
            kernel = self.kernels[name]
            kernel.bytes = {uuid: amount + kernel.wants.get(uuid, 0) for uuid, amount in kernel.bytes.items()}
            kernel.wants = {}
        self.outs += len(decision.outs)

    def _check(self, views: list[KernelView], decision: Decision) -> None:
        by_name = {view.kernel_id: view for view in views}
        moving = [replace(by_name[out.kernel_id], state=State.SWAPPING_OUT) for out in decision.outs]
        moving += [replace(by_name[name], state=State.SWAPPING_IN) for name in decision.ins]
        after = {**by_name, **{view.kernel_id: view for view in moving}}
        self._check_room(after, decision)
        self._check_links(after)
        for out in decision.outs:
            self._check_out(by_name[out.kernel_id], by_name[out.wanted_by])

    def _check_room(self, after: dict[str, KernelView], decision: Decision) -> None:
        for device in self.devices:
            taken = 0
            for view in after.values():
                is_coming, grows = view.state is State.SWAPPING_IN, view.kernel_id in decision.grown
                for h in view.holdings:
                    if h.uuid == device.uuid:
                        taken += h.held_bytes + (h.away_bytes if is_coming else 0)
                        taken += h.wanted_bytes if grows or view.kernel_id in decision.ins else 0
            assert taken <= device.capacity_bytes, "over physical room"

    def _check_links(self, after: dict[str, KernelView]) -> None:
        used = [
            (h.uuid, view.state)
            for view in after.values()
            if view.state in (State.SWAPPING_IN, State.SWAPPING_OUT)
            for h in view.holdings
            if h.held_bytes or h.away_bytes
        ]
        assert len(used) == len(set(used)), "two moves on one link, in one direction"

    def _check_out(self, victim: KernelView, wanter: KernelView) -> None:
        assert victim.state is State.RESIDENT
        assert victim.movable_at <= self.now, "one that cannot be swapped was chosen"
        is_preempted = wanter.is_production and not victim.is_production
        assert is_preempted or self.now - victim.held_since >= self.policy.hold_seconds, "the hold was broken"
        if victim.idle_since is None and not is_preempted:
            assert victim.is_production <= wanter.is_production, "busy production made way for opportunistic"


def _as_sets(decision: Decision) -> tuple[object, ...]:
    return decision.outs, decision.ins, decision.grown, decision.look_at, frozenset(decision.waits)
