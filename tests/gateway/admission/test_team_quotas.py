"""Plans with teams: who borrows, who waits, whose kernels leave, and who passes a request that waits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, strategies as st

from jupyter_aliquot.gateway.scheduling.ledger import Device, Holding, KernelRef, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.lending.team_quotas import TeamQuotas
from jupyter_aliquot.gateway.scheduling.planner import Pending, Plan, plan
from jupyter_aliquot.gateway.scheduling.queue_policy import PastUse
from jupyter_aliquot.gateway.scheduling.resize import held_of, quota_of
from jupyter_aliquot.gateway.scheduling.wait_reason import WaitCode
from jupyter_aliquot.gateway.teams.reading import read_quotas
from jupyter_aliquot.gateway.teams.values import QUEUE_ORDERS
from jupyter_aliquot.gpu_hook.placement.overcommit import Oversubscription
from jupyter_aliquot.provisioner.errors import LimitError
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Request, WorkloadClass

GIB = 1 << 30
TWO = "teams:\n  a: {users: [ann, abe], nominalQuota: 1}\n  b: {users: [bob], nominalQuota: 1}\n"
LOW, NORMAL = WorkloadClass.OPPORTUNISTIC, WorkloadClass.PRODUCTION


def a_node(devices: int = 2, text: str = TWO, names: tuple[str, ...] = ()) -> LedgerSnapshot:
    nothing = (GpuShare(0), Bytes(0))
    found = [
        Device(f"GPU-{at}", at, names[at] if names else "Stub", Bytes(8 * GIB), *nothing, by_production=nothing)
        for at in range(devices)
    ]
    node = Node("node", "stub", tuple(found), evicted=frozenset())
    return LedgerSnapshot(node=node, quotas=read_quotas(text, "aliquot.yaml") if text else None)


def runs(
    snapshot: LedgerSnapshot, kernel_id: str, owner: str, hundredths: int, *, low: bool = False, **facts: object
) -> LedgerSnapshot:
    """Return the ledger once this kernel runs where a plan without quotas puts it."""
    request = Request(GpuShare(hundredths), None, LOW if low else NORMAL)
    (admit,) = plan(replace(snapshot, quotas=None), [Pending(kernel_id, owner, request, 0.0)], 0.0).admissions
    grant = Grant(kernel_id, owner, request, "node", tuple(map(quota_of, admit.parts)), "", ())
    grown = snapshot.with_parts(kernel_id, request, admit.parts)
    holding = replace(Holding(grant, KernelRef(kernel_id, owner), 0.0), **facts)  # type: ignore[arg-type]
    return replace(grown, holdings={**snapshot.holdings, kernel_id: holding})


def asks(kernel_id: str, owner: str, hundredths: int, *, since: float = 1.0, low: bool = False) -> Pending:
    return Pending(kernel_id, owner, Request(GpuShare(hundredths), None, LOW if low else NORMAL), since)


def admitted(planned: Plan) -> list[str]:
    return [admit.kernel_id for admit in planned.admissions]


def reasons(planned: Plan) -> dict[str, WaitCode]:
    return {wait.kernel_id: wait.reason.code for wait in planned.waiting}


def leaving(planned: Plan) -> list[str]:
    return [eviction.kernel_id for eviction in planned.evictions]


def test_a_team_borrows_what_the_other_does_not_use() -> None:
    assert admitted(plan(a_node(), [asks("x", "ann", 100), asks("y", "abe", 100)], 1.0)) == ["x", "y"]


def test_a_request_within_its_quota_comes_before_one_that_borrows() -> None:
    waiting = [asks("borrows", "ann", 100), asks("owed", "bob", 100)]
    planned = plan(runs(a_node(), "k", "ann", 100), waiting, 1.0)
    assert admitted(planned) == ["owed"]
    assert list(reasons(planned)) == ["borrows"]


def test_a_team_at_its_limit_waits_and_holds_up_no_other_team() -> None:
    text = TWO.replace("abe], nominalQuota: 1", "abe], nominalQuota: 1, borrowingLimit: 0.5")
    planned = plan(runs(a_node(text=text), "k", "ann", 125), [asks("x", "ann", 50), asks("y", "bob", 50)], 1.0)
    assert admitted(planned) == ["y"]
    assert planned.waiting[0].reason.code is WaitCode.TEAM_QUOTA
    assert planned.waiting[0].reason.sentence == (
        "Needs 0.5 GPU; 0.25 GPU is free on gpu1, and the team a holds 1.25 of its quota of 1 GPU, and may take only "
        "0.25 more"
    )
    alone = plan(runs(a_node(text=text), "k", "ann", 125), [asks("x", "ann", 50)], 1.0).waiting[0].reason
    assert alone.code is WaitCode.TEAM_QUOTA
    assert alone.sentence == (
        "Needs 0.5 GPU; the team a holds 1.25 of its quota of 1 GPU, and only 0.25 GPU is free for it to take"
    )


FIXED = TWO.replace("nominalQuota: 1", "nominalQuota: 1, borrowingLimit: 0")


@pytest.mark.parametrize(
    ("text", "running", "code", "why"),
    [
        # The quota is full, and a GPU is free.
        (FIXED, {"ann": 100}, WaitCode.TEAM_QUOTA, "the team a holds 1 of its quota of 1 GPU, and no GPU is free for"),
        # The quota is free, and the GPUs are full.
        (TWO.replace("Quota: 1", "Quota: 2", 1), {"ann": 100, "bob": 100}, WaitCode.GPU, "none is free"),
        # Both are full, and the team could borrow, or not.
        (TWO, {"ann": 100, "bob": 100}, WaitCode.GPU, "none is free, and the team a holds 1 of its quota of 1 GPU"),
        (
            FIXED,
            {"ann": 100, "bob": 100},
            WaitCode.TEAM_QUOTA,
            "none is free, and the team a holds 1 of its quota of 1 GPU, and may take no more",
        ),
    ],
)
def test_a_request_waits_for_its_quota_for_the_gpus_or_for_both(
    text: str, running: dict[str, int], code: WaitCode, why: str
) -> None:
    held = a_node(text=text)
    for owner, hundredths in running.items():
        held = runs(held, f"k-{owner}", owner, hundredths)
    (wait,) = plan(held, [asks("x", "ann", 100)], 1.0).waiting
    assert (wait.reason.code, wait.reason.sentence.partition("; ")[2][: len(why)]) == (code, why)
    late = replace(asks("x", "ann", 100), deadline=1.0)
    (refused,) = plan(held, [late], 1.0).refusals
    assert f"{wait.reason.sentence}. The request waited 0 s" in str(refused.error)


def test_a_model_that_is_free_and_beyond_the_quota_is_told_beside_one_that_is_full() -> None:
    text = "teams:\n  a: {users: [ann], nominalQuota: {H200: 1, A100: 0}, borrowingLimit: {H200: 1, A100: 0}}\n"
    text += "  b: {users: [bob], nominalQuota: {H200: 0, A100: 1}}\n"
    node = a_node(text=text, names=("NVIDIA A100-SXM4", "NVIDIA H200"))
    held = runs(replace(node, node=replace(node.node, devices=node.node.devices[1:])), "k", "bob", 100)
    held = replace(held, node=replace(node.node, devices=(node.node.devices[0], *held.node.devices)))
    held = replace(held, holdings={"k": replace(held.holdings["k"], stays_because="it shares memory")})
    (wait,) = plan(held, [asks("x", "ann", 100)], 1.0).waiting
    assert wait.reason.code is WaitCode.GPU
    assert wait.reason.sentence == (
        "Needs 1 GPU; none is free; the team a holds 0 of its quota of 0 A100 GPU, and no A100 GPU is free for it to "
        "take"
    )


def test_a_quota_is_taken_back_from_normal_kernels_too_where_low_priority_alone_borrows() -> None:
    """Such kernels borrow once the file gives their team less than they hold."""
    held = a_node(4, "teams:\n  b: {users: [bob], nominalQuota: 4}\n")
    for at in range(4):
        held = runs(held, f"k{at}", "bob", 100, granted_at=float(-at))
    text = (
        "teams:\n  a: {users: [ann], nominalQuota: 2}\n  b: {users: [bob], nominalQuota: 2, borrowingPriority: low}\n"
    )
    later = replace(held, quotas=read_quotas(text, "aliquot.yaml"))
    assert leaving(plan(later, [asks("owed", "ann", 100)], 1.0)) == ["k0"]
    low = runs(later.without("k3"), "low", "bob", 100, low=True, granted_at=-9.0)
    assert leaving(plan(low, [asks("owed", "ann", 100)], 1.0)) == ["low"], "low priority goes first"


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (
            40,
            "the team c holds 1 of its quota of 2 GPU, 1 is set aside for requests ahead, and only 0.2 GPU is free for "
            "it to take",
        ),
        (60, "0.4 GPU is free on gpu3"),
    ],
)
def test_a_team_is_told_what_is_set_aside_for_requests_ahead(last: int, why: str) -> None:
    """No device is free for the whole GPU that the first request waits for."""
    text = "teams:\n  c: {users: [cy], nominalQuota: 2}\n  b: {users: [bob], nominalQuota: 2}\n"
    held = runs(a_node(4, text), "k", "cy", 100)
    for kernel_id, size in (("k1", 70), ("k2", 70), ("k3", last)):
        held = runs(held, kernel_id, "bob", size)
    waiting = plan(held, [asks("ahead", "cy", 100), asks("more", "cy", 50, since=2.0)], 9.0).waiting
    assert waiting[1].reason.sentence == f"Needs 0.5 GPU; {why}"


def test_a_request_beyond_what_its_team_may_ever_hold_is_refused() -> None:
    text = TWO.replace("abe], nominalQuota: 1", "abe], nominalQuota: 1, borrowingLimit: 0.5")
    (refused,) = plan(a_node(text=text), [asks("x", "ann", 200)], 1.0).refusals
    assert isinstance(refused.error, LimitError)
    assert "the team a may hold 1.5 at most, with all that it may borrow. Choose a smaller size" in str(refused.error)


def test_a_user_of_no_team_keeps_a_kernel_and_gets_nothing_new() -> None:
    held = runs(a_node(text="teams:\n  b: {users: [bob], nominalQuota: 1}\n"), "k", "ann", 100)
    planned = plan(held, [asks("x", "ann", 50), asks("y", "bob", 50)], 1.0)
    assert (admitted(planned), planned.evictions) == (["y"], ())
    assert "no team of the quota file has the user ann" in str(planned.refusals[0].error)


def test_a_team_that_was_removed_keeps_what_it_holds_until_others_are_owed_it() -> None:
    """Its kernels run on, as those of users of no team; what they hold counts for the organization alone."""
    held = runs(runs(a_node(), "k1", "ann", 100), "k2", "bob", 100)
    without = replace(held, quotas=read_quotas(TWO.replace("  a: {users: [ann, abe], nominalQuota: 1}\n", ""), "new"))
    planned = plan(without, [asks("more", "ann", 10), asks("owed", "bob", 50)], 1.0)
    assert (admitted(planned), leaving(planned)) == ([], [])
    assert "no team of the quota file has the user ann" in str(planned.refusals[0].error)
    assert reasons(planned) == {"owed": WaitCode.GPU}, "the one that is left borrows nothing either"
    ended = without.without("k1")
    assert admitted(plan(ended, [asks("owed", "bob", 50)], 1.0)) == ["owed"], "it is there to borrow"


@pytest.mark.parametrize("order", QUEUE_ORDERS)
@pytest.mark.parametrize("jump", [-1e9, -3600.0, 3600.0, 1e9])
def test_a_clock_that_jumps_decides_each_request_once_and_promises_nothing_twice(order: str, jump: float) -> None:
    text = f"queue: {{order: {order}, localityWait: 30s}}\n{TWO.replace('users', 'reclaimMinRuntime: 60s, users')}"
    held = runs(a_node(4, text), "k", "ann", 100, granted_at=100.0, queued_at=100.0)
    waiting = [asks(f"p{at}", ("ann", "bob")[at % 2], size, since=100.0 + at) for at, size in enumerate((250, 50, 75))]
    planned = plan(held, waiting, 200.0 + jump)
    decided = [*admitted(planned), *reasons(planned), *(one.kernel_id for one in planned.refusals)]
    assert sorted(decided) == ["p0", "p1", "p2"]
    taken = [part for admit in planned.admissions for part in admit.placement().items()]
    for device in held.node.devices:
        parts = sum(share for uuid, share in taken if uuid == device.uuid)
        assert device.reserved.hundredths + parts <= 100


def test_a_team_takes_its_quota_back_from_one_that_borrows_it() -> None:
    held = runs(runs(a_node(), "k1", "ann", 100), "k2", "abe", 100, granted_at=5.0)
    planned = plan(held, [asks("owed", "bob", 100)], 10.0)
    assert (leaving(planned), admitted(planned)) == (["k2"], []), "the newest kernel of those that borrow"
    assert planned.waiting[0].reason.sentence == ("Needs 1 GPU; kernels that have it on loan are leaving their GPU")
    assert plan(held, [asks("borrows", "ann", 100)], 10.0).evictions == (), "one that borrows takes nothing back"


def test_low_priority_leaves_before_normal_and_no_more_than_is_needed() -> None:
    held = runs(a_node(), "normal", "ann", 100, granted_at=9.0)
    held = runs(runs(held, "low1", "abe", 50, low=True), "low2", "abe", 50, low=True, granted_at=1.0)
    assert leaving(plan(held, [asks("owed", "bob", 50)], 10.0)) == ["low2"]
    assert sorted(leaving(plan(held, [asks("owed", "bob", 100)], 10.0))) == ["low1", "low2"]


def test_a_kernel_that_borrows_runs_for_its_least_time_first() -> None:
    text = TWO.replace("abe], nominalQuota: 1", "abe], nominalQuota: 1, reclaimMinRuntime: 60s")
    held = runs(runs(a_node(text=text), "k1", "ann", 100), "k2", "abe", 100, granted_at=5.0)
    assert leaving(plan(held, [asks("owed", "bob", 100)], 59.0)) == []
    assert leaving(plan(held, [asks("owed", "bob", 100)], 60.0)) == ["k1"]
    assert leaving(plan(held, [asks("owed", "bob", 100)], 65.0)) == ["k2"]


@pytest.mark.parametrize(("policy", "low", "want"), [("never", True, []), ("low", True, ["k2"]), ("low", False, [])])
def test_a_kernel_that_cannot_be_swapped_out_ends_only_where_its_team_says_so(
    policy: str, low: bool, want: list[str]
) -> None:
    text = TWO.replace("abe], nominalQuota: 1", f"abe], nominalQuota: 1, mayBeEnded: {policy}")
    held = runs(a_node(text=text), "k1", "ann", 100, stays_because="it shares memory")
    held = runs(held, "k2", "abe", 100, low=low, stays_because="it shares memory")
    planned = plan(held, [asks("owed", "bob", 100)], 10.0)
    assert (leaving(planned), [one.is_ended for one in planned.evictions]) == (want, [True] * len(want))


def test_an_evicted_kernel_counts_nothing_and_returns_to_its_device() -> None:
    held = runs(runs(a_node(), "k1", "ann", 100), "k2", "abe", 100)
    evicted = replace(held.holdings["k2"], is_evicted=True)
    out = replace(held.without("k2"), holdings={**held.holdings, "k2": evicted})
    back = replace(asks("k2", "abe", 100), returns_to=held_of(evicted.grant))
    planned = plan(out, [back], 10.0)
    assert planned.admissions[0].placement() == {evicted.grant.quotas[0].uuid: 100}
    planned = plan(out, [back, asks("owed", "bob", 100)], 10.0)
    assert (admitted(planned), list(reasons(planned))) == (["owed"], ["k2"]), "what is owed comes before"


def test_a_released_grant_counts_for_its_team_while_a_process_keeps_its_memory() -> None:
    """A team could release, keep the memory, and ask again for as long as the node has room."""
    text = "teams:\n  a: {users: [ann], nominalQuota: 1, borrowingLimit: 0}\n"
    held = runs(a_node(4, text), "k", "ann", 100)
    ending = replace(held, holdings={}, ending=held.holdings)
    assert admitted(plan(ending, [asks("more", "ann", 100)], 1.0)) == []
    assert admitted(plan(ending, [asks("k", "ann", 100)], 1.0)) == ["k"], "the same kernel again counts once"


def test_quotas_of_models_are_counted_apart() -> None:
    borrower = "a: {users: [ann], nominalQuota: {H200: 1}, borrowingLimit: {H200: 0, A100: 1}}"
    text = f"teams:\n  {borrower}\n  b: {{nominalQuota: {{A100: 1}}}}\n"
    node = a_node(text=text, names=("NVIDIA A100-SXM4", "NVIDIA H200"))
    first = plan(node, [asks("x", "ann", 100)], 1.0)
    assert first.admissions[0].placement() == {"GPU-1": 100}, "first the model that the team is owed"
    held = runs(replace(node, node=replace(node.node, devices=node.node.devices[1:])), "k", "ann", 100)
    held = replace(held, node=replace(node.node, devices=(node.node.devices[0], *held.node.devices)))
    assert plan(held, [asks("x", "ann", 100)], 1.0).admissions[0].placement() == {"GPU-0": 100}, "then one to borrow"
    assert plan(node, [asks("x", "ann", 200)], 1.0).refusals


def test_teams_that_borrow_are_served_by_their_weights() -> None:
    text = "teams:\n  a: {users: [ann], overQuotaWeight: 3}\n  b: {users: [bob]}\n"
    waiting = [asks(f"{owner[0]}{place}", owner, 25) for owner in ("bob", "ann") for place in range(8)]
    got = admitted(plan(a_node(text=text), waiting, 1.0))
    assert len([one for one in got if one[0] == "a"]) == 6
    assert len([one for one in got if one[0] == "b"]) == 2


# ---- backfill


def test_of_teams_that_borrow_the_one_that_borrowed_less_before_is_served_first() -> None:
    text = f"queue: {{usageHalfLife: 24h}}\n{TWO.replace('nominalQuota: 1', 'nominalQuota: 0')}"
    waiting = [asks("x", "ann", 100), asks("y", "bob", 100)]
    node = a_node(1, text)
    assert admitted(plan(node, waiting, 1.0)) == ["x"]
    assert admitted(plan(replace(node, past=PastUse({"a": 0.2})), waiting, 1.0)) == ["x"], (
        "neither borrows anything yet"
    )
    borrows = runs(runs(a_node(3, text), "k1", "ann", 100), "k2", "bob", 100)
    assert admitted(plan(borrows, waiting, 1.0)) == ["x"]
    assert admitted(plan(replace(borrows, past=PastUse({"a": 0.2})), waiting, 1.0)) == ["y"]
    owed = [asks("x", "ann", 100), asks("y", "bob", 100)]
    within = replace(a_node(1, TWO), past=PastUse({"a": 5.0}))
    assert admitted(plan(within, owed, 1.0)) == ["x"], "use within quota is not held against a team"


def test_a_request_passes_one_that_waits_where_it_cannot_delay_it() -> None:
    held = runs(runs(a_node(text=""), "k1", "ann", 90), "k2", "bob", 90)
    held = replace(held, node=replace(held.node, evicted=None))
    planned = plan(held, [asks("half", "ann", 50), asks("small", "bob", 10)], 1.0)
    assert (admitted(planned), planned.admissions[0].is_backfilled) == (["small"], False)
    assert list(reasons(planned)) == ["half"]
    planned = plan(held, [asks("most", "ann", 95), asks("small", "bob", 10)], 1.0)
    assert admitted(planned) == [], "it would hold up the larger one once a kernel ends"


def test_a_request_that_could_delay_one_ahead_passes_only_as_a_kernel_that_leaves_for_it() -> None:
    held = runs(a_node(text=""), "k1", "ann", 90)
    waiting = [asks("whole", "ann", 200, since=1.0), asks("small", "bob", 25, since=2.0)]
    planned = plan(held, waiting, 2.0)
    assert [(one.kernel_id, one.is_backfilled) for one in planned.admissions] == [("small", True)]
    stays = [waiting[0], replace(waiting[1], request=replace(waiting[1].request, residency="off"))]
    assert admitted(plan(held, stays, 2.0)) == []


def test_a_backfilled_kernel_leaves_once_the_request_that_it_passed_lacks_nothing_else() -> None:
    held = runs(a_node(text=""), "k1", "ann", 90)
    held = runs(held, "small", "bob", 25, is_backfilled=True, queued_at=2.0)
    whole = asks("whole", "ann", 200, since=1.0)
    assert leaving(plan(held, [whole], 9.0)) == [], "it would not start yet"
    assert leaving(plan(held.without("k1"), [whole], 9.0)) == ["small"]
    assert leaving(plan(held.without("k1"), [replace(whole, since=3.0)], 9.0)) == [], "that one came later"


def test_without_backfill_each_request_waits_for_those_ahead() -> None:
    held = runs(a_node(text=TWO.replace("teams:", "queue: {backfill: false}\nteams:")), "k1", "ann", 90)
    assert admitted(plan(held, [asks("whole", "bob", 200), asks("small", "bob", 10)], 2.0)) == []


# ---- properties

sizes = st.sampled_from([10, 25, 50, 75, 100, 150, 200])
users = st.sampled_from(["ann", "abe", "bob"])
requests = st.lists(st.tuples(users, sizes, st.booleans()), max_size=8)


@given(requests, requests)
def test_a_plan_keeps_within_devices_and_quotas_and_decides_each_request_once(
    running: list[tuple[str, int, bool]], waiting: list[tuple[str, int, bool]]
) -> None:
    held = a_node(text=TWO.replace("abe], nominalQuota: 1", "abe], nominalQuota: 1, borrowingLimit: 0.5"))
    for place, (owner, size, low) in enumerate(running):
        if plan(held, [asks("new", owner, size, low=low)], 0.0).admissions:
            held = runs(held, f"k{place}", owner, size, low=low)
    pending = [asks(f"p{at}", owner, size, since=at, low=low) for at, (owner, size, low) in enumerate(waiting)]
    planned = plan(held, pending, 99.0)
    again = plan(held, pending, 99.0)
    assert replace(again, refusals=()) == replace(planned, refusals=()), "the same state gives the same plan"
    decided = [*admitted(planned), *reasons(planned), *(one.kernel_id for one in planned.refusals)]
    assert sorted(decided) == sorted(one.kernel_id for one in pending)
    after = held
    for admit in planned.admissions:
        (one,) = (each for each in pending if each.kernel_id == admit.kernel_id)
        grant = Grant(one.kernel_id, one.owner, one.request, "node", tuple(map(quota_of, admit.parts)), "", ())
        grown = after.with_parts(one.kernel_id, one.request, admit.parts)
        holding = Holding(grant, KernelRef(one.kernel_id, one.owner), 0.0)
        after = replace(grown, holdings={**after.holdings, one.kernel_id: holding})
    assert all(device.reserved.hundredths <= 100 for device in after.node.devices)
    quotas = TeamQuotas.of(after)
    assert quotas is not None
    assert quotas.tree.used("a", "") <= 150


def test_one_more_kernel_of_a_team_is_tried_where_the_first_does_not_suffice() -> None:
    held = runs(runs(runs(a_node(), "k0", "ann", 10), "k1", "ann", 25), "k2", "ann", 75)
    assert leaving(plan(held, [asks("owed", "bob", 100)], 99.0)) == ["k2"]


halves = st.lists(st.tuples(users, st.sampled_from([50, 100, 150, 200]), st.booleans()), max_size=6)


@given(halves)
def test_a_team_gets_what_it_is_owed_whatever_others_run(running: list[tuple[str, int, bool]]) -> None:
    held = a_node()
    for place, (owner, size, low) in enumerate(running):
        if owner != "bob" and plan(held, [asks("new", owner, size, low=low)], 0.0).admissions:
            held = runs(held, f"k{place}", owner, size, low=low)
    planned = plan(held, [asks("owed", "bob", 100)], 99.0)
    assert admitted(planned) == ["owed"] or planned.evictions


# ---- evictions that are of use


def is_out(snapshot: LedgerSnapshot, kernel_id: str) -> LedgerSnapshot:
    """Return the ledger once this kernel was evicted."""
    evicted = replace(snapshot.holdings[kernel_id], is_evicted=True, leaves_for="")
    return replace(snapshot.without(kernel_id), holdings={**snapshot.holdings, kernel_id: evicted})


def returns(snapshot: LedgerSnapshot, kernel_id: str) -> Pending:
    holding = snapshot.holdings[kernel_id]
    grant = holding.grant
    return Pending(kernel_id, grant.owner, grant.request, holding.queued_at, returns_to=held_of(grant))


def cycles(held: LedgerSnapshot, waiting: list[Pending], count: int) -> list[list[str]]:
    """Return the kernels that each of so many cycles evicts, with none that arrives or ends."""
    found = []
    for _ in range(count):
        pending = sorted(waiting, key=lambda one: one.since)
        planned = plan(held, pending, 99.0)
        for admit in planned.admissions:
            (one,) = (each for each in pending if each.kernel_id == admit.kernel_id)
            grant = Grant(one.kernel_id, one.owner, one.request, "node", tuple(map(quota_of, admit.parts)), "", ())
            grown = held.with_parts(one.kernel_id, one.request, admit.parts)
            holding = Holding(grant, KernelRef(one.kernel_id, one.owner), 0.0, queued_at=one.since)
            before = held.holdings.get(one.kernel_id, holding)
            holding = replace(holding, is_backfilled=admit.is_backfilled or before.is_backfilled)
            held = replace(grown, holdings={**held.holdings, one.kernel_id: holding})
        for kernel_id in leaving(planned):
            held = is_out(held, kernel_id)
        done = {*admitted(planned), *(one.kernel_id for one in planned.refusals)}
        waiting = [one for one in waiting if one.kernel_id not in done]
        waiting += [returns(held, kernel_id) for kernel_id in leaving(planned)]
        found.append(leaving(planned))
    return found


@pytest.mark.parametrize("quota", ["0", "0.5"])
def test_a_backfilled_kernel_that_would_return_first_is_not_evicted(quota: str) -> None:
    text = f"teams:\n  a: {{users: [ann]}}\n  c: {{users: [cy], nominalQuota: {quota}}}\n"
    held = runs(runs(a_node(text=text), "k", "ann", 30), "fill", "bob", 60)
    held = runs(held, "small", "cy", 20, is_backfilled=True, queued_at=5.0).without("fill")
    assert cycles(held, [asks("whole", "ann", 100, since=4.0)], 4) == [[], [], [], []]


def test_none_leaves_for_a_request_that_those_ahead_hold_up() -> None:
    teams = "a: {users: [ann], nominalQuota: 3}\n  b: {users: [bob], nominalQuota: 1}\n  d: {users: [dan]}\n"
    held = a_node(4, f"queue: {{backfill: false}}\nteams:\n  {teams}")
    held = runs(runs(held, "k0", "ann", 50), "fill", "bob", 50)
    held = runs(runs(runs(held, "k1", "bob", 60), "v", "dan", 100), "k3", "ann", 50).without("fill")
    ahead, behind = asks("two", "ann", 200, since=5.0), asks("small", "bob", 40, since=6.0)
    planned = plan(held, [ahead, behind], 9.0)
    assert (admitted(planned), leaving(planned)) == ([], [])


def test_an_evicted_kernel_returns_past_a_request_that_waits_as_a_backfilled_one() -> None:
    held = runs(runs(a_node(text=""), "k1", "ann", 90), "v", "bob", 90, queued_at=3.0)
    out = is_out(held, "v")
    planned = plan(out, [asks("two", "ann", 200, since=2.0), returns(out, "v")], 9.0)
    assert [(one.kernel_id, one.is_backfilled) for one in planned.admissions] == [("v", True)]


def test_none_leaves_where_its_copy_takes_the_host_memory_that_the_request_needs() -> None:
    text = "teams:\n  a: {users: [ann], nominalQuota: 2}\n  b: {users: [bob]}\n"
    rule = Oversubscription(production=2, opportunistic=2, host_bytes=16 * GIB)
    held = a_node(1, text)
    held = replace(held, node=replace(held.node, rule=rule))
    held = runs(runs(held, "w", "ann", 100), "v", "bob", 100)
    assert leaving(plan(held, [asks("owed", "ann", 100)], 9.0)) == []
    more = replace(held, node=replace(held.node, rule=replace(rule, host_bytes=32 * GIB)))
    assert leaving(plan(more, [asks("owed", "ann", 100)], 9.0)) == ["v"]


def test_a_kernel_that_replaces_an_evicted_one_counts_on_none_of_its_capacity() -> None:
    held = runs(a_node(1, ""), "v", "bob", 100)
    out = runs(is_out(held, "v"), "k", "ann", 100)
    planned = plan(out, [replace(asks("new", "bob", 100), replaces=frozenset({"v"}))], 9.0)
    assert (admitted(planned), planned.preempting) == ([], ())


@pytest.mark.parametrize(
    "text", ["teams:\n  b: {users: [bob], nominalQuota: 2}\n", TWO.replace("abe], nom", "abe], borrowingLimit: 0, nom")]
)
def test_an_evicted_kernel_that_its_team_may_hold_no_more_returns_to_free_capacity(text: str) -> None:
    held = runs(a_node(text=TWO.replace("Quota: 1", "Quota: 2")), "v", "ann", 200)
    out = replace(is_out(held, "v"), quotas=read_quotas(text, "aliquot.yaml"))
    assert admitted(plan(out, [returns(out, "v")], 9.0)) == ["v"]
    assert admitted(plan(out, [returns(out, "v"), asks("owed", "bob", 100)], 9.0)) == ["owed"]


def test_a_kernel_gets_normal_priority_within_its_quota_alone_where_low_alone_borrows() -> None:
    text = TWO.replace("abe], nominalQuota: 1", "abe], nominalQuota: 1, borrowingPriority: low")
    held = runs(runs(a_node(text=text), "k1", "ann", 100), "k2", "abe", 100, low=True)
    raised = replace(asks("k2", "abe", 100), held=held_of(held.holdings["k2"].grant))
    assert reasons(plan(held, [raised], 9.0)) == {"k2": WaitCode.TEAM_QUOTA}
    assert admitted(plan(held.without("k1"), [raised], 9.0)) == ["k2"]


few_sizes = st.sampled_from([20, 30, 60, 100])
running_now = st.lists(st.tuples(st.sampled_from(["ann", "bob", "cy"]), few_sizes, st.booleans()), max_size=5)
waiting_now = st.lists(st.tuples(st.sampled_from(["ann", "bob", "cy"]), few_sizes), min_size=1, max_size=3)


@example([("ann", 30, False), ("bob", 60, False), ("cy", 20, True)], [("ann", 100)], "true")
@given(running_now, waiting_now, st.sampled_from(["true", "false"]))
def test_evictions_end_where_none_arrives(
    running: list[tuple[str, int, bool]], waiting: list[tuple[str, int]], backfill: str
) -> None:
    teams = "a: {users: [ann]}\n  b: {users: [bob], nominalQuota: 0.5}\n  c: {users: [cy]}\n"
    held = a_node(text=f"queue: {{backfill: {backfill}}}\nteams:\n  {teams}")
    for place, (owner, size, is_backfilled) in enumerate(running):
        if plan(replace(held, quotas=None), [asks("new", owner, size)], 0.0).admissions:
            held = runs(held, f"k{place}", owner, size, is_backfilled=is_backfilled, queued_at=place)
    pending = [asks(f"p{at}", owner, size, since=at + 0.5) for at, (owner, size) in enumerate(waiting)]
    assert cycles(held, pending, 16)[-2:] == [[], []]
