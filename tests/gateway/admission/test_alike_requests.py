"""A plan decides once about alike requests, and uses what the one before found: decisions stay the same."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from jupyter_aliquot.gateway.scheduling.cordons import Cordon
from jupyter_aliquot.gateway.scheduling.ledger import Device, Holding, KernelRef, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.lending.team_order import in_order, ranked
from jupyter_aliquot.gateway.scheduling.lending.team_quotas import TeamQuotas
from jupyter_aliquot.gateway.scheduling.nodes import ranking
from jupyter_aliquot.gateway.scheduling.nodes.kept import Kept
from jupyter_aliquot.gateway.scheduling.nodes.ranking import Found, Kinds
from jupyter_aliquot.gateway.scheduling.planner import Pending, Plan, plan
from jupyter_aliquot.gateway.scheduling.resize import held_of, quota_of
from jupyter_aliquot.gateway.scheduling.serving.alike import AlikeRequests
from jupyter_aliquot.gateway.sizes.wish import Wish
from jupyter_aliquot.gateway.teams.reading import read_quotas
from jupyter_aliquot.gpu_hook.placement.overcommit import Oversubscription
from jupyter_aliquot.gpu_hook.placement.placement import NO_ROOM, Refusal
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Request, WorkloadClass

NOTHING = (GpuShare(0), Bytes(0))
NOW = 200.0
MODELS = ("NVIDIA H200", "NVIDIA A100")
FILES = (
    "",
    "teams:\n  a: {users: [u0, u1], nominalQuota: 3}\n  b: {users: [u2, u3, '*'], nominalQuota: 3}\n",
    "queue: {order: las, backfill: false}\nteams:\n  d: {nominalQuota: 2, borrowingLimit: 2}\n"
    "  a: {parent: d, users: [u0, u1], nominalQuota: 1}\n  b: {parent: d, users: [u2], lendingLimit: 0}\n"
    "  c: {users: ['*'], nominalQuota: 2, overQuotaWeight: 3}\n",
    "queue: {localityWait: 60}\nteams:\n  a: {users: [u0, u1], nominalQuota: {H200: 2, A100: 1}}\n"
    "  b: {users: ['*'], nominalQuota: {H200: 1}, borrowingPriority: low, overcommit: 1}\n",
)


class Cluster:
    """Nodes, kernels and requests, drawn at random."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        text = FILES[seed % len(FILES)]
        nodes = tuple(self._node(f"n{at}") for at in range(self.random.choice((1, 3, 6))))
        self.ledger = LedgerSnapshot(others=nodes, quotas=read_quotas(text, "aliquot.yaml") if text else None)
        for at in range(self.random.choice((0, 4, 12))):
            self.start(f"k{at}", is_backfilled=self.random.random() < 0.2)

    def _node(self, name: str) -> Node:
        model = self.random.choice(MODELS)
        devices = (
            Device(f"GPU-{name}-{at}", at, model, Bytes(8 << 30), *NOTHING, by_production=NOTHING, domain=at // 2)
            for at in range(4)
        )
        return Node(name, "stub", tuple(devices), evicted=frozenset())

    def request(self) -> Request:
        size, priority = self.random.choice((25, 50, 100, 200, 250)), self.random.choice(list(WorkloadClass))
        return Request(GpuShare(size), None, priority)

    def start(self, kernel_id: str, **facts: Any) -> None:
        """Have a kernel run where a plan without quotas puts it, if that has room."""
        owner, request = f"u{self.random.randrange(5)}", self.request()
        found = plan(replace(self.ledger, quotas=None), [Pending(kernel_id, owner, request, 0.0)], 0.0)
        for admit in found.admissions:
            node = self.ledger.capacity().node_of(admit.parts)
            grant = Grant(kernel_id, owner, request, node, tuple(map(quota_of, admit.parts)), "", ())
            holding = replace(Holding(grant, KernelRef(kernel_id, owner), 0.0), **facts)
            grown = self.ledger.with_parts(kernel_id, request, admit.parts)
            self.ledger = replace(grown, holdings=MappingProxyType({**grown.holdings, kernel_id: holding}))

    def change(self, what: str, queue: list[Pending]) -> list[Pending]:
        """Change one thing, and return the queue after that."""
        if what == "end" and self.ledger.holdings:
            self.ledger = self.ledger.without(self.random.choice(sorted(self.ledger.holdings)))
        elif what == "start":
            self.start(f"s{self.random.randrange(1000)}", is_backfilled=self.random.random() < 0.2)
        elif what == "ask":
            return [*queue, *(replace(one, kernel_id=f"new{one.kernel_id}{len(queue)}") for one in self.new(3))]
        elif what == "withdraw" and queue:
            gone = self.random.choice(queue)
            return [one for one in queue if one is not gone]
        elif what == "quotas":
            text = self.random.choice(FILES)
            self.ledger = replace(self.ledger, quotas=read_quotas(text, "aliquot.yaml") if text else None)
        elif what == "cordon":
            names = [node.name for node in self.ledger.others if self.random.random() < 0.4]
            self.ledger = replace(self.ledger, cordons=dict.fromkeys(names, Cordon("ada", 0.0)))
        elif what == "evicting":
            some = (replace(node, evicted=self.random.choice((None, frozenset()))) for node in self.ledger.others)
            self.ledger = replace(self.ledger, others=tuple(some))
        elif what == "busy":
            names = frozenset(node.name for node in self.ledger.others if self.random.random() < 0.3)
            self.ledger = replace(self.ledger, busy=names)
        else:
            self.change_nodes(what)
        return queue

    def change_nodes(self, what: str) -> None:
        """Have a node or a device come, go, or be another than it was."""
        nodes = list(self.ledger.others)
        at = self.random.randrange(len(nodes))
        node, devices = nodes[at], list(nodes[at].devices)
        device = self.random.randrange(len(devices))
        if what == "gone" and len(nodes) > 1:
            del nodes[at]
        elif what == "come":
            nodes.insert(at, self._node(f"x{self.random.randrange(100_000)}"))
        elif what == "resorted":
            self.random.shuffle(nodes)
        elif what == "away":
            nodes[at] = replace(node, is_away=not node.is_away)
        elif what == "rule":
            nodes[at] = replace(node, rule=Oversubscription(1.0, self.random.choice((1.0, 2.0, 3.0))))
        elif what == "lost":
            devices[device] = replace(devices[device], is_lost=not devices[device].is_lost)
        elif what == "renamed":
            devices[device] = replace(devices[device], name=self.random.choice(MODELS))
        elif what == "removed" and len(devices) > 1:
            del devices[device]
        if what in ("lost", "renamed", "removed"):
            nodes[at] = replace(node, devices=tuple(devices))
        self.ledger = replace(self.ledger, others=tuple(nodes))

    def queue(self, count: int) -> list[Pending]:
        grows = [
            Pending(kernel_id, one.grant.owner, self.request(), 50.0, held=held_of(one.grant))
            for kernel_id, one in self.ledger.holdings.items()
            if self.random.random() < 0.1
        ]
        return grows + self.new(count)

    def new(self, count: int) -> list[Pending]:
        """Return requests for new kernels."""
        return [
            Pending(
                f"p{at}",
                f"u{self.random.randrange(5)}",
                self.request(),
                100.0 + at,
                deadline=self.random.choice((None, None, None, 150.0)),
                wish=Wish(self.random.choice(((), (), ("H200",), ("H200", "A100")))),
            )
            for at in range(count)
        ]


def decisions(found: Plan) -> tuple[object, ...]:
    """Return all but the reasons: a request that is like one before it has the reason of that one."""
    admitted = [(one.kernel_id, one.placement(), one.is_backfilled) for one in found.admissions]
    refused = [(one.kernel_id, str(one.error)) for one in found.refusals]
    return admitted, refused, [one.kernel_id for one in found.waiting], found.preempting, found.evictions


@pytest.mark.parametrize("seed", range(40))
def test_alike_requests_are_decided_as_each_of_them_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(seed)
    queue = cluster.queue(30)
    found = plan(cluster.ledger, queue, NOW)
    monkeypatch.setattr(AlikeRequests, "kind_of", lambda *asked: None)
    assert decisions(found) == decisions(plan(cluster.ledger, queue, NOW))


@pytest.mark.parametrize("seed", range(24))
def test_a_plan_is_that_of_a_gateway_which_planned_nothing_before(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed // len(FILES) % 2:
        monkeypatch.setattr(ranking, "_MOST_KINDS", 10)
        monkeypatch.setattr(ranking, "_MOST_PLACEMENTS", 10)
    cluster = Cluster(seed)
    for at in range(6):
        queue = cluster.queue(12)
        anew = replace(cluster.ledger, kept=Kept())
        found, want = plan(cluster.ledger, queue, NOW), plan(anew, queue, NOW)
        assert (decisions(found), found.waiting) == (decisions(want), want.waiting), f"after {at} changes"
        if cluster.ledger.holdings:
            cluster.ledger = cluster.ledger.without(cluster.random.choice(sorted(cluster.ledger.holdings)))
        cluster.start(f"new{at}")


CHANGES = (
    *("end", "start", "ask", "withdraw", "quotas", "cordon", "evicting", "time"),
    *("gone", "come", "lost", "removed", "renamed", "away", "rule", "resorted", "busy"),
)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.sampled_from(CHANGES), max_size=8))
@example(5925, ["end", "removed"])  # a kernel is on a device that its node has no more
def test_a_plan_after_any_changes_is_the_plan_from_scratch(seed: int, changes: list[str]) -> None:
    cluster = Cluster(seed)
    queue, now = cluster.queue(15), NOW
    for what in ("", *changes):
        queue = cluster.change(what, queue)
        now += 4000.0 if what == "time" else 1.0
        anew, asked_anew = replace(cluster.ledger, kept=Kept()), [replace(one) for one in queue]
        found, want = plan(cluster.ledger, queue, now), plan(anew, asked_anew, now)
        assert (decisions(found), found.waiting) == (decisions(want), want.waiting)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 40))
def test_requests_sorted_by_shares_are_in_the_order_of_one_after_the_other(seed: int, count: int) -> None:
    cluster = Cluster(seed)
    queue = cluster.queue(count)
    for text in FILES[1:]:
        quotas = TeamQuotas.of(replace(cluster.ledger, quotas=read_quotas(text, "aliquot.yaml"), kept=Kept()))
        assert quotas is not None
        want = [queue[place] for place in ranked(quotas, [one.claimant for one in queue])]
        assert in_order(quotas, queue) == want


def test_a_plan_that_found_many_kinds_of_nodes_leaves_none_of_them_to_the_next() -> None:
    kinds = Kinds()
    for at in range(5_000):
        kinds.number((at,))
    assert len(kinds.under(()).numbers) == 5_000
    kinds.number(("one more",))
    assert not kinds.under(()).numbers
    size, found = (Request(GpuShare(50)), "off", False, None), Found((), Refusal(NO_ROOM, ""))
    many = Kinds(placements={(size, at): found for at in range(50_001)})
    assert not many.under(()).placements
    assert many.under(()).numbers is many.numbers, "nodes keep the numbers of their kinds"


def test_a_team_is_told_what_its_kernels_hold_and_not_what_else_waits() -> None:
    devices = (Device("GPU-0", 0, "Stub", Bytes(8 << 30), *NOTHING, by_production=NOTHING),)
    text = "teams:\n  a: {users: [ann], nominalQuota: 0.5, borrowingLimit: 0}\n  b: {users: [bob], nominalQuota: 0.5}\n"
    ledger = LedgerSnapshot(node=Node("node", "stub", devices), quotas=read_quotas(text, "aliquot.yaml"))
    queue = [Pending(name, "ann", Request(GpuShare(50)), float(at)) for at, name in enumerate(("x", "y", "z"))]
    found = plan(ledger, queue, 10.0)
    assert [one.kernel_id for one in found.admissions] == ["x"]
    assert {one.reason.sentence for one in found.waiting} == {
        "Needs 0.5 GPU; the team a holds 0.5 of its quota of 0.5 GPU, and no GPU is free for it to take"
    }
