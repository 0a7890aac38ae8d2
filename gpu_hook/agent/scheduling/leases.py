"""Decide which kernels are resident: a pure function of frozen views. No clock, no I/O, no state.

The agent's keeper and the density simulation call the same ``decide``; it stays cheap: about 100 µs
for 20 kernels on 8 devices. victims.py selects the kernels to displace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .links import Links
from .victims import Plan, Victims, is_guaranteed, is_young
from .views import (
    NEVER as NEVER,
    Decision as Decision,
    DeviceView as DeviceView,
    Holding as Holding,
    KernelView as KernelView,
    Out as Out,
    Policy as Policy,
    Reason as Reason,
    State as State,
    Wait as Wait,
    Want as Want,
)

NOTHING = Decision()
_Need = list[tuple[str, int]]
_Names = tuple[str, ...]


def decide(
    devices: Sequence[DeviceView],
    kernels: Sequence[KernelView],
    now: float,
    policy: Policy,
    host_room_bytes: int | None = None,
) -> Decision:
    """Return which kernels swap out or in, which get more room, and what the others wait for.

    ``host_room_bytes`` is what host copies may still take (None: no limit). Moves of one link and
    direction follow one another; all devices of a kernel move together, or none.
    """
    if not any(k.want or k.is_asked_out for k in kernels):
        return NOTHING
    return _Round(devices, kernels, now, policy, host_room_bytes).decide()


def has_want(kernel: KernelView) -> bool:
    """Return whether the kernel wants room that it lacks.

    A kernel on its way in lacks nothing: its room is promised.
    """
    if not kernel.want or kernel.state is State.SWAPPING_IN:
        return False
    return kernel.state is not State.RESIDENT or any(h.wanted_bytes for h in kernel.holdings)


class _Round:
    """One decision.

    ``free`` is unused room now. ``future`` adds the room of leaving kernels, less the room for
    waiters.
    """

    def __init__(
        self,
        devices: Sequence[DeviceView],
        kernels: Sequence[KernelView],
        now: float,
        policy: Policy,
        host_room_bytes: int | None,
    ) -> None:
        self._devices = devices
        self._kernels = kernels
        self._now = now
        self._policy = policy
        self._links = Links(devices, policy.move_seconds)
        self._outs: list[Out] = []
        self._ins: list[str] = []
        self._grown: list[str] = []
        self._waits: list[Wait] = []
        self._kept: list[tuple[str, Reason]] = []
        self._look_at = NEVER
        # device -> the kernels that wait for its room, in order
        self._claims: dict[str, list[str]] = {}
        # device -> when the turns of these kernels are over
        self._turns: dict[str, float | None] = {}
        self._enter()
        self._victims = Victims(kernels, now, policy, self._links, host_room_bytes)

    def decide(self) -> Decision:
        wants = sorted((k for k in self._kernels if has_want(k)), key=self._order)
        self._victims.set_order(wants)
        for kernel in wants:
            self._serve(kernel)
        asked = (k for k in self._kernels if k.is_asked_out and not k.want and k.state is State.RESIDENT)
        for kernel in asked:
            self._take_asked(kernel)
        return Decision(
            tuple(self._outs),
            tuple(self._ins),
            tuple(self._grown),
            tuple(self._waits),
            tuple(self._kept),
            self._look_at,
        )

    def _take_asked(self, kernel: KernelView) -> None:
        if not self._victims.take(kernel):
            if self._victims.lacks_host(kernel):
                self._kept.append((kernel.kernel_id, Reason.HOST))
        elif self._links.take_out(kernel)[0]:
            self._outs.append(Out(kernel.kernel_id, ""))
        else:
            self._kept.append((kernel.kernel_id, Reason.LINK))

    def _enter(self) -> None:
        """Enter the room that is held and promised, and the moves under way.

        A lost device has no room.
        """
        leaving = {device.uuid: device.leaving_bytes for device in self._devices}
        free = {device.uuid: device.capacity_bytes - device.leaving_bytes for device in self._devices}
        for kernel in self._kernels:
            is_coming, is_leaving = kernel.state is State.SWAPPING_IN, kernel.state is State.SWAPPING_OUT
            for h in kernel.holdings:
                promised = h.away_bytes + h.wanted_bytes if is_coming else 0
                free[h.uuid] = free.get(h.uuid, 0) - h.held_bytes - promised
                if is_leaving:
                    leaving[h.uuid] = leaving.get(h.uuid, 0) + h.swappable_bytes
            if is_coming or is_leaving:
                left = self._links.enter(kernel, self._now)
                if is_coming and kernel.want:
                    self._waits.append(Wait(kernel.kernel_id, Reason.COMING, 0, expected_seconds=left))
        self._free = free
        self._future = {uuid: amount + leaving.get(uuid, 0) for uuid, amount in free.items()}

    def _order(self, kernel: KernelView) -> tuple[bool, bool, bool, bool, float, str]:
        """Return the sort key of a waiting kernel.

        Hints are last and production is first; within a class, guaranteed memory is first, then
        cells that have not run for a quantum, then the longest wait.
        """
        has_patience = self._now - kernel.wants_since < self._policy.patience_seconds
        return (
            kernel.want is Want.HINT,
            not kernel.is_production,
            has_patience and not is_guaranteed(kernel),
            has_patience and not is_young(kernel, self._policy),
            kernel.wants_since,
            kernel.kernel_id,
        )

    def _serve(self, kernel: KernelView) -> None:
        need = _need(kernel)
        if not _fits(self._future, need):
            self._make_room(kernel, need)
        elif kernel.state is State.SWAPPING_OUT or not _fits(self._free, need):
            self._wait(kernel, need, Reason.MOVING, self._links.ready(kernel))
        else:
            _take(self._free, need)
            self._let_in(kernel, need)

    def _let_in(self, kernel: KernelView, need: _Need) -> None:
        """Let a kernel in whose room is there.

        While its link is not free, it keeps a claim on the room.
        """
        if kernel.state is State.RESIDENT:
            _take(self._future, need)
            self._grown.append(kernel.kernel_id)
            return
        is_free, end = self._links.take_in(kernel)
        if is_free:
            _take(self._future, need)
            self._ins.append(kernel.kernel_id)
        else:
            self._claim(kernel, need, Reason.LINK, end)

    def _make_room(self, kernel: KernelView, need: _Need) -> None:
        plan = self._victims.choose(kernel, need, self._future)
        if not plan.victims:
            self._give_up(kernel, need, plan)
            return
        for victim in plan.victims:
            for h in victim.holdings:
                self._future[h.uuid] += h.swappable_bytes + h.away_bytes
        behind = tuple(victim.kernel_id for victim in plan.victims)
        if plan.ripe_at > self._now:
            self._look_at = min(self._look_at, plan.ripe_at)
            ready = plan.ripe_at - self._now + self._links.seconds_out(plan.victims)
            self._wait(kernel, need, Reason.TURN if plan.has_busy else Reason.HOLD, ready, behind)
            return
        ready = 0.0
        for victim in plan.victims:  # victims on busy links follow in later decisions
            is_free, end = self._links.take_out(victim)
            ready = max(ready, end)
            if is_free:
                self._outs.append(Out(victim.kernel_id, kernel.kernel_id))
        self._wait(kernel, need, Reason.MOVING, ready, behind)

    def _wait(self, kernel: KernelView, need: _Need, reason: Reason, ready: float, behind: _Names = ()) -> None:
        """Let the kernel wait, with a claim on room that will be there."""
        end = ready if kernel.state is State.RESIDENT else self._links.expect_in(kernel, ready)
        self._claim(kernel, need, reason, end, behind)

    def _claim(self, kernel: KernelView, need: _Need, reason: Reason, end: float, behind: _Names = ()) -> None:
        _take(self._future, need)
        self._tell(kernel, need, reason, end, behind)
        for uuid, _ in need:
            self._claims.setdefault(uuid, []).append(kernel.kernel_id)
            self._turns[uuid] = end + self._policy.quantum_seconds

    def _give_up(self, kernel: KernelView, need: _Need, plan: Plan) -> None:
        """Let the kernel wait without a claim: no plan makes room for it now."""
        capacity = {device.uuid: device.capacity_bytes for device in self._devices}
        turns = [self._turns[uuid] for uuid, _ in need if uuid in self._turns]
        end = None
        if not self._victims.could_ever(kernel, need, capacity):
            reason = Reason.STUCK
        elif plan.lacks_host:
            reason = Reason.HOST
        elif turns:
            reason = Reason.QUEUE
            end = None if None in turns else max(t for t in turns if t is not None)
        else:
            reason = Reason.BUSY
        self._tell(kernel, need, reason, end)
        if reason is Reason.QUEUE:
            for uuid, _ in need:
                self._claims.setdefault(uuid, []).append(kernel.kernel_id)
                self._turns[uuid] = None if end is None else end + self._policy.quantum_seconds

    def _tell(self, kernel: KernelView, need: _Need, reason: Reason, end: float | None, behind: _Names = ()) -> None:
        before = dict.fromkeys(name for uuid, _ in need for name in self._claims.get(uuid, ()))
        self._waits.append(Wait(kernel.kernel_id, reason, len(before) + 1, tuple(before), behind, end))


def _need(kernel: KernelView) -> _Need:
    """Return the bytes of each device that the kernel needs beside those that it has.

    For a kernel that is still leaving: when it has left.
    """
    if kernel.state is State.SWAPPING_OUT:
        amounts = [(h.uuid, h.swappable_bytes + h.away_bytes + h.wanted_bytes) for h in kernel.holdings]
    elif kernel.state is State.RESIDENT:
        amounts = [(h.uuid, h.wanted_bytes) for h in kernel.holdings]
    else:
        amounts = [(h.uuid, h.away_bytes + h.wanted_bytes) for h in kernel.holdings]
    return [(uuid, amount) for uuid, amount in amounts if amount]


def _fits(room: Mapping[str, int], need: _Need) -> bool:
    return all(room[uuid] >= amount for uuid, amount in need)


def _take(room: dict[str, int], need: _Need) -> None:
    for uuid, amount in need:
        room[uuid] -= amount
