"""Plans with teams that lower the overcommit of the GPUs which their kernels use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gateway.scheduling.dry_run import Candidate, Outcome, QueueState, dry_run
from jupyter_aliquot.gateway.scheduling.ledger import Device, Holding, KernelRef, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.planner import Pending, plan
from jupyter_aliquot.gateway.scheduling.resize import held_of, quota_of
from jupyter_aliquot.gateway.scheduling.wait_reason import WaitCode
from jupyter_aliquot.gateway.status.report import StatusSnapshot, status_report
from jupyter_aliquot.gateway.teams.reading import read_quotas
from jupyter_aliquot.gateway.terminal.gateway_tables import lowered_by_teams, overcommit_lines
from jupyter_aliquot.gpu_hook.client.client import read_status
from jupyter_aliquot.gpu_hook.placement.overcommit import Oversubscription
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Request, WorkloadClass

GIB = 1 << 30
ADA = User("ada", "user")
TEAMS = """
teams:
  exam: {users: [eve], overcommit: 1}
  dense: {users: [dan], overcommit: 2}
  rest: {users: ["*"]}
"""
WHY = "a team's quota lets no more kernels share a GPU's memory"


def a_node(devices: int = 1, text: str = TEAMS, ratio: float = 4.0) -> LedgerSnapshot:
    nothing = (GpuShare(0), Bytes(0))
    found = [Device(f"GPU-{at}", at, "Stub", Bytes(8 * GIB), *nothing, by_production=nothing) for at in range(devices)]
    node = Node("node", "stub", tuple(found), Oversubscription(ratio, ratio), evicted=frozenset())
    return LedgerSnapshot(node=node, quotas=read_quotas(text, "aliquot.yaml"))


def request(hundredths: int, *, low: bool = False) -> Request:
    return Request(GpuShare(hundredths), None, WorkloadClass.OPPORTUNISTIC if low else WorkloadClass.PRODUCTION)


def runs(snapshot: LedgerSnapshot, kernel_id: str, owner: str, hundredths: int, *, low: bool = False) -> LedgerSnapshot:
    asked = request(hundredths, low=low)
    (admit,) = plan(snapshot, [Pending(kernel_id, owner, asked, 0.0)], 0.0).admissions
    grant = Grant(kernel_id, owner, asked, "node", tuple(map(quota_of, admit.parts)), "", ())
    grown = snapshot.with_parts(kernel_id, asked, admit.parts)
    return replace(grown, holdings={**snapshot.holdings, kernel_id: Holding(grant, KernelRef(kernel_id, owner), 0.0)})


def asks(kernel_id: str, owner: str, hundredths: int) -> Pending:
    return Pending(kernel_id, owner, request(hundredths), 1.0)


@pytest.mark.parametrize(("owner", "want"), [("eve", 1), ("dan", 2), ("ann", 4)])
def test_a_team_shares_a_device_as_far_as_its_quota_says(owner: str, want: int) -> None:
    planned = plan(a_node(), [asks(f"k{number}", owner, 100) for number in range(4)], 1.0)
    assert len(planned.admissions) == want
    if want < 4:
        assert planned.waiting[0].reason.sentence == f"Needs 1 GPU; none is free; {WHY}"


def test_another_team_does_not_join_a_device_beyond_what_those_there_allow() -> None:
    planned = plan(runs(a_node(devices=2), "k", "eve", 50), [asks(f"k{at}", "ann", 50) for at in range(9)], 1.0)
    on = [next(iter(admit.placement())) for admit in planned.admissions]
    assert (on.count("GPU-0"), on.count("GPU-1")) == (1, 8), "the exam's GPU is reserved once, the other four times"


def test_a_device_that_others_share_takes_no_kernel_of_a_team_that_does_not() -> None:
    shared = runs(runs(a_node(devices=2), "k1", "ann", 100), "k2", "ann", 100)
    shared = runs(shared, "k3", "ann", 50)
    planned = plan(shared, [asks("x", "eve", 50)], 1.0)
    assert planned.waiting[0].reason.code is WaitCode.GPU
    assert WHY in planned.waiting[0].reason.sentence


def test_a_device_is_shared_again_once_the_kernel_of_that_team_has_ended() -> None:
    held = runs(a_node(), "k", "eve", 100)
    assert plan(held, [asks("x", "ann", 100)], 1.0).admissions == ()
    planned = plan(held.without("k"), [asks(f"k{at}", "ann", 100) for at in range(4)], 1.0)
    assert len(planned.admissions) == 4


def test_status_tells_how_far_teams_let_a_device_be_shared() -> None:
    snapshot = runs(a_node(devices=3), "k", "dan", 100)  # of GPU-0
    snapshot = runs(snapshot, "x", "eve", 100)
    device = {"name": "Stub", "memory_bytes": 8 * GIB, "reserved_bytes": 0, "reserved_hundredths": 0, "used_bytes": 0}
    device |= {"charged_bytes": 0, "utilization_percent": 0, "temperature_celsius": None, "power_watts": None}
    devices = [{**device, "index": at, "uuid": f"GPU-{at}", "lost": False} for at in range(3)]
    told = {"node": "n", "driver": "softgpu", "enforcer": "hook", "connections": 1, "devices": devices, "kernels": []}
    agent = read_status({**told, "oversubscription": 4.0})
    [dense, exam, free] = status_report(StatusSnapshot("", node=NodeView(agent), ledger=snapshot), ADA)["devices"]
    assert (dense["overcommit"], exam["overcommit"], free["overcommit"]) == (2, 1, 4)
    assert exam["overcommit_reason"] == "a team whose kernels are there has overcommit 1 in the quota file"
    assert free["overcommit_reason"] is None
    shown = overcommit_lines(lowered_by_teams([dense, exam, free]))
    assert [line.split("; ")[0] for line in shown] == [
        "gpu0: overcommit: 2 times its memory",
        "gpu1: overcommit: 1 times its memory",
    ]


def test_a_kernel_that_leaves_takes_its_teams_limit_with_it() -> None:
    text = "teams:\n  exam: {users: [eve], overcommit: 1}\n  owed: {users: [bob], nominalQuota: 4}\n"
    held = runs(runs(a_node(text=text), "b", "bob", 50), "e", "eve", 50)
    planned = plan(held, [asks("x", "bob", 100)], 1.0)
    assert [one.kernel_id for one in planned.evictions] == ["e"], "its own half stays beside it"


def test_growth_stays_within_the_overcommit_of_the_team() -> None:
    held = runs(runs(a_node(), "a", "eve", 50), "b", "ann", 50)
    growth = replace(asks("a", "eve", 75), held=held_of(held.holdings["a"].grant))
    assert WHY in plan(held, [growth], 1.0).waiting[0].reason.sentence
    shrink = replace(asks("a", "eve", 25), held=held_of(held.holdings["a"].grant))
    assert [one.kernel_id for one in plan(held, [shrink], 1.0).admissions] == ["a"]


def test_a_kernel_that_replaces_one_of_its_team_gets_its_place() -> None:
    held = runs(a_node(), "before", "eve", 100)
    change = replace(asks("after", "eve", 100), replaces=frozenset({"before"}))
    assert plan(held, [change], 1.0).preempting == ("after",)


def test_a_dry_run_says_why_a_team_waits_where_others_would_start() -> None:
    state = QueueState(runs(a_node(), "k", "ann", 100))
    tried = dry_run(state, Candidate("eve", request(100)), 1.0)
    assert (tried.outcome, tried.message) == (
        Outcome.QUEUED,
        f"queued: needs 1 GPU; none is free; {WHY}",
    )
    assert dry_run(state, Candidate("ann", request(100)), 1.0).outcome is Outcome.STARTS


@pytest.mark.parametrize("low", [True, False])
def test_the_node_agents_own_ratio_is_never_exceeded(low: bool) -> None:
    planned = plan(
        a_node(ratio=1.0), [replace(asks("x", "dan", 100), request=request(100, low=low)), asks("y", "dan", 100)], 1.0
    )
    assert len(planned.admissions) == 1
    assert WHY not in planned.waiting[0].reason.sentence
