"""The use over quota of teams, as a moving average that outlives the gateway."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.planning.surplus import Usage
from jupyter_aliquot.gateway.scheduling.ledger import LedgerSnapshot
from jupyter_aliquot.gateway.scheduling.lending.team_quotas import TeamQuotas

from .kept_file import KeptFile


class TeamUsage:
    """The average. Admission alone notes; ``path`` None: a restart forgets it.

    Its times are of the time of day, so that the time without a gateway counts, too: kernels run on.
    """

    def __init__(self, path: Path | None, clock: Clock, log: logging.Logger) -> None:
        self._file = KeptFile(path, "team-usage", clock, log)
        self._clock = clock
        self._half_life: float | None = None
        self._usage = self._file.read(_usage, Usage({}, {}, clock.wall()))

    def now(self) -> Mapping[str, float]:
        """Return what teams had over quota, as parts of the GPUs; nothing without a half-life."""
        return {} if self._half_life is None else self._usage.at_time(self._clock.wall(), self._half_life)

    def note(self, ledger: LedgerSnapshot) -> None:
        """Note what teams hold from now on. Called after each cycle of admission."""
        half_life = None if ledger.quotas is None else ledger.quotas.usage_half_life
        if half_life is None or (found := TeamQuotas.of(ledger)) is None:
            self._half_life = None
            return
        now, tree = self._clock.wall(), found.tree
        held = {team: part for team in tree.quotas.teams if (part := tree.over_quota(team))}
        # A half-life that is new counts from now on.
        is_changed = held != self._usage.held or half_life != (self._half_life or half_life)
        if is_changed:
            self._usage = self._usage.then(held, now, self._half_life or half_life)
            self._file.write({"version": 1, **asdict(self._usage)})
        self._half_life = half_life

    async def flush(self) -> None:
        """Wait until all is on disk."""
        await self._file.flush()


def _usage(record: Mapping[str, Any]) -> Usage:
    return Usage(_parts(record["average"]), _parts(record["held"]), float(record["at"]))


def _parts(record: Mapping[str, Any]) -> dict[str, float]:
    found = {str(team): float(part) for team, part in record.items()}
    if not all(0 <= part < 1e6 for part in found.values()):
        raise ValueError(f"parts of the GPUs {found}")
    return found
