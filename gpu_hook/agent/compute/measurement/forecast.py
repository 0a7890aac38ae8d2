"""Forecast when work may begin in a pause of production, at a price in expected delay.

The forecast uses the pauses of the last seconds. This module owns the history of one device's
pauses and the search; protection.py sets the price to keep.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND, SECOND, Interval

FEW = 8  # pauses; fewer tell nothing
MOST_PAUSES = 400
MEMORY = 20 * SECOND
QUANTILES = 32
MOST_BORDERS = 6
LONG_IDLE = 1 * SECOND  # longer pauses belong to no step: the user is away
LEAST_STEP, MOST_STEP, UNKNOWN_STEP = 2 * MILLISECOND, 2 * SECOND, 5 * MILLISECOND
PRICES = tuple(0.005 * 1.25**i for i in range(32))  # delay per harvested time, up to 5
# share of a step, however steps differ: requests may wait for nothing while their pauses differ
MOST_NOTICED = 0.08
NEVER = 1 << 62


@dataclass(frozen=True)
class Risk:
    """The risk that the work of one opportunistic process brings to production.

    ``delay`` is the mean delay of production when it returns while work is in flight. ``in_flight``
    is the longest time for which begun work can hold production up. ``rate`` is the permitted delay
    per time. At most the part ``rare`` of the steps may be delayed by more than the part
    ``noticed`` of a step.
    """

    delay: int
    in_flight: int
    rate: float
    noticed: float
    rare: float


@dataclass(frozen=True)
class Gaps:
    """Ages of a pause in which work may begin, in nanoseconds.

    Work may begin from ``start`` to ``until``, and from ``again`` on. ``rate`` is the expected
    delay per time; ``price`` is the requested delay per harvested time.
    """

    start: int
    until: int
    again: int
    rate: float = 0.0
    price: float = 0.0


ALWAYS = Gaps(0, 0, 0)


@dataclass
class PauseHistory:
    """The recent pauses of production on one device.

    Unless history says otherwise, a pause counts as idleness once its age reaches
    ``again_at_most``, and ``again_units`` times the length of the work in flight.
    """

    again_at_most: int
    again_units: int = 0
    _pauses: deque[Interval] = field(default_factory=lambda: deque(maxlen=MOST_PAUSES))
    _sorted: list[int] = field(default_factory=list)
    _sums: list[int] = field(default_factory=lambda: [0])
    _span: int = 0
    step: int = UNKNOWN_STEP  # approximate length of one step of production, its pauses included
    typical: int = 0  # half of the time in pauses lies in longer pauses
    spread: int = 0
    usual: int = 0  # usual pause of a step; 0: steps have none, or many

    def add(self, pauses: Sequence[Interval], now: int) -> None:
        for pause in pauses:
            if pause.end > pause.start:
                self._pauses.append(pause)
        while self._pauses and not now - MEMORY <= self._pauses[0].end <= now:
            self._pauses.popleft()

    def clear(self) -> None:
        self._pauses.clear()

    def digest(self) -> None:
        """Prepare what `gaps` and `step` use from now on.

        This takes a millisecond, so the controller does not call it for each sample.
        """
        self._sorted = sorted(end - start for start, end in self._pauses)
        self._sums = [0, *accumulate(self._sorted)]
        # A pause much longer than most belongs to no step.
        longest = min(LONG_IDLE, max(LEAST_STEP, 3 * self._sorted[len(self._sorted) * 3 // 4])) if self._sorted else 0
        idle = sum(max(0, length - longest) for length in self._sorted)
        self._span = self._pauses[-1].end - self._pauses[0].start - idle if self._pauses else 0
        self.step = self._step_length()
        inside = list(accumulate(min(length, longest) for length in self._sorted))
        self.typical = self._sorted[bisect_left(inside, inside[-1] / 2)] if inside else 0
        self.usual, self.spread = self._of_steps()

    @property
    def count(self) -> int:
        return len(self._sorted)

    def _of_steps(self) -> tuple[int, int]:
        """Return the usual pause of a step, and the spread of steps; 0 where they have none.

        Steps differ because their pauses do. Users do not notice a delay below that spread.
        """
        main = self._sorted[bisect_left(self._sorted, self.typical // 4) :]
        if len(main) < FEW or len(main) * self.step < self._span // 2:
            return 0, 0
        return main[len(main) // 2], (main[len(main) * 84 // 100] - main[len(main) * 16 // 100]) // 2

    def _step_length(self) -> int:
        """Return the estimated length of a step, in nanoseconds.

        A step contains one of the long stretches of work: half of production's working time lies in
        stretches that are longer. So a step with many short rounds and one long one does not count
        as many steps, and many short steps do not count as a part of a rare long one.
        """
        if len(self._sorted) < FEW:
            return UNKNOWN_STEP
        work = sorted(after.start - before.end for before, after in pairwise(self._pauses))
        half, steps, so_far, typical = sum(work) / 2, 0, 0, 0
        for length in reversed(work):
            if so_far >= half and length < typical / 2:
                break
            typical = length if so_far < half else typical
            so_far, steps = so_far + length, steps + 1
        return min(MOST_STEP, max(LEAST_STEP, self._span // max(1, steps)))

    def gaps(self, risk: Risk) -> Gaps:
        """Return the ages with the most harvest whose delay stays within ``risk.rate``."""
        if len(self._sorted) < FEW or risk.rate <= 0:
            return Gaps(0, 0, max(self.again_at_most, self.again_units * risk.in_flight))
        allowed = risk.rate * self._span
        noticed = max(risk.noticed * self.step, min(self.spread, MOST_NOTICED * self.step))
        usual = self.usual + int(risk.noticed * self.step) if self.usual else 0
        search = _Search(self._sorted, self._sums, risk, self.step, noticed, self._again_from(risk), usual)
        # of idleness, in which work begins in any case
        allowed += (self.count - search.ended[-1]) * search.delay
        if search.everywhere <= allowed:
            return Gaps(0, 0, 0, search.everywhere / self._span, PRICES[-1])
        low, high, best = 0, len(PRICES), None
        while low < high:
            middle = (low + high) // 2
            found = search.best(PRICES[middle])
            if found[3] <= allowed:
                low, best = middle + 1, (found, PRICES[middle])
            else:
                high = middle
        if best is None:
            return Gaps(0, 0, min(self._again_from(risk), NEVER))
        (start, until, again, cost), price = best
        return Gaps(start, until, again, cost / self._span, price)

    def _again_from(self, risk: Risk) -> int:
        """Return the age from which work begins, whatever history says of shorter pauses."""
        return max(
            self.again_at_most, self.again_units * risk.in_flight, 5 * self._sorted[len(self._sorted) * 3 // 4] // 2
        )


def _borders(lengths: Sequence[int]) -> set[int]:
    """Return the lengths on both sides of the widest gaps between kinds of pauses."""
    jumps = sorted(((b / (a + 1), a, b) for a, b in pairwise(lengths)), reverse=True)[:MOST_BORDERS]
    return {length for _, a, b in jumps for length in (a, b)}


class _Search:
    """A search over candidate ages.

    Candidates are quantiles of the pauses, and the ages that lie before them by the work in flight.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        sums: Sequence[int],
        risk: Risk,
        step: int,
        noticed: float,
        again_from: int,
        usual: int,
    ) -> None:
        count = len(lengths)
        # A noticed delay costs so much that the permitted number of them uses up the permitted
        # delay.
        self.dear = risk.rate * step / risk.rare
        often = max(0.0, 1 - noticed / max(1, risk.in_flight))
        self.delay = max(risk.delay, often * self.dear)
        quantiles = {lengths[i * (count - 1) // (QUANTILES - 1)] for i in range(QUANTILES)}
        quantiles |= _borders(lengths)
        ages = {0, again_from} | {q + 1 for q in quantiles} | {max(0, q - risk.in_flight) for q in quantiles}
        self.ages = sorted(age for age in ages if age <= again_from)
        self.ended = [bisect_left(lengths, age) for age in self.ages]
        self.time = [sums[n] + age * (count - n) for n, age in zip(self.ended, self.ages, strict=True)]
        self.tails = []
        # per age: until when work begun before it runs on, and the total time until then
        self.reach: list[tuple[int, int]] = []
        for n, age in zip(self.ended, self.ages, strict=True):
            last = bisect_right(lengths, age + risk.in_flight)
            self.reach.append((age + risk.in_flight, sums[last] + (age + risk.in_flight) * (count - last)))
            heavy = bisect_left(lengths, age + risk.in_flight - noticed) if risk.in_flight > noticed else n
            # If the work fits into the usual pause, a step with a shorter pause does not get longer
            # than usual.
            heavy = n if age + risk.in_flight <= usual else max(n, heavy)
            over = (last - heavy) * (age + risk.in_flight) - (sums[last] - sums[heavy])
            self.tails.append((heavy - n) * max(self.dear, risk.delay) + over)
        self.count, self.total = count, sums[count]
        self.everywhere = count * self.delay

    def best(self, price: float) -> tuple[int, int, int, float]:
        """Return start, until, again and cost of the choice with the most harvest.

        The harvest counts less the choice's delay at this price.
        """
        last = len(self.ages) - 1
        onward = [  # worth of beginning again at each age and never again after it
            (self.total - self.time[i]) - (self.count - self.ended[i]) * self.delay / price for i in range(last + 1)
        ]
        again = [last] * (last + 1)  # index of the best age from there on; the last always opens
        for i in range(last - 1, -1, -1):
            again[i] = i if onward[i] > onward[again[i + 1]] else again[i + 1]
        # Assume one collision more than was seen: an event that has not happened yet is not
        # impossible.
        unseen = self.delay / price
        worth, choice, least, start = onward[again[0]], (0, 0), float("inf"), 0
        for i in range(last + 1):
            paid = self.time[i] - self.ended[i] * self.delay / price
            reached, worked = self.reach[i]
            if reached > self.ages[again[i]]:
                worked = self.time[again[i]]
            here = paid + worked - self.time[i] - self.tails[i] / price - unseen - least + onward[again[i]]
            if here > worth:
                worth, choice = here, (start, i)
            if paid < least:
                least, start = paid, i
        start, until = choice
        cost = (self.count - self.ended[again[until]]) * self.delay
        if until > start:
            cost += (self.ended[until] - self.ended[start]) * self.delay + self.tails[until]
        begin = (self.ages[start], self.ages[until]) if until > start else (0, 0)
        return (*begin, self.ages[again[until]], cost)
