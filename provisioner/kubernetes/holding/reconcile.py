"""The next steps for the holders of a pool: how many are wanted, which end, and which GPUs are to be emptied. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from jupyter_aliquot.provisioner.kubernetes.client import Object

from .holders import Pool


class HolderPhase(str, Enum):
    """A holder's place in its life. One that leaves was told to end, and has its grace period."""

    WAITING = "waiting"
    HOLDING = "holding"
    LEAVING = "leaving"
    OVER = "over"


@dataclass(frozen=True)
class Holder:
    """A holder.

    ``is_used``: a kernel, resident or swapped out, is on its GPU; None: not known. ``is_shut``: its GPU
    takes no kernel, because it is cordoned or lost, or because no agent tells it.
    """

    name: str
    uid: str
    phase: HolderPhase
    is_used: bool | None = None
    is_shut: bool = False


@dataclass(frozen=True)
class PoolState:
    """A pool at one moment.

    ``waiting_gpus`` are whole GPUs that queued kernels lack. ``spare_since`` has, by uid, the time since
    when a holder is not needed. ``is_current`` False: the gateway may not see all holders.
    """

    pool: Pool
    holders: tuple[Holder, ...]
    waiting_gpus: int
    now: float
    spare_since: Mapping[str, float] = field(default_factory=dict)
    is_current: bool = True


@dataclass(frozen=True)
class End:
    """The deletion of a holder. ``at_once``: without its grace period, for nothing is on its GPU."""

    holder: Holder
    at_once: bool = False


@dataclass(frozen=True)
class Steps:
    """The steps: so many holders to create, those to end, and the names of those whose GPUs are to be emptied."""

    create: int = 0
    end: tuple[End, ...] = ()
    empty: frozenset[str] = frozenset()


def reconcile(state: PoolState, idle_seconds: float) -> Steps:
    """Return the next steps. A holder that is not needed ends after *idle_seconds*."""
    leaving = [one for one in state.holders if one.phase is HolderPhase.LEAVING]
    empty = frozenset(one.name for one in leaving if one.is_used is not False)
    if not state.is_current:
        return Steps(empty=empty)
    live = [one for one in state.holders if one.phase in (HolderPhase.WAITING, HolderPhase.HOLDING)]
    over = [End(one, at_once=True) for one in state.holders if one.phase is HolderPhase.OVER]
    over += [End(one, at_once=True) for one in leaving if one.is_used is False]
    ending = [
        End(one)
        for one in spare_holders(state)
        if state.now - state.spare_since.get(one.uid, state.now) >= idle_seconds
    ]
    return Steps(max(0, _wanted(state) - len(live)), (*over, *ending), empty)


def spare_holders(state: PoolState) -> tuple[Holder, ...]:
    """Return the holders that are not needed now: those without a GPU first, then idle ones, shut before open."""
    live = [one for one in state.holders if one.phase in (HolderPhase.WAITING, HolderPhase.HOLDING)]
    waiting = [one for one in live if one.phase is HolderPhase.WAITING]
    idle = [one for one in live if one.phase is HolderPhase.HOLDING and one.is_used is False]
    idle.sort(key=lambda one: not one.is_shut)
    return tuple([*waiting, *idle][: max(0, len(live) - _wanted(state))])


def _wanted(state: PoolState) -> int:
    holding = [one for one in state.holders if one.phase is HolderPhase.HOLDING]
    used = sum(one.is_used is True for one in holding)
    # A kernel that waits gets no GPU that is shut: another one is held beside it.
    shut = sum(one.is_shut and one.is_used is not True for one in holding) if state.waiting_gpus else 0
    return min(state.pool.most, max(state.pool.guaranteed, used + shut + state.waiting_gpus))


def read_holders(pods: Iterable[Object], use: Mapping[str, bool]) -> tuple[Holder, ...]:
    """Return the holders of these pods, the oldest first. *use* tells, by name, whether a kernel is on the GPU."""

    def age(pod: Object) -> tuple[str, str]:
        return str(pod["metadata"].get("creationTimestamp") or ""), str(pod["metadata"]["name"])

    return tuple(_read(pod, use) for pod in sorted(pods, key=age))


def _read(pod: Object, use: Mapping[str, bool]) -> Holder:
    metadata, status = pod["metadata"], pod.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        phase = HolderPhase.OVER
    elif metadata.get("deletionTimestamp"):
        phase = HolderPhase.LEAVING
    else:
        phase = HolderPhase.HOLDING if status.get("phase") == "Running" else HolderPhase.WAITING
    return Holder(metadata["name"], metadata["uid"], phase, use.get(metadata["name"]))
