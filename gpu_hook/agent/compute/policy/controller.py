"""Our compute controller: weighted shares by own time, production first.

It joins the parts, each of which has a module; see docs/explanation/compute-shares.md. There is one
object for each device. It keeps state, but has no clock and does no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.agent.compute.measurement.attribution import Attributed, Attribution
from jupyter_aliquot.gpu_hook.agent.compute.measurement.forecast import ALWAYS, Gaps, PauseHistory
from jupyter_aliquot.gpu_hook.agent.compute.measurement.slowdown import SlowdownWatch
from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import (
    MILLISECOND,
    SECOND,
    DeviceSample,
    KernelShare,
    Verdict,
)
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import OPEN, Order
from jupyter_aliquot.gpu_hook.protocol.codec import NO_LIMIT, Gate, Pace

from .bounds import bounded
from .history import Kernel, ProcessHistory, RecentUse, kernels_of
from .policy import Policy
from .protection import Protection, Room, Seen, beside_interval, beside_others, room
from .reasons import Situation, reason
from .shares import Allowance, FairQueue
from .solo import SoloNeed, SoloWindows

FORECAST_PERIOD = 100 * MILLISECOND
JUMP = 2 * SECOND  # between two samples: after a longer gap, the controller forgets its state
MOST_GAP = 0xFFFF_FFFF  # microseconds, the page's word


@dataclass
class _Plan:
    """The plan for the opportunistic processes, kept for `FORECAST_PERIOD`."""

    made_at: int
    rooms: dict[int, Room]
    gaps: dict[int, Gaps]


class MeasuredController:
    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self._solo = SoloWindows(self.policy)
        self._uses: dict[str, RecentUse] = {}
        self._forget(None)

    def _forget(self, now: int | None) -> None:
        self._now = now
        self._attribution = Attribution()
        self._queues = {True: FairQueue(), False: FairQueue()}
        self._protection = Protection(self.policy)
        self._pauses = PauseHistory(self.policy.open_after, self.policy.open_after_units)
        self._histories: dict[int, ProcessHistory] = {}
        self._plan: _Plan | None = None
        self._production_at: int | None = None
        self._slowdowns: dict[str, SlowdownWatch] = {}
        self._interval = 0  # time since the sample before: a busy agent samples less often
        self._contenders = 0  # kernels that want the device, in this step
        self._next: ProcessHistory | None = None  # the opportunistic process whose turn is next beside production
        self._lag = 0.0  # from the end of work until the hook reports it

    def step(self, look: DeviceSample) -> Verdict:
        if self._now is None or not 0 <= look.now - self._now < JUMP:
            self._forget(look.now)
        self._interval = look.now - (look.now if self._now is None else self._now)
        self._now = look.now
        look = bounded(look)
        attributed = self._attribution.update(look)
        kernels = self._remember(look, attributed)
        if len(kernels) < 2 and not any(k.is_capped for k in kernels.values()):
            return self._alone(kernels, look)
        now = look.now
        production = [k for k in kernels.values() if k.is_production]
        others = [k for k in kernels.values() if not k.is_production]
        self._observe(look, attributed, production, others)
        allowances = {**self._fair(production, attributed, now), **self._fair(others, attributed, now)}
        self._see_windows(now, production, others)
        self._next = self._next_beside(production, others, kernels, now)
        self._contenders = sum(k.wants(now) for k in kernels.values())
        orders: dict[int, Order] = {}
        for kernel in kernels.values():
            orders.update(self._orders(kernel, allowances[kernel.kernel_id], production, kernels, now))
        shares = {
            k.kernel_id: self._share(k, allowances[k.kernel_id], production, orders, now) for k in kernels.values()
        }
        return Verdict(orders, shares, self._unholdable(production, others, now), self._look_after(kernels, now))

    # Measurement

    def _remember(self, look: DeviceSample, attributed: Attributed) -> dict[str, Kernel]:
        here = []
        for one in look.processes:
            history = self._histories.get(one.key) or ProcessHistory(one, look.now)
            history.update(one, look.now)
            history.account_for(attributed.accounts[one.key], look.now)
            here.append(history)
        self._histories = {one.look.key: one for one in here}
        kernels = kernels_of(here)
        self._slowdowns = {kernel_id: watch for kernel_id, watch in self._slowdowns.items() if kernel_id in kernels}
        self._uses = {kernel_id: self._uses.get(kernel_id) or RecentUse() for kernel_id in kernels}
        for kernel in kernels.values():
            self._uses[kernel.kernel_id].add(kernel, look.now)
        return kernels

    def _alone(self, kernels: dict[str, Kernel], look: DeviceSample) -> Verdict:
        """Let a kernel that is alone run free: nothing is measured, nothing waits."""
        shares = {
            k.kernel_id: KernelShare(None, 0.0, int(self._uses[k.kernel_id].total), reason="alone on the device")
            for k in kernels.values()
        }
        orders = {one.key: OPEN for one in look.processes}
        return Verdict(orders, shares, (), self.policy.quiet_period)

    def _observe(
        self, look: DeviceSample, attributed: Attributed, production: list[Kernel], others: list[Kernel]
    ) -> None:
        now, elapsed = look.now, attributed.until - attributed.start
        if any(p.look.lost > 0 for k in production for p in k.processes):
            attributed.pauses.clear()  # time that no interval shows would look like a pause
        self._pauses.add(attributed.pauses, now)
        if any(k.wants(now) for k in production):
            self._production_at = now
        self._learn_lag(production, attributed)
        is_working = self._production_at is not None and now - self._production_at <= self.policy.idle_after
        own = sum(p.own for k in others for p in k.processes)
        losses = [self._slowdown_loss(k, own > 0, look.time_slices) for k in production]
        seen = Seen(
            now,
            elapsed,
            elapsed if is_working else 0,
            max((sum(p.lost for p in k.processes) for k in production), default=0.0),
            max((loss for loss in losses if loss is not None), default=None),
            own,
            any(p.is_held for k in others for p in k.processes),
        )
        self._protection.step(seen, self._pauses.step, look.time_slices)

    def _slowdown_loss(self, kernel: Kernel, is_beside: bool, time_slices: bool) -> float | None:
        """Return the time that production lost, by its sampled launches.

        Under time slices intervals are more exact.
        """
        watch, now = self._slowdowns.setdefault(kernel.kernel_id, SlowdownWatch()), kernel.processes[0].seen_at
        for one in kernel.processes:
            watch.add(now, one.sampled, one.sampled_solo, one.samples, is_beside)
        is_blind = not time_slices or any(p.look.lost > 0 for p in kernel.processes)
        excess = watch.excess() if is_blind and is_beside else None
        return None if excess is None else excess * sum(p.occupied for p in kernel.processes)

    def _learn_lag(self, production: list[Kernel], attributed: Attributed) -> None:
        for process in (p for k in production for p in k.processes):
            work = attributed.busy.get(process.look.key)
            if work and not process.look.is_active and process.look.active_since >= work[-1].end:
                lag = min(process.look.active_since - work[-1].end, MILLISECOND)
                self._lag += (lag - self._lag) * 0.1

    # Decisions

    def _fair(self, kernels: list[Kernel], attributed: Attributed, now: int) -> dict[str, Allowance]:
        if not kernels:
            return {}
        queue = self._queues[kernels[0].is_production]
        members = [k.member(now, attributed.busy) for k in kernels]
        horizon = max(self.policy.period, min(self._interval, self.policy.quiet_period)) + self.policy.margin
        return queue.step(members, attributed.start, attributed.until, now, horizon)

    def _see_windows(self, now: int, production: list[Kernel], others: list[Kernel]) -> None:
        processes = [p.look for k in production for p in k.processes]
        quiet = not any(p.look.is_active or p.look.in_flight > 0 for k in others for p in k.processes)
        need = SoloNeed(
            missing=sum(max(0, p.without_baseline) for p in processes),
            samples=sum(max(0, p.samples) for p in processes),
            is_alone=sum(k.wants(now) for k in production) == 1,
            is_quiet=quiet,
            harvest=sum(self._uses[k.kernel_id].used(now) for k in others),
        )
        self._solo.step(now, need)

    def _planned(self, production: list[Kernel], kernels: dict[str, Kernel], now: int) -> _Plan:
        others = [k for k in kernels.values() if not k.is_production]
        plan = self._plan
        keys = {p.look.key for k in others for p in k.processes}
        if plan is not None and now - plan.made_at < FORECAST_PERIOD and plan.rooms.keys() == keys:
            return plan
        self._pauses.digest()
        wanting = [k for k in others if k.wants(now)]
        rooms: dict[int, Room] = {}
        for kernel in others:
            total = sum(k.weight for k in wanting if k is not kernel) + kernel.weight
            rate = self._protection.rate * kernel.weight / total
            for process in kernel.processes:
                rooms[process.look.key] = room(self.policy, process.longest, process.typical, self._pauses, rate)
        at_once = sum(rooms[p.look.key].risk.in_flight for k in wanting for p in k.processes if p.wants(now))
        rooms = {key: beside_others(space, at_once) for key, space in rooms.items()}
        gaps = {key: self._pauses.gaps(space.risk) if production else ALWAYS for key, space in rooms.items()}
        self._plan = _Plan(now, rooms, gaps)
        return self._plan

    def _orders(
        self, kernel: Kernel, allowance: Allowance, production: list[Kernel], kernels: dict[str, Kernel], now: int
    ) -> dict[int, Order]:
        wanting = [p for p in kernel.processes if p.wants(now)]
        contenders = self._contenders
        orders = {}
        for process in kernel.processes:
            key = process.look.key
            pace, allowed, cap = Pace.MEASURE, NO_LIMIT, 0
            if allowance.own is not None:
                own = allowance.own / max(1, len(wanting) + (process not in wanting))
                pace, allowed = Pace.TIME, min(NO_LIMIT, process.allowed(own, contenders))
                cap = self._equals_in_flight(process)
            if production and not kernel.is_production:
                orders[key] = self._beneath(allowed, process, production, kernels, now)
            else:
                window = self._solo.word if kernel.is_production else 0
                orders[key] = Order(Gate.PACED, pace, allowed, in_flight_cap=cap, solo_window=window)
        return orders

    def _working(self, now: int) -> bool:
        return self._production_at is not None and now - self._production_at <= self.policy.idle_after

    def _equals_in_flight(self, process: ProcessHistory) -> int:
        unit = max(self.policy.most_batch, process.longest)
        return max(2, min(self.policy.most_in_flight, self.policy.in_flight_time // unit))

    def _beneath(
        self, allowed: int, process: ProcessHistory, production: list[Kernel], kernels: dict[str, Kernel], now: int
    ) -> Order:
        """Return the order of an opportunistic process.

        It may work in production's pauses, and a little beside production.
        """
        plan = self._planned(production, kernels, now)
        space, gaps = plan.rooms[process.look.key], plan.gaps[process.look.key]
        shift = int(self._lag)
        beside, is_closed = self._beside(process, space, now), self._solo.closes
        return Order(
            Gate.PACED,
            Pace.TIME,
            allowed=0 if is_closed else allowed,
            allowed_with_busy_peers=0 if is_closed else beside,
            in_flight_cap=space.in_flight,
            batch_microseconds=space.batch // 1000,
            idle_window_min=_microseconds(gaps.start - shift if gaps.start else 0),
            idle_window_max=_microseconds(gaps.until - shift),
            idle_resume=_microseconds(gaps.again - shift if gaps.again else 0),
        )

    def _beside(self, process: ProcessHistory, space: Room, now: int) -> int:
        """Return the time that an opportunistic process may use beside production.

        The hook lets a batch begin while less than this was used, so the controller gives nothing
        that is shorter than a batch. The permitted delay is divided; where a part of it is shorter than
        a batch, one process has its turn. A batch longer than production may notice may begin, too, if
        the delay that it causes on average is permitted, and was not caused by others.
        """
        unit = max(space.batch, process.longest)
        used = process.look.occupied + process.account.pending
        if self._protection.is_lost(now) or not self._working(now):
            return used
        step = self._pauses.step
        if now - process.served_at >= beside_interval(self.policy, unit, step):
            return used + 1
        tokens, own_tokens = self._protection.tokens, self._protection.tokens * space.part
        if self._is_unnoticed(unit) and tokens >= unit:
            if own_tokens >= unit:
                return used + int(own_tokens) - unit + 1
            return used + 1 if process is self._next else 0
        delay = space.risk.delay
        if delay <= self.policy.slowdown_target * step and own_tokens >= delay:
            return used + 1
        return 0

    def _next_beside(
        self, production: list[Kernel], others: list[Kernel], kernels: dict[str, Kernel], now: int
    ) -> ProcessHistory | None:
        """Return the process whose turn is next beside production: the longest unserved with a batch short enough.

        A process whose batch production would notice waits for its `beside_interval`, and keeps no turn from others.
        """
        if not (production and others):
            return None
        rooms = self._planned(production, kernels, now).rooms
        wanting = [p for k in others for p in k.processes if p.wants(now)]
        short = [p for p in wanting if self._is_unnoticed(max(rooms[p.look.key].batch, p.longest))]
        return min(short, key=lambda p: (p.served_at, p.look.key), default=None)

    def _is_unnoticed(self, unit: int) -> bool:
        """Return whether production notices no batch of this length."""
        return unit <= self.policy.noticed_delay * self._pauses.step

    def _unholdable(self, production: list[Kernel], others: list[Kernel], now: int) -> tuple[str, ...]:
        if not production or not self._working(now):
            return ()
        leaves = {k.kernel_id for k in others if k.wants(now) and self._protection.is_too_long(k.longest)}
        if self._protection.is_lost(now) and others and not leaves:
            worst = max(others, key=lambda k: (self._uses[k.kernel_id].used(now), k.longest))
            leaves.add(worst.kernel_id)
        return tuple(sorted(leaves))

    def _look_after(self, kernels: dict[str, Kernel], now: int) -> int:
        return self.policy.period if any(k.wants(now) for k in kernels.values()) else self.policy.quiet_period

    def _share(
        self, kernel: Kernel, allowance: Allowance, production: list[Kernel], orders: dict[int, Order], now: int
    ) -> KernelShare:
        use = self._uses[kernel.kernel_id]
        entitled, bound = allowance.entitled, None
        if not kernel.is_production and production:
            rooms = self._plan.rooms if self._plan else {}
            bound = sum(rooms[p.look.key].bound for p in kernel.processes if p.look.key in rooms)
            if entitled is not None:
                entitled *= max(0.0, 1.0 - sum(self._uses[k.kernel_id].used(now) for k in production))
        situation = Situation(
            kernel, allowance, orders[kernel.processes[0].look.key], self._working(now), self._solo.closes
        )
        return KernelShare(
            entitled,
            use.used(now),
            int(use.total),
            sum(max(0, p.look.throttled) for p in kernel.processes),
            use.slowdown(),
            bound,
            reason(situation, bool(production)),
        )


def _microseconds(nanoseconds: int) -> int:
    return min(MOST_GAP, max(0, nanoseconds) // 1000)
