"""The plan over many nodes, by hand: starts, waiting with reasons, and work that leaves."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from jupyter_aliquot.gateway.planning.cluster.decisions import Cause, Kind, Move, Plan, Withdrawal
from jupyter_aliquot.gateway.planning.cluster.planner import plan
from jupyter_aliquot.gateway.planning.cluster.rules import PlanningError, Rules
from jupyter_aliquot.gateway.planning.cluster.snapshot import (
    ClusterNode,
    Locality,
    Member,
    Quota,
    Request,
    Running,
    Snapshot,
    Team,
)
from jupyter_aliquot.gateway.planning.node_choice import NodeOrder
from jupyter_aliquot.gateway.planning.priority import Order
from jupyter_aliquot.gateway.planning.surplus import decayed

ALICE = Team("alice", quotas={"": Quota(2000)})
BOB = Team("bob", quotas={"": Quota(2000)})


def a_snapshot(*devices: int, teams: tuple[Team, ...] = (), running: tuple[Running, ...] = ()) -> Snapshot:
    return Snapshot(tuple(ClusterNode(f"n{at}", count) for at, count in enumerate(devices)), teams, running)


def running(name: str, team: str, node: str, *parts: tuple[int, int], end: float | None = None) -> Running:
    return Running(name, team, (Member(node, parts),), end=end)


def started(found: Plan) -> dict[str, set[str]]:
    nodes: dict[str, set[str]] = {}
    for start in found.starts:
        nodes.setdefault(start.request, set()).add(start.node)
    return nodes


def test_two_and_a_half_gpus_take_two_devices_and_half_of_a_third() -> None:
    found = plan(a_snapshot(4), [Request("a", "", (2500,))], 0.0)
    (start,) = found.starts
    assert sorted(milli for _, milli in start.parts) == [500, 1000, 1000]
    assert not found.waiting


def test_a_small_request_passes_a_large_one_that_does_not_fit() -> None:
    found = plan(a_snapshot(4, 4), [Request("large", "", (9000,)), Request("small", "", (250,))], 0.0)
    assert started(found) == {"small": {"n0"}}
    assert found.waiting["large"].kind is Kind.NEVER


def test_a_request_that_waited_long_keeps_the_gpus_that_become_free() -> None:
    work = (running("w", "", "n0", (0, 1000)),)
    pending = [Request("large", "", (2000,), submitted=0.0), Request("small", "", (1000,), submitted=900.0)]
    early, late = (plan(a_snapshot(2, running=work), pending, now) for now in (100.0, 1000.0))
    assert started(early) == {"small": {"n0"}}
    assert started(late) == {}
    assert late.waiting["large"].kind is Kind.RESERVED
    assert late.waiting["small"].kind is Kind.AHEAD
    assert [(one.request, one.at) for one in late.reservations] == [("large", None)]


def test_backfill_takes_reserved_gpus_only_until_the_reservation_begins() -> None:
    work = (running("w", "", "n0", (0, 1000), end=100.0),)
    pending = [
        Request("large", "", (2000,), estimate=50.0),
        Request("long", "", (1000,), submitted=1.0, estimate=200.0),
        Request("short", "", (1000,), submitted=2.0, estimate=80.0),
    ]
    found = plan(a_snapshot(2, running=work), pending, 10.0)
    assert started(found) == {"short": {"n0"}}
    assert [(one.request, one.at) for one in found.reservations if one.request == "large"] == [("large", 100.0)]


def test_a_gang_starts_whole_or_not_at_all_and_on_the_fewest_nodes() -> None:
    found = plan(a_snapshot(2, 4, 4), [Request("gang", "", (1000,) * 4)], 0.0)
    assert started(found) == {"gang": {"n1"}}
    assert plan(a_snapshot(2), [Request("gang", "", (1000,) * 3)], 0.0).starts == ()


def test_an_elastic_gang_starts_with_its_least_number_and_grows() -> None:
    found = plan(a_snapshot(3), [Request("gang", "", (1000,) * 5, min_members=2)], 0.0)
    assert [one.member for one in found.starts] == [0, 1, 2]
    assert found.waiting["gang"].kind is Kind.CAPACITY


def test_locality_is_relaxed_after_it_waited() -> None:
    nodes = (ClusterNode("a", 1, domain="r0"), ClusterNode("b", 1, domain="r0"), ClusterNode("c", 1, domain="r1"))
    busy = (replace(running("w", "", "b", (0, 1000)), is_preemptible=False),)
    gang = Request("gang", "", (1000, 1000), locality=Locality.NODE)
    kinds = [plan(Snapshot(nodes, (), busy), [gang], now).waiting.get("gang") for now in (0.0, 130.0, 250.0)]
    assert [one and one.kind for one in kinds] == [Kind.LOCALITY, Kind.LOCALITY, None]


def test_a_pair_of_gpus_stays_in_one_nvlink_domain() -> None:
    node = ClusterNode("n", 4, links=(0, 0, 1, 1))
    work = (running("w", "", "n", (0, 1000)),)
    found = plan(Snapshot((node,), (), work), [Request("pair", "", (2000,), locality=Locality.LINK)], 0.0)
    assert [one.parts for one in found.starts] == [((2, 1000), (3, 1000))]


def test_a_model_is_a_quota_of_its_own_and_choices_have_an_order() -> None:
    nodes = (ClusterNode("a", 4, "A100"), ClusterNode("h", 4, "H200"))
    team = Team("t", quotas={"H200": Quota(1000, 0), "A100": Quota(4000)})
    pending = [Request(f"r{at}", "t", (1000,), models=("H200", "A100"), submitted=at) for at in range(2)]
    found = plan(Snapshot(nodes, (team,)), pending, 0.0)
    assert started(found) == {"r0": {"h"}, "r1": {"a"}}
    only = plan(Snapshot(nodes, (team,)), [Request("x", "t", (2000,), models=("H200",))], 0.0)
    assert only.waiting["x"].kind is Kind.TEAM_LIMIT
    assert only.waiting["x"].available == 1000


def test_what_is_over_quota_is_swapped_out_for_a_team_within_its_quota() -> None:
    work = tuple(running(f"w{at}", "alice", "n0", (at, 1000)) for at in range(4))
    found = plan(a_snapshot(4, teams=(ALICE, BOB), running=work), [Request("b", "bob", (2000,))], 0.0)
    assert sum(len(one.members) for one in found.swap_outs) == 2
    assert {one.cause for one in found.swap_outs} == {Cause.RECLAIM}
    assert found.evictions == ()
    assert found.waiting["b"].kind is Kind.LEAVING
    more = plan(a_snapshot(4, teams=(ALICE, BOB), running=work), [Request("b", "bob", (3000,))], 0.0)
    assert more.swap_outs == (), "three would be over its share"


def test_work_is_safe_from_reclaim_until_it_ran_its_time() -> None:
    alice = Team("alice", quotas={"": Quota(2000)}, reclaim_min_runtime=60.0)
    work = tuple(running(f"w{at}", "alice", "n0", (at, 1000)) for at in range(4))
    snapshot = a_snapshot(4, teams=(alice, BOB), running=work)
    pending = [Request("b", "bob", (1000,))]
    assert [len(plan(snapshot, pending, now).swap_outs) for now in (30.0, 61.0)] == [0, 1]


def test_work_that_cannot_swap_is_ended_only_where_the_rules_say_so() -> None:
    work = (Running("w", "alice", (Member("n0", ((0, 1000),)),), can_swap=False, can_move=False),)
    pending = [Request("x", "alice", (1000,), priority=5)]
    snapshot = a_snapshot(1, teams=(ALICE,), running=work)
    assert plan(snapshot, pending, 0.0).evictions == ()
    assert plan(snapshot, pending, 0.0, Rules(may_end=True)).evictions == (Withdrawal("w", (0,), "x", Cause.PREEMPT),)


def test_moves_make_room_that_is_free_only_in_total() -> None:
    work = (running("a", "", "n0", (0, 1000)), running("b", "", "n1", (0, 1000)))
    found = plan(a_snapshot(2, 2, running=work), [Request("pair", "", (2000,))], 0.0)
    assert found.moves == (Move("a", 0, "n0", "n1", ((1, 1000),), "pair"),)
    assert [(one.request, one.node, one.after) for one in found.reservations] == [("pair", "n0", ("a",))]


def test_work_that_is_not_preemptible_stays_within_nominal_quota() -> None:
    pending = [Request(f"r{at}", "alice", (1000,), is_preemptible=False, submitted=at) for at in range(3)]
    found = plan(a_snapshot(4, teams=(ALICE, BOB)), pending, 0.0)
    assert set(started(found)) == {"r0", "r1"}
    assert found.waiting["r2"].kind is Kind.NOMINAL_QUOTA


def test_a_team_keeps_what_it_does_not_lend() -> None:
    bob = Team("bob", quotas={"": Quota(2000, lending_limit=500)})
    pending = [Request(f"r{at}", "alice", (500,), submitted=at) for at in range(8)]
    found = plan(a_snapshot(4, teams=(ALICE, bob)), pending, 0.0)
    assert sum(500 for _ in found.starts) == 2500
    assert found.waiting["r7"].kind is Kind.NOT_LENT


def test_orders_rank_by_service_estimate_and_arrival() -> None:
    pending = [
        Request("old", "", (1000,), submitted=0.0, attained=9000.0, estimate=500.0),
        Request("new", "", (1000,), submitted=1.0, attained=0.0, estimate=900.0),
        Request("short", "", (1000,), submitted=2.0, attained=9500.0, estimate=10.0),
    ]
    for order, want in ((Order.FIFO, "old"), (Order.LAS, "new"), (Order.SRTF, "short")):
        assert set(started(plan(a_snapshot(1), pending, 3.0, Rules(order=order)))) == {want}


def test_a_cordoned_node_gets_nothing_new() -> None:
    nodes = (ClusterNode("a", 2, is_cordoned=True), ClusterNode("b", 1))
    found = plan(Snapshot(nodes), [Request("x", "", (1000,)), Request("y", "", (1000,), submitted=1.0)], 0.0)
    assert started(found) == {"x": {"b"}}


@pytest.mark.parametrize("order", list(NodeOrder))
def test_each_choice_of_nodes_places_all_that_fits(order: NodeOrder) -> None:
    pending = [Request(f"r{at}", "", (500,), submitted=at) for at in range(8)]
    assert len(plan(a_snapshot(2, 2), pending, 0.0, Rules(node_order=order)).starts) == 8


def test_usage_halves_after_a_half_life() -> None:
    assert decayed(0.8, 20.0, 10.0) == pytest.approx(0.2)
    assert decayed(0.8, -1.0, 10.0) == 0.8, "a clock that went back"
    assert decayed(0.0, 10.0, 10.0, held=0.5) == pytest.approx(0.25)
    assert decayed(0.5, 12345.0, 10.0, held=0.5) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("teams", "words"),
    [
        ((Team("a", "b"), Team("b", "a")), "cycle: a → b → a"),
        ((Team("a", "b"),), "parent 'b' of the team 'a' is no team"),
        ((Team("a"), Team("a")), "occurs twice"),
        ((Team("a", quotas={"H200": Quota(-1)}),), "nominal of the team 'a' for H200 is -1"),
        ((Team("a", quotas={"": Quota(1, -5)}),), "borrowing_limit"),
        ((Team("a", weight=math.nan),), "weight"),
    ],
)
def test_teams_that_are_no_tree_are_refused(teams: tuple[Team, ...], words: str) -> None:
    with pytest.raises(PlanningError, match=words):
        plan(a_snapshot(1, teams=teams), [], 0.0)


def test_contradictions_are_refused_with_what_to_do() -> None:
    held = running("w", "gone", "n0", (0, 1000))
    with pytest.raises(PlanningError, match="Keep a team, with no quota"):
        plan(a_snapshot(1, teams=(ALICE,), running=(held,)), [], 0.0)
    with pytest.raises(PlanningError, match="no node of the snapshot"):
        plan(a_snapshot(1, running=(running("w", "", "n9", (0, 1000)),)), [], 0.0)
    with pytest.raises(PlanningError, match="devices 0 to 0"):
        plan(a_snapshot(1, running=(running("w", "", "n0", (3, 1000)),)), [], 0.0)
    with pytest.raises(PlanningError, match="The time is nan"):
        plan(a_snapshot(1), [], math.nan)
    with pytest.raises(PlanningError, match="Request 1 or more"):
        plan(a_snapshot(1), [Request("x", "", (0,))], 0.0)


def test_a_clock_that_went_back_relaxes_nothing_and_breaks_nothing() -> None:
    gang = Request("gang", "", (1000, 1000), submitted=1e6, locality=Locality.NODE)
    found = plan(a_snapshot(1, 1), [gang], 0.0)
    assert found.waiting["gang"].kind is Kind.LOCALITY
