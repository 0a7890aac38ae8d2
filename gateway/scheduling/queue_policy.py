"""The order of requests within their teams, by the policy of the quota file. Pure.

A notebook is not stopped for another, and has no length that is known before, unless its user
estimates one. So the service of a request is what its owner's kernels have had of GPUs since they were
granted: of two users the one who holds less for less time goes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol, TypeVar

from jupyter_aliquot.gateway.planning.gittins import GittinsIndex
from jupyter_aliquot.gateway.planning.priority import Order, urgency
from jupyter_aliquot.gateway.sizes.wish import Wish
from jupyter_aliquot.gpu_hook.placement.placement import WHOLE
from jupyter_aliquot.provisioner.resources import Grant

# A request that waited so long goes before all that did not, as it came: none waits for ever.
PATIENCE_SECONDS = 3600.0
_FIRST = (-1.0,)


@dataclass(frozen=True)
class PastUse:
    """The memory of a queue: what teams had over their quotas, and the service of work that ended."""

    usage: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    services: GittinsIndex | None = None


class _Held(Protocol):
    """A grant, and since when its kernel has it, on admission's clock."""

    @property
    def grant(self) -> Grant: ...

    @property
    def granted_at(self) -> float: ...


class _Waits(Protocol):
    """A request that waits."""

    @property
    def owner(self) -> str: ...

    @property
    def since(self) -> float: ...

    @property
    def wish(self) -> Wish: ...


_Request = TypeVar("_Request", bound=_Waits)


def attained(holdings: Iterable[_Held], now: float) -> dict[str, float]:
    """Return owner to the GPU-seconds that the owner's kernels have had; an evicted one counts on."""
    found: dict[str, float] = {}
    for one in holdings:
        owner, gpus = one.grant.owner, one.grant.request.gpus.hundredths / WHOLE
        found[owner] = found.get(owner, 0.0) + gpus * max(0.0, now - one.granted_at)
    return found


def by_policy(
    name: str, requests: Sequence[_Request], holdings: Iterable[_Held], past: PastUse, now: float
) -> list[_Request]:
    """Return the requests, which are in order of arrival, in the order that the policy *name* gives them."""
    if name not in (Order.LAS, Order.GITTINS, Order.SRTF):
        return list(requests)
    if all(now - one.since >= PATIENCE_SECONDS for one in requests):
        return list(requests)
    order, services = Order(name), attained(holdings, now)
    # Requests of one owner, or of one estimate, have one key.
    known: dict[tuple[str, float | None], tuple[float, ...]] = {}

    def key(one: _Request) -> tuple[float, ...]:
        if now - one.since >= PATIENCE_SECONDS:
            return _FIRST
        asked = (one.owner, one.wish.seconds)
        found = known.get(asked)
        if found is None:
            had = services.get(one.owner, 0.0)
            found = known[asked] = urgency(order, attained=had, estimate=one.wish.seconds, past=past.services)
        return found

    return sorted(requests, key=key)
