"""The reasons why the requests of one plan wait. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyter_aliquot.gateway.scheduling.wait_reason import (
    FULL,
    WaitReason,
    apart,
    cordoned,
    evicted,
    evicting,
    full_and_over_quota,
    lacking,
    replaced_kernel,
    team_quota,
)

if TYPE_CHECKING:
    from jupyter_aliquot.gateway.scheduling.capacity import Held
    from jupyter_aliquot.gateway.scheduling.lending.team_quotas import Shortage
    from jupyter_aliquot.gateway.scheduling.planner import Pending, Serving, Size

    from .alike import Alike


class Reasons:
    """The reasons why the requests of one plan wait.

    Requests of one size share a reason, which is found once.
    """

    def __init__(self, served: Serving) -> None:
        self._capacity = served.capacity
        self._served = served
        self._promised = frozenset(served.preempting)
        self._evicting = frozenset(one.wanted_by for one in served.evictions)
        self._found: dict[tuple[Size, Held | None, float, tuple[str, ...]], WaitReason] = {}
        self._alike: dict[Alike, WaitReason] = {}

    def all(self) -> list[WaitReason]:
        """Return the reason of each: that of the first one like it, where the plan found it blocked like that."""
        known, found = self._alike, list[WaitReason]()
        for entry, like in zip(self._served.blocked, self._served.like, strict=True):
            reason = None if like is None else known.get(like)
            if reason is None:
                reason = self._worded(entry)
                if like is not None:
                    known[like] = reason
            found.append(reason)
        return found

    def of(self, entry: Pending) -> WaitReason:
        """Return the reason of one request."""
        return self._worded(entry)

    def _worded(self, entry: Pending) -> WaitReason:
        found, models = self._of(entry), entry.wish.text
        return found if found.models == models else replace(found, models=models)

    def _of(self, entry: Pending) -> WaitReason:
        if entry.kernel_id in self._served.kept_off:
            return cordon_reason(self._served, entry)
        if entry.kernel_id in self._promised:
            return replaced_kernel(entry.request)
        if entry.kernel_id in self._evicting:
            return evicting(entry.request)
        if entry.kernel_id in self._served.shortages:
            return self._of_quota(entry)
        if entry.returns_to is not None:
            return evicted(entry.request)
        if entry.is_together and self._fits_apart(entry):
            return apart(entry.request, self._served.locality_seconds)
        return self._of_devices(entry, self._barred(entry))

    def _of_devices(self, entry: Pending, barred: tuple[str, ...]) -> WaitReason:
        """Return what the devices lack, of which the team may take none of the models in *barred*."""
        lacks = self._lacking(entry, barred)
        if barred and lacks.code in FULL and self._lacking(entry).code not in FULL:
            return replace(lacks, detail=f"{lacks.detail}; {self._shortage(entry, barred[0]).clause}")
        return lacks

    def _of_quota(self, entry: Pending) -> WaitReason:
        """Return the reason of a request that its team's quota does not allow: that, the devices, or both."""
        short, barred = self._shortage(entry, self._served.shortages[entry.kernel_id].model), self._limited(entry)
        if barred and short.model in barred:
            (model, *_) = (one for one in self._models(entry) if one not in barred)
            short = self._shortage(entry, model)
        lacks = self._of_devices(entry, barred)
        if lacks.code not in FULL or entry.returns_to is not None:
            return team_quota(entry.request, short.clause)
        if short.is_over or short.is_limited:
            return full_and_over_quota(lacks, short.over_clause, is_limited=short.is_limited)
        return lacks

    def _lacking(self, entry: Pending, barred: tuple[str, ...] = ()) -> WaitReason:
        """Return what the devices lack, without those of the models in *barred*."""
        overcommit, wish = self._served.overcommit_of(entry), entry.wish
        if barred and self._served.granted is not None:
            wish = replace(wish, models=self._served.granted.names_of_others(entry.claimant, barred))
        size = (entry.size, entry.held, overcommit, wish.models)
        if size not in self._found:
            asked = (entry.request, entry.held, wish, entry.newcomer)
            self._found[size] = lacking(self._capacity.under(overcommit), *asked)
        return self._found[size]

    def _models(self, entry: Pending) -> Sequence[str]:
        granted = self._served.granted
        return () if granted is None or entry.devices is not None else granted.models_for(entry.claimant)

    def _barred(self, entry: Pending) -> tuple[str, ...]:
        """Return the models of which its team may take no more now, where it may of others that the request takes."""
        if len(models := self._models(entry)) < 2 or self._served.granted is None:
            return ()
        allowed = self._served.granted.allowed(entry.claimant)
        return tuple(one for one in models if one not in allowed) if allowed else ()

    def _limited(self, entry: Pending) -> tuple[str, ...]:
        """Return the models of which its team may never take so much, where it may of others that the request takes."""
        if len(models := self._models(entry)) < 2:
            return ()
        limited = tuple(one for one in models if self._shortage(entry, one).is_limited)
        return limited if len(limited) < len(models) else ()

    def _shortage(self, entry: Pending, model: str) -> Shortage:
        """Return the quota that lacks, with what kernels hold apart from what requests ahead wait for."""
        granted = self._served.granted
        if granted is None:
            return self._served.shortages[entry.kernel_id]
        found = granted.shortage_of(entry.claimant, model)
        at_last = self._served.shortages.get(entry.kernel_id, found)
        available = min(at_last.available, found.available)  # a later request may have got some of it
        return replace(found, available=available, ahead=found.available - available)

    def _fits_apart(self, entry: Pending) -> bool:
        capacity = replace(self._capacity, closed=frozenset()).under(self._served.overcommit_of(entry))
        is_placed = [
            isinstance(capacity.place(entry.request, models=entry.wish.models, is_together=one), tuple)
            for one in (True, False)
        ]
        return is_placed == [False, True]


def cordon_reason(served: Serving, entry: Pending) -> WaitReason:
    found = served.snapshot.cordon_for(entry.devices)
    return cordoned(entry.request, "" if found is None else found[0].clause(found[1]))
