"""The history of each process, and of each kernel's recent use, from which the controller decides.

A history compares each sample with the one before. Counters are untrusted: a counter that shrinks
has started again, and adds nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from jupyter_aliquot.gpu_hook.agent.compute.measurement.attribution import Account
from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND, SECOND, Interval, ProcessSample

from .shares import Member

RATIO_SPAN = 100 * MILLISECOND  # of occupied time, over which own / occupied is averaged
LEAST_RATIO = 1 / 32
USED_SPAN = 1 * SECOND
SLOWDOWN_SPAN = 2 * SECOND
NOTHING = Account(0.0, 0.0, 0.0, 0.0, 0.0)
LATELY = 10 * MILLISECOND  # a process that worked so lately still wants the device: samples miss short gaps
LONGEST_SPAN = 600 * SECOND
HELD_PART = 0.25  # of the time since the last look


@dataclass
class ProcessHistory:
    """The history of one process on one device.

    ``own``, ``lost``, ``occupied``: the times that the attribution gave it in the last step, in
    nanoseconds.
    """

    look: ProcessSample
    seen_at: int
    acted_at: int | None = None
    served_at: int = 0  # when it last had own time
    longest: int = 0  # kept here, since a hook forgets its own after seconds without work
    longest_at: int = 0
    launches: float = 0.0  # recent ones, and the time that they took
    in_launches: float = 0.0
    own: float = 0.0
    lost: float = 0.0
    sampled: int = 0
    sampled_solo: int = 0
    samples: int = 0
    occupied: float = 0.0
    is_held: bool = False
    ratio: float | None = None
    account: Account = NOTHING

    def update(self, look: ProcessSample, now: int) -> None:
        before, elapsed = self.look, now - self.seen_at
        if not before.kernel_id or elapsed < 0:
            before, self.acted_at = look, None
        throttled = max(0, look.throttled - before.throttled)
        self.is_held = look.waiting_launches > 0 or (elapsed > 0 and throttled > HELD_PART * elapsed)
        did = look.launches > before.launches or look.occupied > before.occupied or bool(look.intervals)
        if look.is_active or look.in_flight > 0 or self.is_held or did:
            self.acted_at = now
        self.sampled = max(0, look.sampled - before.sampled)
        self.sampled_solo = max(0, look.sampled_solo - before.sampled_solo)
        self.samples = max(0, look.samples - before.samples)
        if look.longest >= self.longest or not 0 <= now - self.longest_at < LONGEST_SPAN:
            self.longest, self.longest_at = look.longest, now
        self._learn_length(look.launches - before.launches, look.occupied - before.occupied)
        self.look, self.seen_at = look, now

    def _learn_length(self, launches: int, occupied: int) -> None:
        if launches > 0 and occupied > 0:
            self.launches, self.in_launches = 0.95 * self.launches + launches, 0.95 * self.in_launches + occupied

    @property
    def typical(self) -> int:
        """Return the typical length of a launch.

        It is more than the mean, since long launches take more of the time.
        """
        mean = self.in_launches / self.launches if self.launches else self.longest
        return int((min(mean, self.longest) * self.longest) ** 0.5)

    def account_for(self, account: Account, now: int) -> None:
        before, self.account = self.account, account
        self.own = max(0.0, account.own - before.own)
        self.lost = max(0.0, account.lost - before.lost)
        occupied = self.occupied = max(0.0, account.occupied - before.occupied)
        if self.own > 0 or not self.served_at or self.served_at > now:
            self.served_at = now
        if occupied > 0:
            ratio = min(1.0, max(LEAST_RATIO, self.own / occupied))
            weight = min(1.0, occupied / RATIO_SPAN)
            self.ratio = ratio if self.ratio is None else self.ratio + (ratio - self.ratio) * weight

    def wants(self, now: int) -> bool:
        look = self.look
        if look.is_active or look.in_flight > 0 or self.is_held:
            return True
        return self.acted_at is not None and 0 <= now - self.acted_at < LATELY

    def allowed(self, own: float, contenders: int) -> int:
        """Return the limit of its hook's occupied time that gives it ``own`` more own time."""
        ratio = self.ratio if self.ratio is not None else 1 / max(1, contenders)
        return self.look.occupied + self.account.pending + int(own / ratio)


@dataclass
class Kernel:
    """The processes of one kernel on the device."""

    kernel_id: str
    is_production: bool
    weight: int
    is_capped: bool
    processes: list[ProcessHistory] = field(default_factory=list)

    def wants(self, now: int) -> bool:
        return any(p.wants(now) for p in self.processes)

    def member(self, now: int, busy: dict[int, list[Interval]]) -> Member:
        own = sum(p.account.own for p in self.processes)
        ahead = sum(max(0.0, p.account.own_now - p.account.own) for p in self.processes)
        work = sorted(i for p in self.processes for i in busy.get(p.look.key, ()))
        is_held = any(p.is_held for p in self.processes)
        return Member(self.kernel_id, self.weight, self.is_capped, self.wants(now), is_held, own, ahead, work)

    @property
    def longest(self) -> int:
        return max((p.longest for p in self.processes), default=0)


def kernels_of(histories: list[ProcessHistory]) -> dict[str, Kernel]:
    kernels: dict[str, Kernel] = {}
    for one in histories:
        look = one.look
        kernel = kernels.get(look.kernel_id)
        if kernel is None:
            weight = min(100, max(1, look.hundredths))
            kernel = kernels[look.kernel_id] = Kernel(look.kernel_id, look.is_production, weight, look.is_capped)
        kernel.processes.append(one)
    return kernels


@dataclass
class RecentUse:
    """The time that a kernel used over the last second, and the slowdown of its sampled launches.

    Its size is bounded by its spans. It keeps sums, for each step asks for them.
    """

    own: deque[tuple[int, float]] = field(default_factory=deque)
    sampled: deque[tuple[int, int, int]] = field(default_factory=deque)
    total: float = 0.0
    recent: float = 0.0  # of `own`, save its first
    sampled_sum: int = 0
    solo_sum: int = 0

    def add(self, kernel: Kernel, now: int) -> None:
        if self.own and now < self.own[-1][0]:
            self.own.clear()
            self.sampled.clear()
            self.recent, self.sampled_sum, self.solo_sum = 0.0, 0, 0
        gained = sum(p.own for p in kernel.processes)
        self.total += gained
        self.recent += gained if self.own else 0.0
        self.own.append((now, gained))
        sampled, solo = sum(p.sampled for p in kernel.processes), sum(p.sampled_solo for p in kernel.processes)
        if sampled > 0 and solo > 0:
            self.sampled.append((now, sampled, solo))
            self.sampled_sum, self.solo_sum = self.sampled_sum + sampled, self.solo_sum + solo
        while len(self.own) > 1 and self.own[1][0] <= now - USED_SPAN:
            self.own.popleft()
            self.recent -= self.own[0][1]
        while self.sampled and self.sampled[0][0] < now - SLOWDOWN_SPAN:
            _, took, alone = self.sampled.popleft()
            self.sampled_sum, self.solo_sum = self.sampled_sum - took, self.solo_sum - alone

    def used(self, now: int) -> float:
        span = now - self.own[0][0] if self.own else 0
        return min(1.0, max(0.0, self.recent) / span) if span > 0 else 0.0

    def slowdown(self) -> float | None:
        return self.sampled_sum / self.solo_sum if self.solo_sum else None
