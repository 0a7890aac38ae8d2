"""A plan in a thread and the loop use what one ledger keeps at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType

import pytest

from jupyter_aliquot.gateway.scheduling.ledger import Device, Holding, KernelRef, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.lending.team_quotas import TeamQuotas
from jupyter_aliquot.gateway.scheduling.nodes.devices import CapacityDevice
from jupyter_aliquot.gateway.scheduling.nodes.kept import Kept, KeptTeams
from jupyter_aliquot.gateway.scheduling.nodes.ranking import Kinds
from jupyter_aliquot.gateway.scheduling.resize import quota_of
from jupyter_aliquot.gateway.teams.reading import read_quotas
from jupyter_aliquot.gateway.teams.values import Quotas
from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Request

WHOLE = (GpuShare(100), Bytes(8 << 30))
BEFORE, AFTER = (
    read_quotas(f"teams:\n  {name}: {{users: [ada], nominalQuota: 2}}\n", "aliquot.yaml")
    for name in ("before", "after")
)


class TwoThreads(Kept):
    """Another thread looks in the moment after this one has found its quotas, once."""

    other: Callable[[], object] | None = None

    def teams(self, quotas: Quotas, devices: Sequence[CapacityDevice], find: Callable[[], TeamQuotas]) -> KeptTeams:
        found = super().teams(quotas, devices, find)
        other, self.other = self.other, None
        if other is not None:
            other()
        return found


def held(kernel_id: str, device: str) -> Holding:
    part = quota_of(Part(device, 0, 100, 8 << 30))
    return Holding(
        Grant(kernel_id, "ada", Request(GpuShare(100)), "n0", (part,), "", ()), KernelRef(kernel_id, "ada"), 0.0
    )


@pytest.mark.parametrize("look", [TeamQuotas.of, TeamQuotas.unused])
def test_a_plan_counts_by_its_own_quota_file(look: Callable[[LedgerSnapshot], object]) -> None:
    kept = TwoThreads()
    device = Device("GPU-0", 0, "NVIDIA H200", Bytes(8 << 30), *WHOLE, by_production=WHOLE, kernels=1)
    holdings = MappingProxyType({"k": held("k", "GPU-0")})
    node = Node("n0", "stub", (device,), evicted=frozenset())
    before = LedgerSnapshot(others=(node,), holdings=holdings, quotas=BEFORE, kept=kept)
    after = replace(before, quotas=AFTER)  # the file is read again while a plan of ``before`` runs
    kept.other = lambda: look(after)
    planned = TeamQuotas.of(before)
    assert planned is not None
    assert planned.tree.used("before", "") == 100
    later = TeamQuotas.of(after)
    assert later is not None
    assert later.tree.used("after", "") == 100


def test_two_kinds_that_are_numbered_at_once_get_two_numbers() -> None:
    kinds = Kinds()

    class Facts:
        """The facts of a node, whose hash is a function of Python, in which another thread may run."""

        def __hash__(self) -> int:
            kinds.number(("another",))
            return 7

        def __eq__(self, other: object) -> bool:
            return self is other

    assert kinds.number((Facts(),)) != kinds.number(("another",))
