"""The plan of what starts next: ``plan(snapshot, pending, now)``. Pure: no I/O, no clock.

First come, first served with conservative backfill: a request that does not fit now lets a later one
pass only where that does not delay it (lending/backfill.py), so that small requests do not starve a
large one. With a quota file, requests within their team's quota come before those that borrow, and
take back what others borrow (lending/reclaim.py).

A running kernel that is to grow blocks its own devices alone: it gets no capacity elsewhere. A kernel
that is to shrink frees capacity, and waits for no other request. A kernel that replaces another
counts on its capacity. An evicted kernel returns to its devices.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from sys import intern
from typing import NamedTuple

from jupyter_aliquot.gateway.planning.colocation import Neighbor
from jupyter_aliquot.gateway.sizes.wish import NO_WISH, Wish
from jupyter_aliquot.gpu_hook.placement.placement import WHOLE, Part, Refusal
from jupyter_aliquot.provisioner.errors import (
    AliquotError,
    QueueTimeoutError,
)
from jupyter_aliquot.provisioner.resources import Request, WorkloadClass

from .capacity import Capacity, Held
from .cordons import DRAIN, TAKEN, kept_off
from .foreseeing.never import never_fits
from .ledger import Holding, LedgerSnapshot
from .lending.backfill import Asked, is_harmless
from .lending.reclaim import Evict, Kind, State, reclaim
from .lending.team_quotas import Claimant, Shortage, TeamQuotas
from .resize import needs_capacity
from .serving.alike import Alike, AlikeRequests, Blocked, Claim
from .serving.order import queue_order
from .serving.reasons import Reasons, cordon_reason
from .wait_reason import WaitReason

# A request, how its memory may leave its devices, its models, whether its devices are to be in one domain, its load.
Size = tuple[Request, str, tuple[str, ...], bool, "Neighbor | None"]


@dataclass(frozen=True)
class Pending:
    """One request in the queue, in order of arrival.

    It waits until ``deadline``; without one, for ever.

    ``held`` are the parts of a running kernel that is to change its size. A plan sets ``is_together`` while the
    request waits for devices of one NVLink or PCIe domain.
    """

    kernel_id: str
    owner: str
    request: Request
    since: float
    deadline: float | None = None
    held: Held | None = None
    # The owner's teams when the kernel was requested.
    teams: frozenset[str] = frozenset()
    # Kernels of the same owner that it replaces. They end when it is certain to have capacity.
    replaces: frozenset[str] = frozenset()
    # The replaced kernels were told to end: their capacity is for this request.
    is_preempting: bool = False
    # The parts of an evicted kernel, which waits to return to them.
    returns_to: Held | None = None
    wish: Wish = NO_WISH
    is_together: bool = False
    # The kernelspec without a size. By it a plan finds the load, which it sets.
    kernelspec: str = ""
    newcomer: Neighbor | None = None

    @property
    def devices(self) -> Held | None:
        """The parts on the devices that it keeps; None for a request that takes any."""
        return self.held or self.returns_to

    @cached_property
    def claimant(self) -> Claimant:
        """The request as quotas look at it."""
        models = self.wish.models
        asked = (self.request, self.held, self.returns_to, models)
        return Claimant(self.owner, self.teams, *asked, self.is_together, self.newcomer)

    @property
    def size(self) -> Size:
        """The size, for which a plan finds one answer: what two requests have to share to be alike."""
        return self.request, self.request.residency, self.wish.models, self.is_together, self.newcomer

    @property
    def alike(self) -> str:
        """All of its size as text: the same for requests that differ in who asks, and when, alone."""
        asked = self.request
        size = (asked.gpus.hundredths, asked.memory_limit, asked.workload_class.value, asked.residency)
        return f"{size} {self.wish.models}"

    @cached_property
    def kind(self) -> str:
        """All that it asks for, and who asks, as text; empty for a request that is not for new devices alone.

        It is one object for all requests of the kind, which a plan of thousands compares fast.
        """
        if self.returns_to is not None or self.held is not None or self.replaces or self.is_preempting:
            return ""
        return intern(f"{self.owner!r} {sorted(self.teams)} {self.kernelspec!r} {self.alike}")

    @property
    def measured(self) -> Neighbor | None:
        """Its load; None where that is an assumption."""
        return self.newcomer if self.newcomer is not None and self.newcomer.is_measured else None

    @property
    def more(self) -> int:
        """The hundredths beyond those that are its own already."""
        if self.returns_to is not None:
            return 0
        held = sum(part.hundredths for part in self.held.parts) if self.held else 0
        return max(0, self.request.gpus.hundredths - held)


@dataclass(frozen=True)
class Admit:
    """A decision to reserve these parts for a kernel.

    A backfilled kernel starts ahead of the requests that it ``passed``, and leaves as soon as one of
    them needs it to.
    """

    kernel_id: str
    parts: tuple[Part, ...]
    is_backfilled: bool = False
    passed: frozenset[str] = frozenset()

    def placement(self) -> dict[str, int]:
        """Return uuid → hundredths, as the agent takes it."""
        return {part.uuid: part.hundredths for part in self.parts}


class Wait(NamedTuple):
    """A decision to let a request wait at this position, for this reason."""

    kernel_id: str
    position: int
    reason: WaitReason


@dataclass(frozen=True)
class Refuse:
    """A decision to end a request with this error."""

    kernel_id: str
    error: AliquotError


@dataclass(frozen=True)
class Plan:
    """The decisions about all pending requests.

    Each request is in exactly one of the first three fields.
    """

    admissions: tuple[Admit, ...] = ()
    waiting: tuple[Wait, ...] = ()
    refusals: tuple[Refuse, ...] = ()
    # The waiting requests that lack nothing but the capacity of the kernels that they replace.
    preempting: tuple[str, ...] = ()
    # The kernels that leave their GPU for waiting requests.
    evictions: tuple[Evict, ...] = ()

    def by_node(self, snapshot: LedgerSnapshot) -> Mapping[str, Plan]:
        """Return the admissions and evictions of each node that has any; the gateway's own has no name here."""
        if not snapshot.others:
            return {"": self}
        capacity, others = snapshot.capacity(), {one.name for one in snapshot.others}
        admissions, evictions = dict[str, list[Admit]](), dict[str, list[Evict]]()
        for admit in self.admissions:
            admissions.setdefault(capacity.node_of(admit.parts), []).append(admit)
        for evict in self.evictions:
            name = snapshot.holdings[evict.kernel_id].grant.node
            evictions.setdefault(name if name in others else "", []).append(evict)
        nodes = dict.fromkeys((*admissions, *evictions))
        return {node: Plan(tuple(admissions.get(node, ())), evictions=tuple(evictions.get(node, ()))) for node in nodes}

    def without(self, gone: Collection[str]) -> Plan:
        """Return the plan without the evictions for these requests, which left meanwhile."""
        return replace(self, evictions=tuple(one for one in self.evictions if one.wanted_by not in gone))


def plan(snapshot: LedgerSnapshot, pending: Sequence[Pending], now: float) -> Plan:
    """Admit the heads that fit, in order.

    Refuse requests that never fit or waited too long. Let the rest wait.
    """
    snapshot = snapshot.with_renewed(one.kernel_id for one in pending)
    quotas = TeamQuotas.of(snapshot)
    served = serve(snapshot, queue_order(snapshot, pending, now, quotas), now, quotas)
    served.drain()
    waiting = tuple(map(Wait, [one.kernel_id for one in served.blocked], count(1), Reasons(served).all()))
    admissions, refusals = tuple(served.admissions), tuple(served.refusals)
    return Plan(admissions, waiting, refusals, tuple(served.preempting), tuple(served.evictions))


class Serving:
    """A plan without the reasons of the ``blocked`` requests, to which ``capacity`` is left.

    It serves one request after the other.
    """

    def __init__(self, snapshot: LedgerSnapshot, now: float, quotas: TeamQuotas | None) -> None:
        self.snapshot = snapshot
        self.capacity = snapshot.capacity()
        self._quotas = self._at_first = quotas
        # The quotas with what kernels hold, without the shares of requests that wait.
        self.granted = quotas
        # Kinds of requests that wait, of which the quotas do not have all that is set aside for them.
        self._unclaimed: list[Alike] = []
        self.admissions: list[Admit] = []
        self.blocked: list[Pending] = []
        self.refusals: list[Refuse] = []
        self.preempting: list[str] = []
        self.evictions: list[Evict] = []
        # Kernel id to the quota that its request lacks.
        self.shortages: dict[str, Shortage] = {}
        # Requests that get nothing because the node is cordoned.
        self.kept_off: set[str] = set()
        self._now = now
        self.locality_seconds = 0.0 if snapshot.quotas is None else snapshot.quotas.locality_seconds
        # Requests for which no kernel can leave, and whether kernels delay those ahead, of this plan so far.
        self._irreclaimable: set[tuple[object, Size, Held | None]] = set()
        self._harmless: dict[object, bool] = {}
        self._kinds: dict[str, Kind] = {}
        self._groups: dict[Kind, list[Holding]] = {}
        # Refusals of this plan. They hold for later requests of the same size: capacity only shrinks.
        self._refused: dict[Size, Refusal] = {}
        self._found_never: dict[Size, AliquotError | None] = {}
        # Whether a domain of an empty node holds a request of these models.
        self._together: dict[tuple[Request, tuple[str, ...]], bool] = {}
        self._has_backfilled = any(one.is_backfilled for one in snapshot.unsettled.values())
        # Requests ahead that lack room on devices. None of them starts later for a later request.
        self._ahead: list[str] = []
        self._ahead_asked: dict[Asked, None] = {}
        # Of those ahead that lack quota, one of each kind.
        self._short: list[Pending] = []
        self._is_closed = False
        self._alike = AlikeRequests(snapshot, quotas, now, by_owner=self._has_backfilled)
        # For each of those blocked its kind, where it waits as the first one of its kind does.
        self.like: list[Alike | None] = []

    @property
    def quotas(self) -> TeamQuotas | None:
        """The quotas with all that was decided so far."""
        if self._unclaimed and self._quotas is not None:
            self._quotas = self._quotas.drafted()
            for kind in self._unclaimed:
                self._quotas.hold_back(*kind.claimed())
            self._unclaimed.clear()
        return self._quotas

    def _hold_back(self, claim: Claim | None) -> None:
        """Set aside what a request waits for."""
        if claim is not None and (quotas := self.quotas) is not None:
            self._quotas = quotas.drafted()
            self._quotas.hold_back(*claim)

    def _claim_of(self, entry: Pending) -> Claim | None:
        if self._quotas is None:
            return None
        claimant, quotas = entry.claimant, self._quotas
        return Claim(quotas.team_of(claimant.owner, claimant.groups), quotas.models_for(claimant), claimant.more)

    def serve(self, order: Iterable[Pending]) -> None:
        """Decide about the next requests, one after the other. Those like one that waits join it."""
        kind_of, ahead = self._alike.kind_of, self._ahead
        for entry in order:
            kind = kind_of(entry)
            found = None if kind is None else kind.waits(self.capacity, self._ahead_asked)
            if kind is None or found is None:
                self._decide(entry, kind)
                continue
            self.blocked.append(entry)
            self.like.append(kind)
            if found.shortage is None:
                ahead.append(entry.kernel_id)
            if found.claim is None:
                continue
            if found.is_fixed:
                if not kind.joined:
                    self._unclaimed.append(kind)
                kind.joined += 1
            else:
                self._hold_back(self._claim_of(entry))

    def _wait(self, entry: Pending, kind: Alike | None = None) -> None:
        self.blocked.append(entry)
        self.like.append(kind)

    def _decide(self, entry: Pending, kind: Alike | None) -> None:
        entry = self._located(entry)
        error = self._refusal(entry)
        if error is not None:
            self.refusals.append(Refuse(entry.kernel_id, error))
            return
        cordon, _ = self.snapshot.cordon_for(entry.devices) or (None, "")
        if kept_off(cordon, is_new=entry.devices is None) and not self._only_shrinks(entry):
            return self._keep_off(entry)
        placed = None if self._is_closed else self._place(entry)
        if (
            isinstance(placed, tuple)
            and (is_backfilled := self._may_pass(entry, placed, self._ahead_asked)) is not None
        ):
            self._admit(entry, placed, is_backfilled=is_backfilled)
        elif not self._is_closed and not self._ahead and self._replaces(entry):
            self.preempting.append(entry.kernel_id)
            self._wait(entry)
        elif not self._is_closed and self._reclaims(entry):
            self._wait(entry)
        elif entry.deadline is not None and self._now >= entry.deadline:
            if isinstance(placed, Shortage):
                self.shortages[entry.kernel_id] = placed
            self.refusals.append(Refuse(entry.kernel_id, self._waited_too_long(entry, Reasons(self).of(entry))))
        else:
            self._block(entry, placed, kind)

    def _located(self, entry: Pending) -> Pending:
        """Return the request with whether it waits for devices of one NVLink or PCIe domain.

        It does for a while, where one can hold it at all; then any devices will do. A clock that went
        back counts as no waiting.
        """
        waits = entry.devices is None and max(0.0, self._now - entry.since) < self.locality_seconds
        is_together = waits and entry.request.gpus.hundredths > WHOLE and self._has_domain_for(entry)
        entry = entry if entry.is_together == is_together else replace(entry, is_together=is_together)
        newcomer = None if entry.devices is not None else self._load_of(entry)
        return entry if newcomer is None else replace(entry, newcomer=newcomer)

    def _load_of(self, entry: Pending) -> Neighbor | None:
        """Return the load that a new kernel will probably be to its neighbors; None while none was measured."""
        share = min(1.0, entry.request.gpus.hundredths / WHOLE)
        is_normal = _class_of(entry) is WorkloadClass.PRODUCTION
        return self.snapshot.loads.newcomer(entry.owner, entry.kernelspec, share, is_normal=is_normal)

    def _has_domain_for(self, entry: Pending) -> bool:
        size = (entry.request, entry.wish.models)
        if size not in self._together:
            alone = self.snapshot.capacity().place_alone(entry.request, models=entry.wish.models, is_together=True)
            self._together[size] = isinstance(alone, tuple)
        return self._together[size]

    def _only_shrinks(self, entry: Pending) -> bool:
        """Return whether it is a change of size that takes no more of any device."""
        return entry.held is not None and not needs_capacity(self.capacity, entry.held, entry.request)

    def drain(self) -> None:
        """Have all kernels leave the nodes that are drained, and the devices that go, of those that can."""
        known, taken = self.snapshot, {one.kernel_id for one in self.evictions}
        draining = [node for node in known.nodes if (cordon := known.cordon_of(node)) and cordon.is_draining]
        if not any(node.can_evict for node in draining) and not known.leaving_devices:
            return

        def leaves_for(one: Holding) -> str:
            node, devices = known.node_of(one.grant), {quota.uuid for quota in one.grant.quotas}
            if node not in draining and (not node.can_evict or known.leaving_devices.isdisjoint(devices)):
                return ""
            return TAKEN if devices & known.leaving_devices - known.cordons.keys() else DRAIN

        leaving = {
            kernel_id: leaves_for(one)
            for kernel_id, one in known.holdings.items()
            if one.can_be_evicted and kernel_id not in taken
        }
        self.evictions += [Evict(one, why, is_for_quota=False) for one, why in sorted(leaving.items()) if why]

    def _keep_off(self, entry: Pending) -> None:
        """Let it wait. It holds up no other request: on this node no other starts either."""
        if entry.deadline is not None and self._now >= entry.deadline:
            self.refusals.append(Refuse(entry.kernel_id, self._waited_too_long(entry, cordon_reason(self, entry))))
            return
        self.kept_off.add(entry.kernel_id)
        self._wait(entry)

    def _waited_too_long(self, entry: Pending, why: WaitReason) -> QueueTimeoutError:
        count = len(self.blocked)
        ahead = f"{count} {'request' if count == 1 else 'requests'}" if count else "no request"
        return QueueTimeoutError(
            f"{why.sentence}. The request waited {self._now - entry.since:.0f} s in the queue, with {ahead} ahead of "
            "it. Choose a smaller size, end a kernel that is not needed, or try again"
        )

    def _refusal(self, entry: Pending) -> AliquotError | None:
        if entry.returns_to is not None:
            return None  # it runs, and waits for its own devices for as long as it takes
        at_first = self.snapshot.capacity()  # without the host memory that this plan sets aside
        never = never_fits(at_first, entry.request, entry.held) if entry.held is not None else self._never(entry)
        return never or (None if self.quotas is None else self.quotas.refusal(entry.claimant))

    def _never(self, entry: Pending) -> AliquotError | None:
        """Return the error of a size that the empty node cannot hold: it is found once a size."""
        if entry.size not in self._found_never:
            self._found_never[entry.size] = never_fits(self.snapshot.capacity(), entry.request, wish=entry.wish)
        return self._found_never[entry.size]

    def _quotas_for(self, entry: Pending) -> TeamQuotas | None:
        """Return the quotas without what the entry's replaced kernels hold."""
        if self.quotas is None or not entry.replaces:
            return self.quotas
        holdings = self.snapshot.holdings
        return self.quotas.without(holdings[one] for one in entry.replaces if one in holdings)

    def _place(self, entry: Pending) -> tuple[Part, ...] | Refusal | Shortage:
        quotas = self._quotas_for(entry)
        if quotas is not None:
            return quotas.place(self.capacity, entry.claimant)
        if entry.devices is not None:
            return entry.claimant.place(self.capacity)
        if entry.size in self._refused:
            return self._refused[entry.size]
        placed = entry.claimant.place(self.capacity)
        if isinstance(placed, Refusal):
            self._refused[entry.size] = placed
        return placed

    def _may_pass(self, entry: Pending, placed: tuple[Part, ...], ahead: Collection[Asked]) -> bool | None:
        """Return whether it starts as a backfilled kernel; None if it may not start before those ahead."""
        if not ahead:
            return False
        is_on = self.snapshot.quotas is None or self.snapshot.quotas.is_backfilling
        if not is_on or entry.replaces or entry.held is not None:
            return None
        if self._delays_none(entry, placed, ahead):
            return False
        can_leave = self.snapshot.can_evict(placed) and entry.request.residency != "off"
        return True if can_leave else None

    def _delays_none(self, entry: Pending, placed: tuple[Part, ...], ahead: Collection[Asked]) -> bool:
        requests = tuple(ahead)
        key = (entry.request, placed, requests, entry.measured)
        if key not in self._harmless:
            taken = (placed, _class_of(entry), entry.measured)
            self._harmless[key] = is_harmless(self.snapshot, self.capacity, taken, requests)
        return self._harmless[key]

    def _admit(self, entry: Pending, placed: tuple[Part, ...], *, is_backfilled: bool) -> None:
        passed = frozenset(self._ahead) if is_backfilled else frozenset()
        self.admissions.append(Admit(entry.kernel_id, placed, is_backfilled, passed))
        self._harmless.clear()
        if entry.held is not None:
            self._refused.clear()  # a kernel that shrinks frees capacity
            self._alike.forget()
        self.capacity = self.capacity if entry.held is None else self.capacity.give_back(entry.held)
        self._take(entry, placed)
        if (quotas := self.quotas) is not None:
            self._quotas = quotas.with_parts(entry.claimant, placed)
        if self.granted is not None:
            self.granted = self.granted.with_parts(entry.claimant, placed)

    def _take(self, entry: Pending, parts: tuple[Part, ...]) -> None:
        before = self.capacity
        taken = before.under(self.overcommit_of(entry)).take(parts, _class_of(entry), entry.measured)
        self.capacity = taken.under(before.overcommit)

    def overcommit_of(self, entry: Pending) -> float:
        """Return the most times its memory that the entry's team lets a device of it be reserved."""
        return math.inf if self._quotas is None else self._quotas.overcommit_of(entry.claimant)

    def _replaces(self, entry: Pending) -> bool:
        """Count on the capacity of the kernels that it replaces, if that is what it lacks."""
        quotas = self._quotas_for(entry)
        if quotas is not None and quotas.shortage(entry.claimant) is not None:
            return False
        left = _capacity_in_place(self.snapshot, self.capacity.under(self.overcommit_of(entry)), entry)
        if left is None:
            return False
        # The capacity that it waits for is not free yet, so that no other request can be placed there.
        self.capacity, self._is_closed = left.under(math.inf), True
        return True

    def _reclaims(self, entry: Pending) -> bool:
        """Have kernels leave for it, if that is what it lacks.

        What they leave is the request's; the others get what is free beside both.
        """
        # Without backfilled kernels, which leave for those that they passed, all of a team stand alike.
        is_alike = self.quotas is not None and not self._has_backfilled and not entry.replaces
        team = self.quotas.team_of(entry.owner, entry.teams) if self.quotas is not None and is_alike else None
        key = (entry.owner if team is None else (team,), entry.size, entry.devices)
        if key in self._irreclaimable or (self.quotas is None and not self._has_backfilled):
            return False
        if entry.is_together and isinstance(self._place(replace(entry, is_together=False)), tuple):
            return False  # it waits for devices of one domain alone, and no kernel leaves for that
        taken = frozenset(one.kernel_id for one in self.evictions)
        known = (self._kinds, self._groups)
        state = State(self.snapshot, self.capacity, self._quotas_for(entry), self._now, taken, *known)
        found = reclaim(state, entry.kernel_id, entry.claimant, entry.since)
        if found is None or self._may_pass(entry, found.parts, self._ahead_without(found.leavers)) is None:
            self._irreclaimable.add(key)
            return False
        self.evictions += found.evictions
        self._take(entry, found.parts)
        for held in found.set_aside:
            self.capacity = self.capacity.set_aside(held)
        self._hold_back(self._claim_of(entry))
        return True

    def _ahead_without(self, leavers: Iterable[Holding]) -> Collection[Asked]:
        """Return the requests that will lack room on devices once these kernels have left.

        Those that lack quota now lack it no more where these kernels borrow it.
        """
        quotas = None if self._at_first is None else self._at_first.without(leavers)
        short = (one for one in self._short if quotas is not None and quotas.shortage(one.claimant) is None)
        return dict.fromkeys((*self._ahead_asked, *map(_asked, short)))

    def _block(self, entry: Pending, placed: tuple[Part, ...] | Refusal | Shortage | None, kind: Alike | None) -> None:
        self._wait(entry, kind)
        if isinstance(placed, Shortage):
            self.shortages[entry.kernel_id] = placed
            if entry.devices is None:
                self._short.append(entry)
        elif entry.devices is None:
            self._ahead.append(entry.kernel_id)
            self._ahead_asked[_asked(entry)] = None
        else:
            self.capacity = self.capacity.close(entry.devices.parts)
        self._hold_back(claim := self._claim_of(entry))
        is_fixed = claim is None or len(claim.models) == 1
        if kind is not None and not isinstance(placed, tuple):
            kind.blocked = Blocked(placed if isinstance(placed, Shortage) else None, claim, is_fixed)
        elif kind is not None and is_fixed:
            kind.blocked = Blocked(None, claim, is_fixed, self.capacity, len(self._ahead_asked))


def _asked(entry: Pending) -> Asked:
    return entry.request, entry.wish.models, entry.is_together, entry.newcomer


def serve(snapshot: LedgerSnapshot, order: Iterable[Pending], now: float, quotas: TeamQuotas | None = None) -> Serving:
    """Serve the requests in this order. *quotas* are those of the snapshot, where they are known."""
    serving = Serving(snapshot, now, TeamQuotas.of(snapshot) if quotas is None else quotas)
    serving.serve(order)
    return serving


def _class_of(entry: Pending) -> WorkloadClass:
    return entry.request.workload_class


def _capacity_in_place(snapshot: LedgerSnapshot, capacity: Capacity, entry: Pending) -> Capacity | None:
    """Return the capacity that is left once the request has replaced its kernels.

    None if theirs is not enough, or none ends.
    """
    given_up = snapshot.held_in_place_of(entry.replaces)
    for held in given_up:
        capacity = capacity.give_back(held)
    load = entry.newcomer
    placed = capacity.place(entry.request, models=entry.wish.models, newcomer=load) if given_up else None
    taken = (entry.request.workload_class, entry.measured)
    return capacity.take(placed, *taken) if isinstance(placed, tuple) else None
