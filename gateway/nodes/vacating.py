"""GPUs that the cluster takes back are emptied: kernels and their contexts leave them before their holders end.

Admission evicts the kernels. This module has the agents take the contexts away, too, which the next
owner of the card would pay for, and tells which kernels cannot leave in time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.scheduling.ledger import Holding
from jupyter_aliquot.provisioner.errors import AliquotError
from jupyter_aliquot.provisioner.kubernetes.client import Object

# So long before its holder's end a kernel that is still on the GPU is given up: its owner is warned meanwhile.
LAST_SECONDS = 45.0
_LATE = "it did not leave the GPU in time"
_CLAIMED = "its pod has the GPU's ResourceClaim"


class VacatingAgent(Protocol):
    """The part of a node's agent that takes contexts from devices."""

    async def vacate(self, devices: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """Return by device the kernels there, each with why its contexts stay. Raises AliquotError."""
        ...


@dataclass(frozen=True)
class GoingGpu:
    """A GPU whose holder was told to end. *ends_at* is when its grace period is over, on the monotonic clock."""

    uuid: str
    node: str
    ends_at: float


class HolderEnds:
    """The ends of the grace periods of holders that go, on the monotonic clock.

    The server's clock may be another one than this machine's: it counts for those holders alone that
    had been told to end before this gateway saw them. Others went after the last look whose answer was current.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._staying: set[str] = set()  # holders, by uid
        self._ends: dict[str, tuple[str, float]] = {}  # when the server ends them, and when that is here
        self._current_at = clock.now()

    def look(self, pods: Iterable[Object], *, is_current: bool = True) -> Mapping[str, float]:
        """Return the end of each of these holders that goes, by its uid. Without *is_current* they may be old."""
        now = self._clock.now()
        found = {str(one["metadata"]["uid"]): one["metadata"] for one in pods}
        for uid, told in found.items():
            date = str(told.get("deletionTimestamp") or "")
            if date and self._ends.get(uid, ("", 0.0))[0] != date:
                grace = float(told.get("deletionGracePeriodSeconds") or 0)
                left = grace - (now - self._current_at) if uid in self._staying else self._left(date, grace)
                self._ends[uid] = date, now + max(0.0, left)
        if is_current:
            self._current_at = now
        self._staying = (self._staying & found.keys()) | {uid for uid in found if uid not in self._ends}
        self._ends = {uid: told for uid, told in self._ends.items() if uid in found}
        return {uid: ends_at for uid, (_, ends_at) in self._ends.items()}

    def _left(self, date: str, grace: float) -> float:
        moment = datetime.fromisoformat(date.replace("Z", "+00:00")).timestamp()
        return min(grace, max(0.0, moment - self._clock.wall()))


class Vacating:
    """The GPUs that go. *agent_of* returns a node's agent, or raises KeyError."""

    def __init__(self, agent_of: Callable[[str], VacatingAgent], clock: Clock, log: logging.Logger) -> None:
        self._agent_of = agent_of
        self._clock = clock
        self._log = log
        self._going: Mapping[str, GoingGpu] = {}
        # Nodes whose agents may have been told that a GPU of theirs goes, and not yet that none does.
        self._told: frozenset[str] = frozenset()
        self._silent: set[str] = set()  # nodes whose agents did not answer last
        # The kernels on devices that go, as their agents told last, each with why it stays.
        self._left: dict[str, Mapping[str, str]] = {}

    async def look(self, going: Iterable[GoingGpu]) -> None:
        """Tell the agents which of their GPUs go, and learn what is on them."""
        self._going = {one.uuid: one for one in going}
        self._left = {uuid: left for uuid, left in self._left.items() if uuid in self._going}
        nodes = frozenset(one.node for one in self._going.values())
        self._told |= nodes  # an answer may be lost
        asked = sorted(self._told)
        knows = await asyncio.gather(*map(self._tell, asked))
        self._told -= {node for node, it_knows in zip(asked, knows, strict=True) if it_knows and node not in nodes}

    async def _tell(self, node: str) -> bool:
        """Tell a node's agent, and return whether it knows now. A node that the gateway has forgotten has none."""
        devices = [one.uuid for one in self._going.values() if one.node == node]
        try:
            self._left.update(await self._agent_of(node).vacate(devices))
        except KeyError:
            return True
        except AliquotError as error:
            if node not in self._silent:
                self._log.info("node=%s vacate=later reason=%s", node, error)
            self._silent.add(node)
            return False
        self._silent.discard(node)
        return True

    def is_empty(self, uuid: str) -> bool:
        """Return whether the agent told that nothing of a kernel is on a device that goes."""
        return uuid in self._left and not self._left[uuid]

    def stuck(self, holdings: Iterable[Holding], *, keeps_pods: bool = True) -> dict[str, str]:
        """Return the kernels that cannot leave a GPU that goes, or do not in time, each with why.

        Without *keeps_pods* a kernel's pod has the GPU's claim for as long as it lives: it is stuck
        once the grace period nears its end.
        """
        now, found = self._clock.now(), dict[str, str]()
        late = {uuid for uuid, one in self._going.items() if now >= one.ends_at - LAST_SECONDS}
        for uuid, left in self._left.items():
            found |= {kernel_id: why or _LATE for kernel_id, why in left.items() if why or uuid in late}
        for holding in holdings:
            devices = {quota.uuid for quota in holding.grant.quotas}
            if holding.stays_because and devices & self._going.keys():
                found[holding.grant.kernel_id] = holding.stays_because
            elif not keeps_pods and devices & late:
                found[holding.grant.kernel_id] = _CLAIMED
        return found
