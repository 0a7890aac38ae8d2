"""Select the kernels that a waiting kernel may displace, the least valuable first.

Pure, for one decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .links import Links
from .views import HINT_SECONDS, NEVER, KernelView, Policy, State, Want

Need = Sequence[tuple[str, int]]  # bytes by device
_LEAST_SECONDS = 1e-3  # avoids a division by zero for a free restore
_Choice = tuple[float, bool, KernelView]  # when it may leave, whether it is busy


@dataclass(frozen=True, slots=True)
class Plan:
    """The kernels that must all leave.

    ``ripe_at`` is when the last of them may leave; a time in the past: now.
    """

    victims: tuple[KernelView, ...] = ()
    ripe_at: float = 0.0
    has_busy: bool = False
    lacks_host: bool = False  # there were victims, but no host memory for them


class Victims:
    """The resident kernels that can leave. A kernel is displaced for one waiter only."""

    def __init__(
        self, kernels: Sequence[KernelView], now: float, policy: Policy, links: Links, host_room: int | None
    ) -> None:
        self._kernels = kernels
        self._now = now
        self._policy = policy
        self._links = links
        self._host_room = host_room
        self._taken: set[str] = set()
        self._positions: dict[str, int] = {}
        self._movable = [
            k
            for k in kernels
            if k.movable_at < NEVER and k.state in (State.RESIDENT, State.SWAPPING_IN) and _leaving(k)
        ]
        self._costs: dict[str, float] = {}

    def set_order(self, wants: Sequence[KernelView]) -> None:
        """Return the waiting kernels in the order in which they are served.

        None displaces one before it.
        """
        self._positions = {kernel.kernel_id: position for position, kernel in enumerate(wants)}

    def take(self, kernel: KernelView) -> bool:
        """Take out of the choice a kernel that leaves in any case.

        Return False if it cannot leave, or host memory is full.
        """
        if kernel.kernel_id in self._taken or kernel.movable_at > self._now or not self._has_host(kernel, 0):
            return False
        self._book(kernel)
        return True

    def lacks_host(self, kernel: KernelView) -> bool:
        """Return whether nothing but host memory for its copy keeps a kernel from leaving now."""
        may_leave = kernel.kernel_id not in self._taken and kernel.movable_at <= self._now
        return may_leave and not self._has_host(kernel, 0)

    def choose(self, wanter: KernelView, need: Need, future: Mapping[str, int]) -> Plan:
        """Return the least valuable kernels that together make room on every device.

        Return none where that is impossible.
        """
        short = {uuid: amount - future[uuid] for uuid, amount in need if amount > future[uuid]}
        ranked = self._rank(wanter, short)
        chosen: list[_Choice] = []
        left, host, lacks_host = dict(short), 0, False
        for ripe_at, is_busy, _, _, _, victim in ranked:
            if not any(left.get(h.uuid, 0) > 0 and (h.swappable_bytes or h.away_bytes) for h in victim.holdings):
                continue
            if not self._has_host(victim, host):
                lacks_host = True
                continue
            host += _leaving(victim)
            chosen.append((ripe_at, is_busy, victim))
            for h in victim.holdings:
                if h.uuid in left:
                    left[h.uuid] -= h.swappable_bytes + h.away_bytes
            if all(amount <= 0 for amount in left.values()):
                break
        else:
            return Plan(lacks_host=lacks_host)
        chosen = _without_needless(chosen, left)
        for _, _, victim in chosen:
            self._book(victim)
        return Plan(
            tuple(victim for _, _, victim in chosen),
            max(ripe_at for ripe_at, _, _ in chosen),
            any(is_busy for _, is_busy, _ in chosen),
        )

    def _rank(
        self, wanter: KernelView, short: Mapping[str, int]
    ) -> list[tuple[float, bool, bool, float, str, KernelView]]:
        """Return the possible victims, the least valuable first.

        Kernels that may leave now come first, then those that may leave soonest; idle before busy,
        opportunistic before production; then by idle time × useful bytes ÷ the cost of their
        restore.
        """
        ranked = []
        is_promised, position = is_guaranteed(wanter), self._positions[wanter.kernel_id]
        for victim in self._movable:
            name = victim.kernel_id
            if name in self._taken or victim is wanter or self._positions.get(name, position) < position:
                continue
            useful = sum(
                min(h.swappable_bytes + h.away_bytes, short[h.uuid]) for h in victim.holdings if h.uuid in short
            )
            if useful <= 0:
                continue
            ripe_at = self._ripe_at(victim, wanter, is_promised)
            if ripe_at == NEVER:
                continue
            is_busy = victim.idle_since is None
            idle = 0.0 if victim.idle_since is None else self._now - victim.idle_since
            worth = -(idle * useful) / max(self._cost(victim), _LEAST_SECONDS)
            key = ripe_at if ripe_at > self._now else 0.0
            ranked.append((key, is_busy, victim.is_production, worth, name, victim))
        ranked.sort()
        return ranked

    def _ripe_at(self, victim: KernelView, wanter: KernelView, is_promised: bool) -> float:
        """Return when the victim may be displaced for this waiter; NEVER: not as things are."""
        policy, movable_at, held_since, turn_since = (
            self._policy,
            victim.movable_at,
            victim.held_since,
            victim.turn_since,
        )
        if victim.state is State.SWAPPING_IN:  # it has to arrive first; then its hold and its turn begin
            held_since = turn_since = movable_at = self._now + self._cost(victim)
        if wanter.is_production and not victim.is_production and wanter.want is not Want.HINT:
            return movable_at
        held_until = max(movable_at, held_since + policy.hold_seconds)
        if victim.idle_since is not None:
            return NEVER if wanter.want is Want.HINT and _is_expected_back(victim) else held_until
        if wanter.want is not Want.CALL or (victim.is_production and not wanter.is_production):
            return NEVER
        if victim.kernel_id in self._positions or (is_promised and not is_guaranteed(victim)):
            return held_until  # it waits, too, and comes after the waiter, or has more than its guarantee
        turn = max(policy.quantum_seconds, policy.quantum_moves * 2 * self._cost(victim))
        if not is_promised and is_guaranteed(victim):  # before that, the victim would take the room back at once
            return max(held_until, turn_since + turn, wanter.wants_since + policy.patience_seconds)
        if is_young(wanter, policy) and not is_young(victim, policy) and victim.last_turn_seconds >= turn:
            return held_until  # the next turn of this victim is a whole one
        return max(held_until, turn_since + turn)

    def could_ever(self, wanter: KernelView, need: Need, capacity: Mapping[str, int]) -> bool:
        """Return whether the kernel would fit if all kernels left that can leave."""
        room = {uuid: capacity.get(uuid, 0) - amount for uuid, amount in need}
        for kernel in self._kernels:
            for h in kernel.holdings:
                if h.uuid in room:
                    leaves = h.swappable_bytes if kernel.movable_at < NEVER and kernel is not wanter else 0
                    room[h.uuid] -= h.held_bytes - leaves
        return all(amount >= 0 for amount in room.values())

    def _cost(self, kernel: KernelView) -> float:
        """Return the seconds that the kernel's restore will take."""
        cost = self._costs.get(kernel.kernel_id)
        if cost is None:
            cost = self._costs[kernel.kernel_id] = self._links.wake_seconds(kernel) + self._policy.move_seconds
        return cost

    def _has_host(self, kernel: KernelView, more: int) -> bool:
        return self._host_room is None or more + _leaving(kernel) <= self._host_room

    def _book(self, kernel: KernelView) -> None:
        self._taken.add(kernel.kernel_id)
        if self._host_room is not None:
            self._host_room -= _leaving(kernel)


def is_guaranteed(kernel: KernelView) -> bool:
    """Return whether the memory that it has and wants is within its guarantee, on every device."""
    return all(h.held_bytes + h.away_bytes + h.wanted_bytes <= h.guarantee_bytes for h in kernel.holdings)


def is_young(kernel: KernelView, policy: Policy) -> bool:
    """Return whether the running cell has had the devices for less than a quantum.

    Most cells end soon; the longer one has run, the longer it is expected to go on.
    """
    return kernel.ran_seconds < policy.quantum_seconds


def _is_expected_back(kernel: KernelView) -> bool:
    """Return whether an idle kernel's next cell is expected while a hint lasts."""
    return kernel.expected_rest_seconds is not None and kernel.expected_rest_seconds <= HINT_SECONDS


def _leaving(kernel: KernelView) -> int:
    """Return the bytes that leave with a kernel.

    For a kernel that swaps in, the bytes on their way count, too.
    """
    return sum(h.swappable_bytes + h.away_bytes for h in kernel.holdings)


def _without_needless(chosen: list[_Choice], left: Mapping[str, int]) -> list[_Choice]:
    """Spare the kernels that the others make unnecessary, the most expensive first.

    ``left`` is at most 0.
    """
    spare = {uuid: -amount for uuid, amount in left.items()}
    kept = []
    for choice in reversed(chosen):
        frees = [(h.uuid, h.swappable_bytes + h.away_bytes) for h in choice[2].holdings if h.uuid in spare]
        if all(spare[uuid] >= amount for uuid, amount in frees):
            for uuid, amount in frees:
                spare[uuid] -= amount
        else:
            kept.append(choice)
    return kept[::-1]
