"""The input of a plan: nodes, teams, running work and requests of a cluster at one moment. Values.

GPU amounts are thousandths of a device (``milli``), times are seconds on the caller's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from jupyter_aliquot.gateway.planning.jobs import DEVICE
from jupyter_aliquot.gateway.planning.node import Demand, Parts

# The quota of all GPU models that no team names by itself.
ANY_MODEL = ""


class Locality(IntEnum):
    """The closeness of the devices of a request; a larger one is stricter.

    ``LINK``: all devices of a member in one NVLink or PCIe domain. ``NODE``: all members on one
    node. ``DOMAIN``: all members on nodes of one domain.
    """

    ANY = 0
    DOMAIN = 1
    NODE = 2
    LINK = 3


@dataclass(frozen=True)
class ClusterNode:
    """A node.

    Args:
        name: unique in the snapshot.
        devices: the number of its GPUs.
        model: their model.
        cpu: thousandths of a core. memory: MiB.
        domain: the network domain it is in, such as a rack.
        links: the NVLink or PCIe domain of each device; empty: all in one.
        is_cordoned: nothing new starts there.
    """

    name: str
    devices: int
    model: str = ANY_MODEL
    cpu: int = 0
    memory: int = 0
    domain: str = ""
    links: tuple[int, ...] = ()
    is_cordoned: bool = False


@dataclass(frozen=True)
class Quota:
    """The quota of a team for one GPU model, in thousandths of a device.

    Args:
        nominal: the GPUs it is owed; None: all that its parent has.
        borrowing_limit: the most that it may have beyond that; None: no limit.
        lending_limit: the most that others may borrow of it; None: all that it does not use.
    """

    nominal: int | None = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None

    @property
    def limit(self) -> int | None:
        """The most that the team may hold; None for no limit."""
        if self.nominal is None or self.borrowing_limit is None:
            return None
        return self.nominal + self.borrowing_limit


@dataclass(frozen=True)
class Team:
    """A team, or an organization above teams.

    Args:
        name: unique.
        parent: the team above; "" for none.
        quotas: GPU model to quota; a model that is missing counts for ``ANY_MODEL``.
        weight: of its share in what is over all quotas; 0: none of it.
        priority: teams of a higher one get their share of the surplus first.
        usage: its decayed use over quota, as a part of the cluster (see ``surplus.decayed``).
        reclaim_min_runtime: seconds that its work runs before other teams reclaim from it; None: as
            the parent.
        preempt_min_runtime: seconds that its work runs before its own team preempts it.
        order: its place among equals; smaller goes first.
    """

    name: str
    parent: str = ""
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    weight: float = 1.0
    priority: int = 0
    usage: float = 0.0
    reclaim_min_runtime: float | None = None
    preempt_min_runtime: float | None = None
    order: int = 0


@dataclass(frozen=True)
class Member:
    """One member of running work: the parts of one node that it holds. ``is_ending``: it was told to end."""

    node: str
    parts: Parts
    cpu: int = 0
    memory: int = 0
    is_ending: bool = False

    @property
    def milli(self) -> int:
        """Thousandths of a device that it holds."""
        return sum(milli for _, milli in self.parts)

    @property
    def demand(self) -> Demand:
        """The demand that it was placed for."""
        return Demand(self.milli, self.cpu, self.memory)


@dataclass(frozen=True)
class Running:
    """Work that holds GPUs: a kernel, or a gang of members.

    Args:
        name: unique; a request of the same name asks for more members.
        min_members: fewer than so many members are of no use.
        is_preemptible: others may take its GPUs. Work that is not uses the nominal quota alone.
        can_swap: it keeps its state when it is swapped out.
        can_move: a plan may move it to other devices.
        started, submitted: seconds.
        end: when it will have ended, if that is known.
    """

    name: str
    team: str
    members: tuple[Member, ...]
    min_members: int = 1
    priority: int = 0
    is_preemptible: bool = True
    can_swap: bool = True
    can_move: bool = True
    started: float = 0.0
    submitted: float = 0.0
    end: float | None = None


@dataclass(frozen=True)
class Request:
    """Work that waits for GPUs.

    Args:
        name: unique among the requests.
        sizes: milli of each member: (2500,) is 2.5 GPUs, (1000, 1000) a gang of two.
        min_members: it starts with so many or not at all, running members of that name included;
            None: with all.
        is_preemptible: it may borrow over quota, and be taken back. Else the nominal quota bounds it.
        estimate: seconds that it will run, if the user gives them.
        attained: GPU-seconds it got before, for orders by attained service.
        models: GPU models in order of preference; empty: any.
        locality: the closeness it starts with; it is relaxed while the request waits.
        eviction_delay: seconds that it waits before it takes GPUs from others.
    """

    name: str
    team: str
    sizes: tuple[int, ...] = (DEVICE,)
    min_members: int | None = None
    priority: int = 0
    is_preemptible: bool = True
    submitted: float = 0.0
    estimate: float | None = None
    attained: float = 0.0
    models: tuple[str, ...] = ()
    cpu: int = 0
    memory: int = 0
    locality: Locality = Locality.ANY
    eviction_delay: float = 0.0

    @property
    def milli(self) -> int:
        """Thousandths of a device that all members want."""
        return sum(self.sizes)


@dataclass(frozen=True)
class Snapshot:
    """A cluster at one moment. Without teams, each request is of one team without limits."""

    nodes: tuple[ClusterNode, ...]
    teams: tuple[Team, ...] = ()
    running: tuple[Running, ...] = ()
