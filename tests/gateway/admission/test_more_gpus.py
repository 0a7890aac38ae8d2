"""How many more GPUs let waiting kernels start: without quotas, and within those of teams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import pytest

from jupyter_aliquot.gateway.scheduling.foreseeing.more_gpus import waiting_gpus
from jupyter_aliquot.gateway.scheduling.ledger import Device, Holding, KernelRef, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.planner import Pending, plan
from jupyter_aliquot.gateway.scheduling.queue import QueueEntry
from jupyter_aliquot.gateway.scheduling.resize import quota_of
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gateway.scheduling.wait_reason import WaitCode, WaitReason, apart, evicting
from jupyter_aliquot.gateway.teams.reading import read_quotas
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Request

EARLY, NOW = -1e9, 0.0
BELOW_ONE = (
    "teams:\n  p: {nominalQuota: 0, borrowingLimit: 0}\n  a: {parent: p, users: [ann], nominalQuota: 1}\n"
    "  b: {parent: p, users: [bob], nominalQuota: 1}\n"
)
APART = "teams:\n  a: {users: [ann], nominalQuota: 1}\n  b: {users: [bob], nominalQuota: 1}\n"
TO_TWO = "teams:\n  a: {users: [ann], nominalQuota: 1, borrowingLimit: 1}\n"
OF_MODELS = "teams:\n  a: {users: [ann], nominalQuota: {H200: 0, A100: 1}, borrowingLimit: {H200: 0, A100: 1}}\n"


def a_queue(*hundredths: int, owner: str = "ada", replaces: str = "") -> tuple[Pending, ...]:
    gone = frozenset({replaces} if replaces else ())
    return tuple(
        Pending(f"x{n}", owner, Request(GpuShare(one)), EARLY, replaces=gone) for n, one in enumerate(hundredths)
    )


def an_admission(
    text: str, names: Mapping[str, str], running: Mapping[str, str], pending: tuple[Pending, ...]
) -> AdmissionSnapshot:
    """Return admission after a plan, with devices of these names, and whose kernel has which of them whole."""
    nothing = (GpuShare(0), Bytes(0))
    devices = tuple(
        Device(uuid, at, name, Bytes(8 << 30), *nothing, by_production=nothing)
        for at, (uuid, name) in enumerate(names.items())
    )
    ledger = LedgerSnapshot(
        node=Node("node", "stub", devices, evicted=frozenset()), quotas=read_quotas(text, "teams.yaml")
    )
    request = Request(GpuShare(100))
    for uuid, owner in running.items():
        rest = replace(ledger.capacity(), closed=frozenset(names) - {uuid})
        parts = rest.place(request)
        assert isinstance(parts, tuple)
        kernel_id = f"k-{owner}"
        grant = Grant(kernel_id, owner, request, "node", tuple(map(quota_of, parts)), "", ())
        holding = Holding(grant, KernelRef(kernel_id, owner), 0.0)
        before = ledger.holdings
        ledger = replace(ledger.with_parts(kernel_id, request, parts), holdings={**before, kernel_id: holding})
    waits = plan(ledger, pending, NOW).waiting
    asked = {one.kernel_id: one for one in pending}
    queue = tuple(
        QueueEntry(one.kernel_id, "", asked[one.kernel_id].request, "", one.position, len(waits), one.reason, EARLY)
        for one in waits
    )
    return AdmissionSnapshot("ok", "", queue, ledger=ledger, pending=pending)


def gpus(count: int, name: str = "Stub") -> dict[str, str]:
    return {f"GPU-{at}": name for at in range(count)}


def test_fractions_share_a_gpu_and_kernels_that_just_came_are_not_counted() -> None:
    def of(*hundredths: int) -> AdmissionSnapshot:
        return AdmissionSnapshot("ok", "", (), pending=a_queue(*hundredths))

    assert waiting_gpus(of(25, 50, 50, 100, 250), NOW, 9) == 1 + 3 + 2
    assert waiting_gpus(of(25, 50, 50, 100, 250), NOW, 4) == 4
    assert waiting_gpus(of(), NOW, 9) == 0
    assert waiting_gpus(of(100), EARLY + 1, 9) == 0


@pytest.mark.parametrize("why", [evicting, partial(apart, seconds=60)])
def test_kernels_that_no_further_gpu_lets_start_are_not_counted(why: Callable[[Request], WaitReason]) -> None:
    pending = a_queue(100, 200, 900)
    entry = QueueEntry("x0", "ada", pending[0].request, "", 1, 3, why(pending[0].request), EARLY)
    assert waiting_gpus(AdmissionSnapshot("ok", "", (entry,), pending=pending), NOW, 8) == 2


def test_a_gpu_beside_a_limit_that_siblings_have_used_up_helps_no_kernel() -> None:
    """The code is that of full devices while they are full; with a further one the quota lacks."""
    full = {"GPU-0": "ann", "GPU-1": "bob"}
    for count, code in ((2, WaitCode.GPU), (3, WaitCode.TEAM_QUOTA)):
        seen = an_admission(BELOW_ONE, gpus(count), full, a_queue(100, owner="ann"))
        assert [one.why.code for one in seen.queue] == [code]
        assert waiting_gpus(seen, NOW, 9) == 0


def test_a_gpu_is_counted_where_the_team_may_take_it() -> None:
    full = {"GPU-0": "ann", "GPU-1": "bob"}
    asked = a_queue(100, owner="ann")
    for text in (APART, APART.replace("bob], nominalQuota: 1", "bob], nominalQuota: 0")):
        assert waiting_gpus(an_admission(text, gpus(2), full, asked), NOW, 9) == 1
    assert [one.kernel_id for one in plan(an_admission(APART, gpus(3), full, asked).ledger, asked, NOW).admissions] == [
        "x0"
    ]
    alone = an_admission(APART, gpus(1), {"GPU-0": "ann"}, asked)
    assert waiting_gpus(alone, NOW, 9) == 1, "no team is owed the further GPU"


def test_gpus_are_counted_up_to_a_teams_limit() -> None:
    seen = an_admission(TO_TWO, gpus(1), {"GPU-0": "ann"}, a_queue(50, 100, 50, 25, owner="ann"))
    assert waiting_gpus(seen, NOW, 9) == 1, "two halves"
    nothing = an_admission(TO_TWO, {}, {}, a_queue(100, 100, 100, owner="ann"))
    assert waiting_gpus(nothing, NOW, 9) == 2, "no device is known yet"


def test_the_quota_of_a_kernel_that_it_replaces_is_its_own() -> None:
    fixed = TO_TWO.replace("borrowingLimit: 1", "borrowingLimit: 0")
    for replaces, want in (("", 0), ("k-ann", 1)):
        seen = an_admission(fixed, gpus(1), {"GPU-0": "ann"}, ())
        seen = replace(seen, pending=a_queue(100, owner="ann", replaces=replaces))
        assert waiting_gpus(seen, NOW, 9) == want


def test_a_gpu_of_a_model_that_the_team_may_not_take_helps_no_kernel() -> None:
    names = {"GPU-0": "NVIDIA A100-SXM4", "GPU-1": "NVIDIA H200"}
    seen = an_admission(OF_MODELS, names, {"GPU-0": "ann", "GPU-1": "bob"}, a_queue(100, owner="ann"))
    assert waiting_gpus(seen, NOW, 9, ("NVIDIA A100-SXM4",)) == 1
    assert waiting_gpus(seen, NOW, 9, ("NVIDIA H200",)) == 0
