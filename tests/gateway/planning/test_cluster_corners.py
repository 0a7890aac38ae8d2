"""Corners of the plan over many nodes: several models, gangs that grow, what is not lent, and who leaves once."""

from __future__ import annotations

import math

import pytest

from jupyter_aliquot.gateway.planning.cluster.decisions import Kind, Plan
from jupyter_aliquot.gateway.planning.cluster.planner import plan
from jupyter_aliquot.gateway.planning.cluster.rules import PlanningError
from jupyter_aliquot.gateway.planning.cluster.snapshot import (
    ClusterNode,
    Member,
    Quota,
    Request,
    Running,
    Snapshot,
    Team,
)

FOUR = tuple(ClusterNode(f"n{at}", 1) for at in range(4))


def work(name: str, team: str, node: str, milli: int = 1000, *, can_leave: bool = True) -> Running:
    member = Member(node, ((0, milli),))
    return Running(name, team, (member,), is_preemptible=can_leave, can_move=False)


def starts(found: Plan) -> list[tuple[str, int]]:
    return sorted((one.request, one.member) for one in found.starts)


def test_a_team_without_a_quota_of_a_model_keeps_no_other_team_from_it() -> None:
    nodes = (ClusterNode("a", 1, "A"), ClusterNode("b", 1, "B"))
    teams = (
        Team("x", quotas={"A": Quota(1000), "B": Quota(0, 0)}),
        Team("y", quotas={"A": Quota(1000), "B": Quota(1000)}),
        Team("z", quotas={"A": Quota(1000)}),
    )
    pending = [Request("rx", "x", models=("A", "B")), Request("ry", "y", models=("A", "B"), submitted=1.0)]
    busy = (work("w", "z", "a", can_leave=False),)
    assert starts(plan(Snapshot(nodes, teams, busy), pending, 2.0)) == [("ry", 0)]


def test_a_gang_grows_only_once_its_least_number_can_start() -> None:
    held = (work("w", "", "n0"), work("v", "", "n1", 750, can_leave=False), work("u", "", "n2"))
    pending = [Request("gang", "", (250,) * 3, min_members=2, priority=5)]
    found = plan(Snapshot(FOUR[:3], (), held), pending, 0.0)
    assert found.starts == ()
    assert sorted(one.member for one in found.reservations) == [0, 1, 2]
    (out,) = found.swap_outs
    assert {one.after for one in found.reservations} == {(out.workload,)}


def test_a_gang_with_fewer_members_than_it_needs_never_starts_and_lets_others_start() -> None:
    pending = [
        Request("small", "", (1000,) * 2, min_members=5),
        Request("other", "", (1000,) * 2, min_members=2, submitted=1.0),
    ]
    found = plan(Snapshot(FOUR), pending, 2.0)
    assert starts(found) == [("other", 0), ("other", 1)]
    assert found.waiting["small"].kind is Kind.NEVER


def test_a_move_does_not_make_a_team_lend_more() -> None:
    teams = (
        Team("alice", quotas={"": Quota(0)}),
        Team("bob", quotas={"": Quota(1000, lending_limit=0)}),
        Team("carol", quotas={"": Quota(1000)}),
    )
    held = (Running("w", "carol", (Member("n", ((0, 1000),)),)),)
    found = plan(Snapshot((ClusterNode("n", 2),), teams, held), [Request("r", "alice")], 0.0)
    assert (found.starts, found.moves, found.swap_outs) == ((), (), ())
    assert found.waiting["r"].kind is Kind.NOT_LENT


def test_work_that_moves_in_a_plan_does_not_leave_in_it() -> None:
    nodes = (ClusterNode("n0", 2), ClusterNode("n1", 2))
    teams = (Team("aa", quotas={"": Quota(2000)}), Team("alice", quotas={"": Quota(2000)}))
    held = tuple(Running(name, "alice", (Member(node, ((0, 1000),)),)) for name, node in (("a", "n0"), ("b", "n1")))
    pending = [Request("pair", "aa", (2000,)), Request("x", "alice", (2000,), priority=5)]
    found = plan(Snapshot(nodes, teams, held), pending, 0.0)
    assert [one.workload for one in found.moves] == ["a"]
    assert "a" not in {one.workload for one in found.swap_outs}


def test_a_member_that_was_kept_gpus_for_is_reserved_once() -> None:
    held = (work("w0", "", "n0"), work("w1", "", "n1"))
    gang = Request("gang", "", (1000,) * 3, min_members=2, priority=5)
    found = plan(Snapshot(FOUR[:2], (), held), [gang, Request("next", "", submitted=1.0)], 700.0)
    assert len(found.swap_outs) == 2
    assert sorted(one.member for one in found.reservations if one.request == "gang") == [0, 1]


def test_free_gpus_of_all_models_of_a_quota_count_for_what_is_kept() -> None:
    nodes = (ClusterNode("a", 1, "A"), ClusterNode("b", 3, "B"))
    teams = (Team("alice", quotas={"": Quota(0)}), Team("bob", quotas={"": Quota(2000, lending_limit=0)}))
    found = plan(Snapshot(nodes, teams), [Request("r", "alice", models=("A",))], 0.0)
    assert starts(found) == [("r", 0)]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request("x", "", cpu=-1), "requests cpu -1. Request 0 or more"),
        (Request("x", "", memory=-1), "requests memory -1"),
        (Request("x", "", submitted=math.nan), "submitted of 'x' is nan"),
        (Request("x", "", estimate=math.nan), "estimate of 'x' is nan"),
        (Request("x", "", attained=math.nan), "attained of 'x' is nan"),
        (Request("x", "", eviction_delay=math.nan), "eviction_delay of 'x' is nan"),
    ],
)
def test_numbers_of_a_request_that_mean_nothing_are_refused(request_: Request, words: str) -> None:
    with pytest.raises(PlanningError, match=words):
        plan(Snapshot(FOUR), [request_], 0.0)


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (Running("w", "", (Member("n0", ((0, 1000),), cpu=-1),)), "holds -1 thousandths of a core"),
        (Running("w", "", (Member("n0", ((0, 1000),), memory=-1),)), "-1 MiB"),
        (Running("w", "", (Member("n0", ((0, 1000),)),), started=math.nan), "time started of 'w' is nan"),
        (Running("w", "", (Member("n0", ((0, 1000),)),), end=math.nan), "time end of 'w' is nan"),
    ],
)
def test_numbers_of_running_work_that_mean_nothing_are_refused(held: Running, words: str) -> None:
    with pytest.raises(PlanningError, match=words):
        plan(Snapshot(FOUR, (), (held,)), [], 0.0)
