"""Conservative backfill without known ends: which request may pass one that waits. Pure.

The end of a notebook is not known, so no moment can be reserved for a request that waits. A later
request passes it in two cases. Either it takes capacity that the waiting request could not use
first, in whichever order the present kernels end; or its kernel can be evicted as soon as the
waiting request lacks nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from jupyter_aliquot.gateway.planning.colocation import Neighbor
from jupyter_aliquot.gateway.scheduling.capacity import Capacity, Held
from jupyter_aliquot.gateway.scheduling.ledger import Holding, LedgerSnapshot
from jupyter_aliquot.gateway.scheduling.resize import held_of
from jupyter_aliquot.gpu_hook.placement.placement import WHOLE, Part
from jupyter_aliquot.provisioner.resources import Request, WorkloadClass

# The futures of a device are the sets of its kernels that have ended. Above so many kernels they are
# not all looked at, and no request passes there.
_MOST_KERNELS = 6
# A request, the models that it takes, whether its devices are to be in one domain, and its load.
Asked = tuple[Request, tuple[str, ...], bool, Neighbor | None]
# The parts of a kernel, its class, and its load where that was measured.
Taken = tuple[Sequence[Part], WorkloadClass, Neighbor | None]


def is_harmless(snapshot: LedgerSnapshot, capacity: Capacity, taken: Taken, ahead: Sequence[Asked]) -> bool:
    """Return whether a kernel with these parts delays none of the requests *ahead*, whatever ends when.

    Kernels of other programs are not known one by one: a device that has such is not passed on.
    """
    parts, workload_class, load = taken
    rule = capacity.room_of(parts).rule
    if rule.most > 1 and snapshot.quotas is not None and snapshot.quotas.lowers_overcommit:
        return False  # who joins a device decides how far it is shared
    if rule.most > 1 and rule.host_bytes is not None:
        return False  # all devices share the host's memory for copies
    for part in parts:
        residents = _residents(snapshot, capacity, part.uuid)
        if residents is None or any(request.gpus.hundredths > WHOLE for request, *_ in ahead):
            return False
        alone = capacity.of_device(part.uuid)
        for future in _futures(alone, residents):
            after = future.take((part,), workload_class, load)
            if any(_is_delayed(future, after, asked) for asked in ahead):
                return False
    return True


def backfilled_before(snapshot: LedgerSnapshot, kernel_id: str, since: float) -> list[Holding]:
    """Return the backfilled kernels that passed a request or came after it, the last one first."""
    backfilled = (one for one in snapshot.unsettled.values() if one.is_backfilled)
    found = [one for one in backfilled if one.queued_at > since or kernel_id in one.passed]
    return sorted(found, key=lambda one: (-one.queued_at, one.grant.kernel_id))


def _residents(snapshot: LedgerSnapshot, capacity: Capacity, uuid: str) -> list[Held] | None:
    """Return what each kernel holds of this device; None if other programs hold some of it."""
    residents = [_on_device(snapshot, holding, uuid) for holding in snapshot.on_device(uuid)]
    known = sum(part.hundredths for held in residents for part in held.parts)
    reserved = capacity.reserved.get(uuid)
    if (0 if reserved is None else reserved.hundredths) != known or len(residents) > _MOST_KERNELS:
        return None
    return residents


def _on_device(snapshot: LedgerSnapshot, holding: Holding, uuid: str) -> Held:
    held = held_of(holding.grant)
    there = tuple(part for part in held.parts if part.uuid == uuid)
    return replace(held, parts=there, neighbor=snapshot.neighbor_of(holding))


def _futures(capacity: Capacity, residents: Sequence[Held]) -> Iterator[Capacity]:
    """Yield the capacity after each set of these kernels has ended."""
    for count in range(len(residents) + 1):
        for ended in combinations(residents, count):
            future = capacity
            for held in ended:
                future = future.give_back(held)
            yield future


def _is_delayed(before: Capacity, after: Capacity, asked: Asked) -> bool:
    """Return whether a request fits the one capacity and not the other, in one domain or anywhere."""
    request, models, is_together, load = asked
    return any(
        isinstance(before.place(request, models=models, is_together=one, newcomer=load), tuple)
        and not isinstance(after.place(request, models=models, is_together=one, newcomer=load), tuple)
        for one in {False, is_together}
    )
