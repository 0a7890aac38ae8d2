"""The reasons why the requests of one plan wait. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jupyter_aliquot.gateway.scheduling.wait_reason import (
    WaitReason,
    apart,
    cordoned,
    evicted,
    evicting,
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
        self._found: dict[tuple[Size, Held | None, float], WaitReason] = {}
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
            return team_quota(entry.request, self._shortage(entry).clause)
        if entry.returns_to is not None:
            return evicted(entry.request)
        if entry.is_together and self._fits_apart(entry):
            return apart(entry.request, self._served.locality_seconds)
        overcommit = self._served.overcommit_of(entry)
        size = (entry.size, entry.held, overcommit)
        if size not in self._found:
            asked = (entry.request, entry.held, entry.wish, entry.newcomer)
            self._found[size] = lacking(self._capacity.under(overcommit), *asked)
        return self._found[size]

    def _shortage(self, entry: Pending) -> Shortage:
        """Return the quota that lacks, with what kernels hold apart from what requests ahead wait for."""
        found, granted = self._served.shortages[entry.kernel_id], self._served.granted
        if granted is None:
            return found
        without_ahead = max(0, granted.available(entry.claimant, found.model))
        available = min(found.available, without_ahead)  # a later request may have got some of it
        held = granted.tree.used(found.team, found.model)
        return replace(found, held=held, available=available, ahead=without_ahead - available)

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
