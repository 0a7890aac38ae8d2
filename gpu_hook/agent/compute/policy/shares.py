"""Weighted fair queueing on own time among the kernels of one class on one device.

Each kernel earns its part of the time in which it has work (general processor sharing), and pays
with own time. The difference is its lag. A kernel that is ahead waits; a kernel that is behind
never waits, so the device is never idle while a kernel wants it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND, SECOND, Interval

# between launches: a kernel that launches again within it had not left the device
SHORT_GAP = 1 * MILLISECOND
# of each peer: an interval may begin when its work does, before slices for which the work
# waited
SLICE = 2_500_000
MOST_CREDIT = 100 * MILLISECOND  # times the kernel's part: with more, one batch would break the share over 1 s
MOST_DEBT = 300 * MILLISECOND
# for work that was launched before the first order, while it runs
JOINING, JOINING_DEBT = 2 * SECOND, 100 * MILLISECOND
FORGET_AFTER = 1 * SECOND  # without work; after that, debts are forgiven, too
RATE_SPAN = 200 * MILLISECOND


@dataclass(frozen=True)
class Member:
    """A kernel as the fair queue sees it.

    ``own`` is its settled own time, ``ahead`` its own time beyond that, and ``busy`` the settled
    intervals of its work. ``wants``: it has work on the device, or launches wait. ``is_held``: its
    launches waited through the whole step.
    """

    kernel_id: str
    weight: int  # hundredths of the device
    is_capped: bool
    wants: bool
    is_held: bool
    own: float
    ahead: float
    busy: Sequence[Interval]


@dataclass(frozen=True)
class Allowance:
    """The permission for one kernel until the next step.

    ``own`` is in nanoseconds of own time; None: no limit. ``entitled`` is None if the kernel wants
    nothing.
    """

    own: float | None
    entitled: float | None
    lag: float


def split(weights: Mapping[str, int], caps: Mapping[str, float]) -> dict[str, float]:
    """Split the device by weight; the others share what a cap leaves over."""
    parts: dict[str, float] = {}
    left, open_ones = 1.0, {key: max(1, weight) for key, weight in weights.items()}
    while open_ones:
        total = sum(open_ones.values())
        over = [key for key, weight in open_ones.items() if key in caps and left * weight / total >= caps[key]]
        if not over:
            return parts | {key: left * weight / total for key, weight in open_ones.items()}
        for key in over:
            parts[key] = caps[key]
            del open_ones[key]
        left = max(0.0, left - sum(caps[key] for key in over))
    return parts


@dataclass
class _Standing:
    own: float  # as of the last step
    lag: float = 0.0
    rate: float = 0.0  # share of the device that it earned lately
    last_work: int = 0
    joined: int = 0


@dataclass
class FairQueue:
    """The lags of the kernels of one class on one device.

    Call ``step`` with each sample, for the time that was settled from ``start`` to ``until``.
    Allowances reach from ``now`` on.
    """

    _standings: dict[str, _Standing] = field(default_factory=dict)
    _settled: int | None = None

    def step(self, members: Sequence[Member], start: int, until: int, now: int, horizon: int) -> dict[str, Allowance]:
        # a kernel that was alone has no debt for that time
        before = self._standings if start == self._settled else {}
        self._settled = until
        self._standings = {
            m.kernel_id: before.get(m.kernel_id) or _Standing(m.own, last_work=until, joined=until) for m in members
        }
        caps = {m.kernel_id: m.weight / 100 for m in members if m.is_capped}
        earned = self._earned(members, start, until, caps)
        for member in members:
            self._settle(member, earned[member.kernel_id], until - start, until)
        wanting = [m for m in members if m.wants]
        now_parts = split({m.kernel_id: m.weight for m in wanting}, caps)
        self._level(wanting, until)
        return {m.kernel_id: self._allowance(m, wanting, now_parts, now - until, horizon) for m in members}

    def _earned(self, members: Sequence[Member], start: int, until: int, caps: Mapping[str, float]) -> dict[str, float]:
        """Return what each kernel earned: at each moment, its part among the kernels with work."""
        earned = {m.kernel_id: 0.0 for m in members}
        events: list[tuple[int, int]] = []
        gap = SHORT_GAP + SLICE * (sum(m.wants for m in members) - 1)
        for index, member in enumerate(members):
            for begin, end in self._backlog(member, start, until, gap):
                events += [(begin, 1 << index), (end, -(1 << index))]
        events.sort()
        working, last = 0, start
        known: dict[int, dict[str, float]] = {}
        for time, change in events:
            if working and time > last:
                if working not in known:
                    there = {m.kernel_id: m.weight for i, m in enumerate(members) if working >> i & 1}
                    known[working] = split(there, caps)
                for kernel_id, part in known[working].items():
                    earned[kernel_id] += part * (time - last)
            last, working = time, working + change
        return earned

    def _backlog(self, member: Member, start: int, until: int, gap: int) -> list[tuple[int, int]]:
        standing = self._standings[member.kernel_id]
        if member.is_held:
            standing.last_work = until
            return [(start, until)]
        spans: list[tuple[int, int]] = []
        last = standing.last_work
        for begin, end in member.busy:
            if spans and begin <= spans[-1][1] + gap:
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            else:
                spans.append((start if begin - last < gap else begin, end))
            last = end
        if member.wants and until - last < gap:
            spans = [*spans[:-1], (spans[-1][0], until)] if spans else [(start, until)]
        standing.last_work = last
        return spans

    def _settle(self, member: Member, earned: float, elapsed: int, until: int) -> None:
        standing = self._standings[member.kernel_id]
        used, standing.own = max(0.0, member.own - standing.own), member.own
        standing.lag += earned - used
        if elapsed > 0:
            standing.rate += (earned / elapsed - standing.rate) * min(1.0, elapsed / RATE_SPAN)
        is_joining = until - standing.joined < JOINING
        standing.lag = max(standing.lag, -float(JOINING_DEBT if is_joining else MOST_DEBT))

    def _level(self, wanting: Sequence[Member], until: int) -> None:
        """Take back the lag that all kernels share.

        If all are behind, the device was not available to any of them.
        """
        total = sum(m.weight for m in wanting) or 1
        for kernel_id, standing in self._standings.items():
            if until - standing.last_work > FORGET_AFTER:
                standing.lag = 0.0
            elif all(m.kernel_id != kernel_id for m in wanting):
                standing.lag = min(standing.lag, 0.0)  # no credit from idling
        if len(wanting) > 1:
            least = min(self._standings[m.kernel_id].lag / m.weight for m in wanting)
            for member in wanting:
                self._standings[member.kernel_id].lag -= max(0.0, least) * member.weight
        for member in wanting:
            standing = self._standings[member.kernel_id]
            standing.lag = min(standing.lag, MOST_CREDIT * member.weight / total)

    def _allowance(
        self, member: Member, wanting: Sequence[Member], parts: Mapping[str, float], unsettled: int, horizon: int
    ) -> Allowance:
        standing = self._standings[member.kernel_id]
        part = parts.get(member.kernel_id)
        if part is None:  # it may begin at once when work comes, as if it had been there
            part = split({m.kernel_id: m.weight for m in (*wanting, member)}, {})[member.kernel_id]
            part = min(part, member.weight / 100) if member.is_capped else part
        others = any(m.kernel_id != member.kernel_id for m in wanting)
        entitled = part if member.wants else None
        if not member.is_capped and not others:
            return Allowance(None, entitled, standing.lag)
        rate = max(part, min(standing.rate, 1.0)) if not member.is_capped else part
        own = standing.lag - member.ahead + rate * (unsettled + horizon)
        return Allowance(max(0.0, own), entitled, standing.lag)
