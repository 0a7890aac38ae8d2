"""How many more GPUs would let waiting kernels start. Pure.

A further GPU helps a request that lacks room. It helps one that its team's quota does not allow only where the quota
would allow it with that GPU: the sentence that people read about it says nothing of that.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from jupyter_aliquot.gateway.scheduling.ledger import LedgerSnapshot
from jupyter_aliquot.gateway.scheduling.lending.team_quotas import TeamQuotas
from jupyter_aliquot.gateway.scheduling.planner import Pending
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gateway.scheduling.wait_reason import WaitCode
from jupyter_aliquot.gateway.teams.values import ANY_MODEL
from jupyter_aliquot.gpu_hook.placement.placement import WHOLE

_NO_GPU_HELPS = (WaitCode.REPLACED_KERNEL, WaitCode.EVICTING, WaitCode.LOCALITY)
# A kernel that waits this long does not wait for the next look of the planner alone.
_PATIENCE_SECONDS = 2.0


def waiting_gpus(snapshot: AdmissionSnapshot, now: float, most: int, names: Collection[str] = ()) -> int:
    """Return how many more whole GPUs would let all waiting kernels start, those that return apart.

    It counts to *most*. Kernels are left out that need more than that, or that wait for anything but a GPU. *names*
    are those that such a GPU may have; empty: any.
    """
    helpless = {one.kernel_id for one in snapshot.queue if one.why.code in _NO_GPU_HELPS}
    needed = _Needed(snapshot.ledger, names)
    for one in snapshot.pending:
        if (
            one.devices is None
            and now - one.since >= _PATIENCE_SECONDS
            and one.kernel_id not in helpless
            and one.request.gpus.hundredths <= most * WHOLE
        ):
            needed.add(one)
        if needed.gpus >= most:
            return most
    return needed.gpus


class _Needed:
    """The GPUs that requests need more, of those that their teams' quotas would then allow."""

    def __init__(self, ledger: LedgerSnapshot, names: Collection[str]) -> None:
        self._ledger = ledger
        # With what is set aside for the requests that count.
        self._quotas = quotas = TeamQuotas.of(ledger)
        self._models = () if quotas is None else {quotas.quotas.model_of(one) for one in names}
        # By model: whole GPUs, and hundredths that share GPUs.
        self._found: dict[str, tuple[int, int]] = {}
        # Teams and sizes that no further GPU helps.
        self._helpless: set[tuple[str, str]] = set()

    @property
    def gpus(self) -> int:
        return sum(_gpus(*found) for found in self._found.values())

    def add(self, entry: Pending) -> None:
        """Count a request if its team's quota allows it with the GPUs that it needs more."""
        quotas = self._quotas
        if quotas is None:
            self._found[ANY_MODEL] = self._with(entry, ANY_MODEL)
            return
        team = quotas.team_of(entry.owner, entry.teams)
        if (team, entry.alike) in self._helpless:
            return
        model = self._allowed(entry, quotas)
        if model is None:
            if not entry.replaces:
                self._helpless.add((team, entry.alike))
            return
        self._found[model] = self._with(entry, model)
        self._quotas = quotas.drafted()
        self._quotas.hold_back(team, [model], entry.claimant.more)

    def _allowed(self, entry: Pending, quotas: TeamQuotas) -> str | None:
        """Return a model of which its team may take so much, were there the GPUs that it needs more."""
        holdings = self._ledger.holdings
        quotas = quotas.without(holdings[one] for one in entry.replaces if one in holdings)
        models: Sequence[str] = quotas.models_for(entry.claimant) or quotas.quotas.models
        for model in (one for one in models if not self._models or one in self._models):
            grown = quotas.with_gpus(model, WHOLE * _gpus(*self._with(entry, model)))
            if grown.available(entry.claimant, model) >= entry.claimant.more:
                return model
        return None

    def _with(self, entry: Pending, model: str) -> tuple[int, int]:
        whole, shared = self._found.get(model, (0, 0))
        hundredths = entry.request.gpus.hundredths
        if hundredths < WHOLE:
            return whole, shared + hundredths
        return whole + math.ceil(hundredths / WHOLE), shared


def _gpus(whole: int, shared: int) -> int:
    return whole + math.ceil(shared / WHOLE)
