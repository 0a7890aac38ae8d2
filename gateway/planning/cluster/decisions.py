"""The output of a plan: starts, reservations, swap-outs, evictions, moves, and why work waits. Values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from jupyter_aliquot.gateway.planning.node import Parts


class Start(NamedTuple):
    """Start a member of a request on these parts of a node. ``member`` is its index in ``sizes``."""

    request: str
    member: int
    node: str
    parts: Parts


class Reservation(NamedTuple):
    """Keep these parts for a member, which starts when the work *after* has left, or at a time.

    ``at`` is None while the end of that work is not known.
    """

    request: str
    member: int
    node: str
    parts: Parts
    after: tuple[str, ...] = ()
    at: float | None = None


class Cause(str, Enum):
    """The reason for which running work has to leave."""

    RECLAIM = "reclaim"  # another team wants what is over quota
    PREEMPT = "preempt"  # work of higher priority of the same team


class Withdrawal(NamedTuple):
    """Take the GPUs of these members (indices) of running work, for a request."""

    workload: str
    members: tuple[int, ...]
    request: str
    cause: Cause


class Move(NamedTuple):
    """Move a member of running work to these parts of a node, so that a request fits."""

    workload: str
    member: int
    source: str
    node: str
    parts: Parts
    request: str


class Kind(str, Enum):
    """The reason for which a request waits."""

    CAPACITY = "capacity"  # fewer GPUs are free than it wants
    FRAGMENTED = "fragmented"  # enough are free, but not together
    LOCALITY = "locality"  # enough are free, but not as close together as it wants
    TEAM_LIMIT = "team-limit"  # the team has as much as it may borrow
    NOMINAL_QUOTA = "nominal-quota"  # work that is not preemptible has all of the nominal quota
    NOT_LENT = "not-lent"  # what is free belongs to teams that do not lend it
    LEAVING = "leaving"  # its GPUs are reserved: work that has to leave holds them
    RESERVED = "reserved"  # its GPUs are reserved from a later time on
    AHEAD = "ahead"  # what is free is kept for a request that waited longer
    NEVER = "never"  # the cluster is too small, or has none of the models; or it has too few members


class WaitReason(NamedTuple):
    """The reason as data.

    ``milli`` is what the next step of the request wants, ``available`` what there is of the thing
    that limits it; ``team`` is the team whose quota limits it.
    """

    kind: Kind
    milli: int
    available: int = 0
    team: str = ""


@dataclass(frozen=True)
class Plan:
    """The decisions about all requests of one moment.

    A request is in ``waiting`` unless it starts with all its members: then it is in ``starts``
    alone. ``shares`` is the fair share by (model, team).
    """

    starts: tuple[Start, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    swap_outs: tuple[Withdrawal, ...] = ()
    evictions: tuple[Withdrawal, ...] = ()
    moves: tuple[Move, ...] = ()
    waiting: Mapping[str, WaitReason] = field(default_factory=dict)
    shares: Mapping[tuple[str, str], int] = field(default_factory=dict)
