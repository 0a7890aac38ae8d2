"""GPU limits of users and teams: the sum never exceeds them, in any order of requests."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from jupyter_aliquot.gateway.scheduling.admission import Admission
from jupyter_aliquot.gateway.scheduling.ledger import Holding, KernelRef, LedgerSnapshot
from jupyter_aliquot.gateway.scheduling.planner import Pending
from jupyter_aliquot.gateway.scheduling.quotas import GpuCaps, claims_of, gpu_limit_report
from jupyter_aliquot.provisioner import errors
from jupyter_aliquot.provisioner.resources import GpuShare, Grant, Request

TEAMS = {"ada": frozenset({"vision", "speech"}), "bob": frozenset({"vision"}), "cy": frozenset({"hikers"})}
CAPS = GpuCaps(GpuShare(150), {"cy": None, "bob": GpuShare(90)}, {"vision": GpuShare(200), "speech": GpuShare(60)})

names, kernels, sizes = st.sampled_from(sorted(TEAMS)), st.integers(0, 5), st.sampled_from([1, 25, 50, 75, 100])
steps = st.lists(
    st.tuples(st.sampled_from(["submit", "resize", "release", "adopt"]), kernels, names, sizes), max_size=30
)


def a_requester(kernel_id: str, owner: str) -> KernelRef:
    return KernelRef(kernel_id, owner, f"{kernel_id}.ipynb", "python3", TEAMS[owner])


def taken(admission: Admission) -> dict[str, int]:
    """Return the hundredths that each user and each team holds and waits for."""
    snapshot, sums = admission.snapshot(), dict.fromkeys([*TEAMS, "vision", "speech", "hikers"], 0)
    for holding in snapshot.holdings:
        for name in (holding.requester.owner, *holding.requester.teams):
            sums[name] += holding.grant.request.gpus.hundredths
    for pending in snapshot.pending:
        for name in (pending.owner, *pending.teams):
            sums[name] += pending.more
    return sums


def limits() -> dict[str, int]:
    users = {name: CAPS.of_user(name) for name in TEAMS}
    return {name: limit.hundredths for name, limit in {**users, **CAPS.teams}.items() if limit is not None}


async def act(admission: Admission, agent: Any, step: tuple[str, int, str, int]) -> None:
    verb, number, owner, hundredths = step
    kernel_id, request = f"k{number}", Request(GpuShare(hundredths))
    if verb == "submit":
        admission.submit(a_requester(kernel_id, owner), request)
    elif verb == "resize":
        await admission.resize(kernel_id, request)
    elif verb == "release":
        await admission.release(kernel_id)
    elif admission.waiting(kernel_id) is None and kernel_id not in admission.snapshot().ledger.holdings:
        requester = a_requester(kernel_id, owner)
        grant = agent.held.get(kernel_id) or Grant(kernel_id, owner, request, "node", (), f"/k/{kernel_id}", ())
        admission.adopt(Holding(grant, requester, 0.0))


@given(steps=steps)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_cap_is_exceeded_by_what_is_asked_in_any_order(play: Any, settle: Any, steps: list[Any]) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        for step in steps:
            before = taken(admission)
            with contextlib.suppress(errors.AliquotError):
                await act(admission, agent, step)
            await settle()
            after = taken(admission)
            for name, limit in limits().items():
                # An adopted kernel runs already: admission never refuses it, and adds nothing to it
                # then.
                adopted = step[0] == "adopt" and after[name] > before[name]
                assert adopted or after[name] <= max(limit, before[name]), (step, name)

    play(scene, devices=3, caps=CAPS)


def test_a_kernel_has_to_fit_each_of_its_owners_teams_and_no_message_names_others(play: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await admission.submit(a_requester("a", "ada"), Request(GpuShare(50)))
        with pytest.raises(errors.LimitError) as speech:
            admission.submit(a_requester("b", "ada"), Request(GpuShare(25)))
        assert str(speech.value).startswith(
            "Requested 0.25 GPU, but the team speech holds 0.5, waits for 0 and may have 0.6 together; "
            "of its own ada holds 0.5"
        )
        await admission.submit(a_requester("c", "bob"), Request(GpuShare(90)))
        with pytest.raises(errors.LimitError, match=r"bob holds 0\.9, waits for 0 and may have 0\.9 in all") as own:
            admission.submit(a_requester("d", "bob"), Request(GpuShare(1)))
        assert "ada" not in str(own.value)
        assert "bob" not in str(speech.value)
        # Neither she nor her team has a limit.
        await admission.submit(a_requester("e", "cy"), Request(GpuShare(100)))

    play(scene, devices=3, caps=CAPS)


def test_a_resize_counts_only_what_is_more_and_a_smaller_size_is_never_refused(play: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        grant = await agent.reserve(a_requester("a", "bob"), Request(GpuShare(90)), {"GPU-0": 90})
        admission.adopt(Holding(grant, a_requester("a", "bob"), 0.0))
        with pytest.raises(errors.LimitError):
            await admission.resize("a", Request(GpuShare(95)))
        grant = await admission.resize("a", Request(GpuShare(80)))
        assert isinstance(grant, Grant)
        assert grant.request.gpus == GpuShare(80)

    play(scene, devices=3, caps=GpuCaps(users={"bob": GpuShare(50)}))


def test_kernels_count_for_the_teams_that_their_owner_was_in_when_they_were_asked_for(play: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await admission.submit(KernelRef("a", "ada", teams=frozenset({"vision"})), Request(GpuShare(90)))
        left_it = KernelRef("b", "ada", teams=frozenset())
        await admission.submit(left_it, Request(GpuShare(50)))
        with pytest.raises(errors.LimitError, match=r"the team vision holds 0\.9"):
            admission.submit(KernelRef("c", "bob", teams=frozenset({"vision"})), Request(GpuShare(20)))
        snapshot = admission.snapshot()
        caps = GpuCaps(GpuShare(200), teams={"vision": GpuShare(100)})
        assert gpu_limit_report(caps, snapshot.ledger, snapshot.pending, "bob", {"vision", "hikers"}) == {
            "gpus": 2.0,
            "held_gpus": 0.0,
            "queued_gpus": 0.0,
            "left_gpus": 2.0,
            "teams": [{"name": "vision", "gpus": 1.0, "held_gpus": 0.9, "queued_gpus": 0.0, "left_gpus": 0.1}],
        }

    play(scene, devices=2, caps=GpuCaps(teams={"vision": GpuShare(100)}))


def test_what_a_gateway_before_us_had_queued_keeps_its_place_and_what_is_new_has_to_fit_the_queue(play: Any) -> None:
    def is_full(requester: KernelRef, pending: Any) -> None:
        raise errors.LimitError("the queue is full")

    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        old = admission.submit(a_requester("old", "ada"), Request(GpuShare(50)), waits_since=clock.wall() - 5)
        with pytest.raises(errors.LimitError, match="the queue is full"):
            admission.submit(a_requester("new", "ada"), Request(GpuShare(10)), waits_since=clock.wall())
        with pytest.raises(errors.LimitError, match="the queue is full"):
            admission.check(a_requester("new", "ada"), Request(GpuShare(10)))
        await old
        assert isinstance(await admission.resize("old", Request(GpuShare(60))), Grant), "it runs, and waits for nobody"

    play(scene, devices=2, check_queue=is_full)


def test_what_is_given_up_counts_for_the_teams_alone_in_which_it_was_held() -> None:
    old = Grant("old", "ada", Request(GpuShare(50)), "node", (), "/k/old", ())
    held = Holding(old, KernelRef("old", "ada", teams=frozenset({"vision"})), 0.0)
    ledger = LedgerSnapshot(holdings={"old": held})

    def waits(*teams: str) -> list[int]:
        one = Pending("new", "ada", Request(GpuShare(75)), 0.0, teams=frozenset(teams), replaces=frozenset({"old"}))
        return [claim.waits for claim in claims_of(ledger, [one], CAPS, "bob", teams) if claim.waits]

    assert (waits("vision"), waits("speech"), waits("vision", "speech")) == ([25], [75], [75])


def test_a_released_kernel_counts_for_its_users_limits_while_a_process_of_it_keeps_memory(
    play: Any, settle: Any
) -> None:
    """An account could release at the door, keep its memory, and ask again without end."""

    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        agent.keeps_memory = {"k0"}
        for kernel_id in ("k0", "k1"):
            await admission.submit(a_requester(kernel_id, "bob"), Request(GpuShare(45)))
        for kernel_id in ("k0", "k1"):
            await admission.release(kernel_id)
        await admission.submit(a_requester("k2", "bob"), Request(GpuShare(45)))
        assert set(admission.snapshot().ledger.holdings) == {"k2"}
        for _ in range(3):
            with pytest.raises(errors.LimitError, match=r"may have 0\.9"):
                admission.submit(a_requester("k3", "bob"), Request(GpuShare(1)))
            agent.tell()
            await settle()
        await admission.submit(a_requester("k3", "ada"), Request(GpuShare(1)))  # no other user pays for it
        agent.keeps_memory = set()
        agent.tell()
        await settle()
        await admission.submit(a_requester("k4", "bob"), Request(GpuShare(45)))

    play(scene, caps=CAPS, devices=2)


def test_a_gateway_that_starts_counts_what_an_earlier_one_released_while_a_process_keeps_it(
    play: Any, settle: Any
) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        agent.keeps_memory = {"k0"}
        await admission.submit(a_requester("k0", "bob"), Request(GpuShare(60)))
        earlier = admission.snapshot().ledger.holdings["k0"]
        await admission.release("k0")
        agent.keeps_memory = set()
        agent.tell()
        await settle()
        agent.keeps_memory = {"k0"}  # as a gateway finds it that was not there before
        admission.adopt_ending(earlier)
        agent.tell()
        await settle()
        with pytest.raises(errors.LimitError, match=r"may have 0\.9"):
            admission.submit(a_requester("k1", "bob"), Request(GpuShare(45)))
        agent.keeps_memory = set()
        agent.tell()
        await settle()
        await admission.submit(a_requester("k1", "bob"), Request(GpuShare(45)))

    play(scene, caps=CAPS)


def test_a_kernel_that_is_granted_again_while_it_ends_counts_once(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        agent.keeps_memory = {"k0"}
        for _ in range(3):
            await admission.submit(a_requester("k0", "bob"), Request(GpuShare(60)))  # more than half of 0.9
            assert sum(claim.held for claim in claims_of(admission.snapshot().ledger, (), CAPS, "bob", ())) == 60
            await admission.release("k0")
            assert sum(claim.held for claim in claims_of(admission.snapshot().ledger, (), CAPS, "bob", ())) == 60

    play(scene, caps=CAPS)
