"""Properties of every plan: guarantees, capacity, no idle GPU that fits, no starvation, determinism."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings, strategies as st

from jupyter_aliquot.gateway.planning.cluster.decisions import Kind, Plan
from jupyter_aliquot.gateway.planning.cluster.planner import plan
from jupyter_aliquot.gateway.planning.cluster.rules import Rules, Step, TeamOrder
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
from jupyter_aliquot.gateway.planning.cluster.team_tree import TeamTree, fair_shares
from jupyter_aliquot.gateway.planning.jobs import DEVICE
from jupyter_aliquot.gateway.planning.node_choice import NodeOrder

SIZES = (250, 500, 1000, 1500, 2000, 4000)
NAMES = ("a", "b", "c")
# Each plan here is short, so that a hundred rounds of one property stay within seconds.
EXAMPLES = settings(max_examples=40, deadline=None)


@st.composite
def teams(draw: st.DrawFn) -> tuple[Team, ...]:
    quota = st.builds(
        Quota,
        st.sampled_from((0, 1000, 2000, 3000)),
        st.sampled_from((None, 0, 1000, 4000)),
        st.sampled_from((None, None, 0, 500)),
    )
    top = Team("top", quotas={"": Quota(None)})
    inner = st.sampled_from(("", "top"))
    made = [Team(name, draw(inner), {"": draw(quota)}, draw(st.sampled_from((0.0, 1.0, 3.0)))) for name in NAMES]
    return (top, *made)


@st.composite
def requests(draw: st.DrawFn) -> list[Request]:
    made = []
    for at in range(draw(st.integers(0, 8))):
        count = draw(st.sampled_from((1, 1, 1, 2, 3)))
        made.append(
            Request(
                f"r{at}",
                draw(st.sampled_from(NAMES)),
                (draw(st.sampled_from(SIZES)),) * count,
                draw(st.sampled_from((None, 1))),
                draw(st.integers(0, 2)),
                draw(st.booleans()),
                float(at),
                estimate=draw(st.sampled_from((None, 10.0, 100.0))),
                locality=draw(st.sampled_from((Locality.ANY, Locality.ANY, Locality.NODE))),
            )
        )
    return made


RULES = st.builds(
    Rules,
    team_order=st.sampled_from(TeamOrder),
    node_order=st.sampled_from(NodeOrder),
    may_end=st.booleans(),
    hold_after=st.sampled_from((0.0, 600.0)),
)
NODES = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(
    lambda counts: tuple(ClusterNode(f"n{at}", count) for at, count in enumerate(counts))
)


def carried_out(snapshot: Snapshot, pending: list[Request], found: Plan, now: float) -> tuple[Snapshot, list[Request]]:
    """Return the cluster and the queue after the starts and withdrawals of a plan; moves are not carried out."""
    by_name = {request.name: request for request in pending}
    gone = {(one.workload, member) for one in (*found.swap_outs, *found.evictions) for member in one.members}
    running: dict[str, Running] = {}
    for work in snapshot.running:
        left = tuple(one for at, one in enumerate(work.members) if (work.name, at) not in gone)
        if left:
            running[work.name] = replace(work, members=left)
    for start in found.starts:
        request, member = by_name[start.request], Member(start.node, start.parts)
        old = running.get(request.name)
        end = None if request.estimate is None else now + request.estimate
        running[request.name] = Running(
            request.name,
            request.team,
            (*(old.members if old else ()), member),
            request.min_members or len(request.sizes),
            request.priority,
            request.is_preemptible,
            started=now,
            submitted=request.submitted,
            end=end,
        )
    started = {(start.request, start.member) for start in found.starts}
    waiting = []
    for request in pending:
        sizes = tuple(size for at, size in enumerate(request.sizes) if (request.name, at) not in started)
        if sizes:
            least = request.min_members if request.min_members is not None else len(request.sizes)
            waiting.append(replace(request, sizes=sizes, min_members=least))
    return replace(snapshot, running=tuple(running.values())), waiting


def check_capacity(snapshot: Snapshot) -> None:
    used: Counter[tuple[str, int]] = Counter()
    for work in snapshot.running:
        for member in work.members:
            for device, milli in member.parts:
                used[member.node, device] += milli
    devices = {node.name: node.devices for node in snapshot.nodes}
    for (node, device), milli in used.items():
        assert device < devices[node]
        assert milli <= DEVICE, f"{milli} thousandths of one device are given"


def held(snapshot: Snapshot, team: str, *, fixed: bool = False) -> int:
    path = TeamTree(snapshot.teams).paths
    works = [one for one in snapshot.running if team in path[one.team] and not (fixed and one.is_preemptible)]
    return sum(member.milli for one in works for member in one.members)


@EXAMPLES
@given(NODES, teams(), requests(), requests(), RULES)
def test_no_plan_gives_more_than_there_is_or_than_quotas_allow(
    nodes: tuple[ClusterNode, ...], tree: tuple[Team, ...], first: list[Request], more: list[Request], rules: Rules
) -> None:
    snapshot = Snapshot(nodes, tree)
    second = [replace(one, name=f"more-{one.name}") for one in more]
    snapshot, left = carried_out(snapshot, first, plan(snapshot, first, 10.0, rules), 10.0)
    for now in (20.0, 30.0, 40.0):
        found = plan(snapshot, [*left, *second], now, rules)
        snapshot, left = carried_out(snapshot, [*left, *second], found, now)
        second = []
        check_capacity(snapshot)
        for team in tree:
            quota = team.quotas[""]
            if quota.nominal is not None:
                assert held(snapshot, team.name, fixed=True) <= quota.nominal, "guarantees exceed the nominal quota"
            if quota.limit is not None:
                assert held(snapshot, team.name) <= quota.limit, "the team holds more than it may borrow"


@EXAMPLES
@given(NODES, teams(), requests(), requests(), RULES)
def test_only_preemptible_work_leaves_and_never_below_a_gangs_least_number(
    nodes: tuple[ClusterNode, ...], tree: tuple[Team, ...], first: list[Request], more: list[Request], rules: Rules
) -> None:
    snapshot, _ = carried_out(Snapshot(nodes, tree), first, plan(Snapshot(nodes, tree), first, 10.0, rules), 10.0)
    works = {one.name: one for one in snapshot.running}
    found = plan(snapshot, [replace(one, name=f"more-{one.name}") for one in more], 700.0, rules)
    for one in (*found.swap_outs, *found.evictions):
        work = works[one.workload]
        left = len(work.members) - len(one.members)
        assert work.is_preemptible
        assert left == 0 or left >= work.min_members
    assert not found.evictions, "work that can be swapped out is not ended"


@EXAMPLES
@given(NODES, teams(), requests(), RULES)
def test_no_gpu_idles_that_a_request_could_have(
    nodes: tuple[ClusterNode, ...], tree: tuple[Team, ...], pending: list[Request], rules: Rules
) -> None:
    """Work conservation: of requests without a hold, each that waits fits neither quota nor nodes afterwards."""
    start = replace(rules, steps=(Step.START,), hold_after=1e9)
    snapshot, left = carried_out(
        Snapshot(nodes, tree), pending, plan(Snapshot(nodes, tree), pending, 10.0, start), 10.0
    )
    for request in left:
        assert not plan(snapshot, [request], 10.0, start).starts, f"{request.name} waits, and would fit"


@EXAMPLES
@given(NODES, teams(), requests(), RULES, st.randoms(use_true_random=False))
def test_a_plan_depends_on_nothing_but_its_input(
    nodes: tuple[ClusterNode, ...], tree: tuple[Team, ...], pending: list[Request], rules: Rules, random: object
) -> None:
    want = plan(Snapshot(nodes, tree), pending, 10.0, rules)
    assert plan(Snapshot(nodes, tree), pending, 10.0, rules) == want
    shuffled = list(pending)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    again = plan(Snapshot(nodes[::-1], tree), shuffled, 10.0, rules)
    assert Counter(again.starts) == Counter(want.starts), "the order of the input does not matter"


@EXAMPLES
@given(
    st.integers(1, 16),
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 20), st.integers(0, 4)), min_size=2, max_size=5),
    st.integers(0, 4),
)
def test_a_larger_quota_never_gives_a_smaller_share(devices: int, drawn: list[tuple[int, int, int]], more: int) -> None:
    def share(nominal: int) -> tuple[int, int]:
        made = [
            Team(f"t{at}", "", {"": Quota(own * DEVICE)}, float(weight)) for at, (own, _, weight) in enumerate(drawn)
        ]
        made[0] = replace(made[0], quotas={"": Quota(nominal * DEVICE)})
        wanted = {f"t{at}": want * DEVICE for at, (_, want, _) in enumerate(drawn)}
        shares = fair_shares(TeamTree(made), "", devices * DEVICE, wanted)
        owed = sum(min(team.quotas[""].nominal or 0, wanted[team.name]) for team in made)
        return shares["t0"], max(0, sum(shares.values()) - max(owed, devices * DEVICE))

    (before, over), (after, over_after) = share(drawn[0][0]), share(drawn[0][0] + more)
    assert after >= before
    assert over == over_after == 0, "the surplus is given once"


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(SIZES[:5]), min_size=1, max_size=6), st.integers(2, 3), st.booleans())
def test_no_request_starves_behind_smaller_ones_that_keep_coming(
    sizes: list[int], devices: int, has_estimates: bool
) -> None:
    """Each request that the node holds starts, though a quarter of a GPU arrives whenever there is room."""
    node = (ClusterNode("n0", devices),)
    estimate = 50.0 if has_estimates else None
    pending = [Request(f"r{at}", "", (size,), submitted=0.0, estimate=estimate) for at, size in enumerate(sizes)]
    running: dict[str, Running] = {}
    ends: dict[str, float] = {}
    started: set[str] = set()
    now, number = 0.0, 0
    while now < 12_000.0 and not {f"r{at}" for at in range(len(sizes))} <= started:
        running = {name: work for name, work in running.items() if ends[name] > now}
        pending += [
            Request(f"s{number + at}", "", (250,), submitted=now, estimate=estimate) for at in range(2 * devices)
        ]
        number += 2 * devices
        snapshot = Snapshot(node, (), tuple(running.values()))
        found = plan(snapshot, pending, now, Rules(steps=(Step.START,)))
        after, pending = carried_out(snapshot, pending, found, now)
        running = {work.name: work for work in after.running}
        for start in found.starts:
            started.add(start.request)
            ends[start.request] = now + 50.0
        pending = [one for one in pending if one.name.startswith("r") or now - one.submitted < 100.0]
        now += 10.0
    assert {f"r{at}" for at in range(len(sizes))} <= started


@EXAMPLES
@given(requests(), st.integers(1, 3))
def test_the_reason_of_each_request_that_waits_is_known(pending: list[Request], devices: int) -> None:
    found = plan(
        Snapshot((ClusterNode("n0", devices),), tuple(Team(name, quotas={"": Quota(1000)}) for name in NAMES)),
        pending,
        5.0,
    )
    started = Counter(start.request for start in found.starts)
    for request in pending:
        is_whole = started[request.name] == len(request.sizes)
        assert is_whole != (request.name in found.waiting)
    for reason in found.waiting.values():
        assert reason.kind is not Kind.LEAVING or found.swap_outs or found.moves
