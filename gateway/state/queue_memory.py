"""The queue's memory: use over quota of teams, and work that ended. It outlives the gateway."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.planning.gittins import GittinsIndex
from jupyter_aliquot.gateway.planning.surplus import Usage
from jupyter_aliquot.gateway.scheduling.ledger import LedgerSnapshot
from jupyter_aliquot.gateway.scheduling.lending.team_quotas import TeamQuotas
from jupyter_aliquot.gateway.scheduling.queue_policy import PastUse, attained

from .kept_file import KeptFile

# Kernels that are remembered; older ones are forgotten.
MOST_ENDED = 1000
# A kernel that had its GPU for less did not start: it tells nothing of those that run.
LEAST_SECONDS = 5.0


@dataclass(frozen=True)
class Ended:
    """A kernel that ended: for how long it had its GPU, and the GPU-seconds that its owner's kernels had then."""

    seconds: float
    service: float


class QueueMemory:
    """The memory. Admission alone notes; ``path`` None: a restart forgets it.

    Use over quota is counted by the time of day, so that the time without a gateway counts, too:
    kernels run on.
    """

    def __init__(self, path: Path | None, clock: Clock, log: logging.Logger) -> None:
        self._file = KeptFile(path, "queue-memory", clock, log)
        self._clock = clock
        self._half_life: float | None = None
        nothing: tuple[Usage, list[Ended]] = (Usage({}, {}, clock.wall()), [])
        self._usage, ended = self._file.read(_read, nothing)
        self._ended = deque(ended, MOST_ENDED)
        self._services = _index(self._ended)
        self._ledger = LedgerSnapshot()

    def now(self) -> PastUse:
        """Return the memory for a plan. Without a half-life it has no use over quota."""
        if self._half_life is None:
            return PastUse(services=self._services)
        return PastUse(self._usage.at_time(self._clock.wall(), self._half_life), self._services)

    def tenures(self) -> list[float]:
        """Return for how long kernels had their GPU that have ended, seconds."""
        return [one.seconds for one in self._ended]

    def note(self, ledger: LedgerSnapshot) -> None:
        """Note the kernels that ended, and what teams hold from now on. Called after each cycle of admission."""
        has_ended, is_held = self._note_ended(ledger), self._note_held(ledger)
        if has_ended or is_held:
            ended = [(one.seconds, one.service) for one in self._ended]
            self._file.write({"version": 1, **asdict(self._usage), "ended": ended})

    async def flush(self) -> None:
        """Wait until all is on disk."""
        await self._file.flush()

    def _note_ended(self, ledger: LedgerSnapshot) -> bool:
        before, self._ledger = self._ledger, ledger
        if before.holdings is ledger.holdings:
            return False
        gone = before.holdings.keys() - ledger.holdings.keys()
        now = self._clock.now()
        ran = [held for one in gone if now - (held := before.holdings[one]).granted_at >= LEAST_SECONDS]
        if ran:
            owners = {held.grant.owner for held in ran}
            services = attained((held for held in before.holdings.values() if held.grant.owner in owners), now)
            self._ended += [Ended(now - one.granted_at, services[one.grant.owner]) for one in ran]
            self._services = _index(self._ended)
        return bool(ran)

    def _note_held(self, ledger: LedgerSnapshot) -> bool:
        half_life = None if ledger.quotas is None else ledger.quotas.usage_half_life
        found = None if half_life is None else TeamQuotas.of(ledger)
        before, self._half_life = self._half_life, half_life
        if half_life is None or found is None:
            return False
        tree = found.tree
        held = {team: part for team in tree.quotas.teams if (part := tree.over_quota(team))}
        # A half-life that is new counts from now on.
        if held == self._usage.held and half_life == (before or half_life):
            return False
        self._usage = self._usage.then(held, self._clock.wall(), before or half_life)
        return True


def _index(ended: deque[Ended]) -> GittinsIndex | None:
    return GittinsIndex(one.service for one in ended) if ended else None


def _read(record: Mapping[str, Any]) -> tuple[Usage, list[Ended]]:
    ended = [Ended(_amount(seconds), _amount(service)) for seconds, service in record["ended"]]
    return Usage(_parts(record["average"]), _parts(record["held"]), _amount(record["at"])), ended


def _parts(record: Mapping[str, Any]) -> dict[str, float]:
    return {str(team): _amount(part) for team, part in record.items()}


def _amount(told: Any) -> float:
    found = float(told)
    if not (math.isfinite(found) and found >= 0):
        raise ValueError(f"{told!r} is no amount")
    return found
