"""The links between devices and host in one decision.

This module tells which moves may begin, and when links will be free. Each link carries one move at
a time in each direction: two at once would only slow each other down. Out and in overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .views import DeviceView, Holding, KernelView, State

_Way = list[tuple[str, float]]  # link, seconds for a kernel's bytes on it


class Links:
    """The links during one decision.

    ``move_seconds`` is the time of a move beside its bytes. Times are seconds from now.
    """

    def __init__(self, devices: Sequence[DeviceView], move_seconds: float) -> None:
        self._move_seconds = move_seconds
        self._link = {d.uuid: (d.link or d.uuid, d.out_rate, d.in_rate) for d in devices}
        # link -> when it is free; a link that is not here is free now
        self._out: dict[str, float] = {}
        self._in: dict[str, float] = {}
        self._taken_out: set[str] = set()  # links of a move under way, or of one that begins now
        self._taken_in: set[str] = set()

    def enter(self, kernel: KernelView, now: float) -> float:
        """Enter a move that is under way; return how many seconds it still takes."""
        is_out = kernel.state is State.SWAPPING_OUT
        way = self._way_out(kernel) if is_out else self._way_in(kernel)
        clocks, taken = (self._out, self._taken_out) if is_out else (self._in, self._taken_in)
        left = max(self._move_seconds, self._seconds(way) - (now - kernel.moving_since))
        for link, _ in way:
            clocks[link] = max(left, clocks.get(link, 0.0))
            taken.add(link)
        return left

    def take_out(self, kernel: KernelView) -> tuple[bool, float]:
        """Return whether the kernel may leave now, and when it will be out.

        It follows the moves that are on these links.
        """
        way = self._way_out(kernel)
        return _take(way, self._taken_out), self._follow(way, self._out, 0.0)

    def take_in(self, kernel: KernelView) -> tuple[bool, float]:
        """Return whether the kernel may come in now, and when it will be in."""
        way = self._way_in(kernel)
        return _take(way, self._taken_in), self._follow(way, self._in, 0.0)

    def expect_in(self, kernel: KernelView, ready: float) -> float:
        """Return when the kernel will be in if its room is there at ``ready``."""
        return self._follow(self._way_in(kernel), self._in, ready)

    def wake_seconds(self, kernel: KernelView) -> float:
        """Return the time to bring a resident kernel back, if it leaves."""
        return self._seconds(
            [(h.uuid, (h.swappable_bytes + h.away_bytes) / self._link[h.uuid][2]) for h in _known(kernel, self._link)]
        )

    def seconds_out(self, kernels: Iterable[KernelView]) -> float:
        """Return how long they take to leave if no other kernel moves."""
        total: dict[str, float] = {}
        for kernel in kernels:
            for link, seconds in self._way_out(kernel):
                total[link] = total.get(link, self._move_seconds) + seconds
        return max(total.values(), default=0.0)

    def ready(self, kernel: KernelView) -> float:
        """Return when the kernels that leave the devices it needs will be out."""
        links = (self._link[h.uuid][0] for h in _known(kernel, self._link))
        return max((self._out.get(link, 0.0) for link in links), default=0.0)

    def _follow(self, way: _Way, clocks: dict[str, float], ready: float) -> float:
        start = max((clocks.get(link, 0.0) for link, _ in way), default=0.0)
        end = max(start, ready) + self._seconds(way)
        for link, _ in way:
            clocks[link] = end
        return end

    def _way_out(self, kernel: KernelView) -> _Way:
        links = self._link
        return [
            (links[h.uuid][0], h.swappable_bytes / links[h.uuid][1]) for h in _known(kernel, links) if h.swappable_bytes
        ]

    def _way_in(self, kernel: KernelView) -> _Way:
        links, is_out = self._link, kernel.state is State.SWAPPING_OUT
        return [
            (links[h.uuid][0], (h.away_bytes + h.swappable_bytes * is_out) / links[h.uuid][2])
            for h in _known(kernel, links)
            if h.away_bytes or (is_out and h.swappable_bytes)
        ]

    def _seconds(self, way: _Way) -> float:
        """Return the seconds of a move: devices move at once, except those on one link."""
        if len(way) < 2:
            return way[0][1] + self._move_seconds if way else 0.0
        total: dict[str, float] = {}
        for link, seconds in way:
            total[link] = total.get(link, 0.0) + seconds
        return max(total.values()) + self._move_seconds


def _take(way: _Way, taken: set[str]) -> bool:
    if any(link in taken for link, _ in way):
        return False
    taken.update(link for link, _ in way)
    return True


def _known(kernel: KernelView, links: dict[str, tuple[str, float, float]]) -> list[Holding]:
    return [h for h in kernel.holdings if h.uuid in links]
