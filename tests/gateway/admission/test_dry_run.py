"""Dry runs: each predicts the outcome of the same request.

Each test makes the request at once of the real admission, whose agent is scripted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from jupyter_aliquot.gateway.scheduling.admission import Admission
from jupyter_aliquot.gateway.scheduling.dry_run import LARGEST, Candidate, DryRun, Outcome, QueueState, dry_run
from jupyter_aliquot.gateway.scheduling.ledger import Device, Holding, KernelRef, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.planner import Pending
from jupyter_aliquot.gateway.scheduling.quotas import GpuCaps
from jupyter_aliquot.provisioner import errors
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request, WorkloadClass

GIB = 1 << 30
LIMIT = GpuShare(250)


@dataclass(frozen=True)
class Ask:
    """A request for a dry run.

    ``grows`` is the number of the running kernel that is to change its size; None for a new kernel.
    """

    owner: str
    request: Request
    grows: int | None = None


shares = st.sampled_from([1, 10, 25, 50, 75, 100, 110, 150, 200, 260, 400]).map(GpuShare)
limits = st.none() | st.integers(1, 20).map(lambda gib: Bytes(gib * GIB))
requests = st.builds(Request, shares, limits, st.sampled_from(WorkloadClass))
requesters = st.sampled_from(["ada", "bob", "cy"])
before = st.lists(st.builds(Ask, requesters, requests), max_size=7)
questions = st.builds(Ask, requesters, requests, st.none() | st.integers(0, 6))


async def asked(admission: Admission, agent: Any, ask: Ask, held: list[Grant]) -> tuple[DryRun, Grant | None]:
    known = admission.snapshot()
    grant = held[ask.grows % len(held)] if ask.grows is not None and held else None
    state = QueueState(replace(known.ledger, node=await agent.status()), known.pending, GpuCaps(LIMIT), LARGEST)
    owner = ask.owner if grant is None else grant.owner
    return dry_run(state, Candidate(owner, ask.request, grant), 0.0), grant


async def what_happens(admission: Admission, settle: Any, ask: Ask, grant: Grant | None) -> tuple[Outcome, int | None]:
    """Make the request of the real admission; return its outcome and its position in the queue."""
    kernel_id = "new" if grant is None else grant.kernel_id
    try:
        if grant is not None:
            done = await admission.resize(kernel_id, ask.request)
            return (Outcome.STARTS, None) if isinstance(done, Grant) else (Outcome.QUEUED, done.position)
        future = admission.submit(KernelRef(kernel_id, ask.owner), ask.request)
        await settle()
        if future.done():
            future.result()
            return Outcome.STARTS, None
    except errors.AliquotError:
        return Outcome.NEVER, None
    entry = admission.waiting(kernel_id)
    assert entry is not None
    return Outcome.QUEUED, entry.position


@given(before=before, ask=questions, devices=st.integers(1, 3))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_dry_run_tells_what_admission_then_does(
    play: Any, settle: Any, before: list[Ask], ask: Ask, devices: int
) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        for number, one in enumerate(before):
            try:
                admission.submit(KernelRef(f"k{number}", one.owner), one.request)
            except errors.AliquotError:
                continue
            await settle()
        snapshot = admission.snapshot()
        told, grant = await asked(admission, agent, ask, [holding.grant for holding in snapshot.holdings])
        assert admission.snapshot() == snapshot, "a dry run changes nothing"
        did, position = await what_happens(admission, settle, ask, grant)
        assert told.outcome is did, told
        if did is Outcome.STARTS:
            holding = {h.grant.kernel_id: h.grant for h in admission.snapshot().holdings}
            quotas = holding["new" if grant is None else grant.kernel_id].quotas
            assert told.quota_bytes == sum(quota.memory for quota in quotas)
        if did is Outcome.QUEUED and grant is None:
            assert told.position == position

    play(scene, devices=devices, caps=GpuCaps(LIMIT))


@given(before=before, ask=questions, which=st.integers(0, 6), devices=st.integers(1, 3))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_dry_run_of_a_replacement_tells_what_admission_then_does(
    play: Any, settle: Any, before: list[Ask], ask: Ask, which: int, devices: int
) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        for number, one in enumerate(before):
            try:
                admission.submit(KernelRef(f"k{number}", one.owner), one.request)
            except errors.AliquotError:
                continue
            await settle()
        known = admission.snapshot()
        if not known.holdings:
            return
        old = known.holdings[which % len(known.holdings)].grant
        state = QueueState(replace(known.ledger, node=await agent.status()), known.pending, GpuCaps(LIMIT), LARGEST)
        replaces = frozenset({old.kernel_id})
        told = dry_run(state, Candidate(old.owner, ask.request, replaces=replaces), 0.0)
        did, position = await what_a_replacement_does(admission, settle, old, ask.request)
        assert (told.outcome, told.position) == (did, position)
        if did is Outcome.STARTS:
            [new] = [h.grant for h in admission.snapshot().holdings if h.grant.kernel_id == "new"]
            assert told.quota_bytes == sum(quota.memory for quota in new.quotas)

    play(scene, devices=devices, caps=GpuCaps(LIMIT))


async def what_a_replacement_does(
    admission: Admission, settle: Any, old: Grant, request: Request
) -> tuple[Outcome, int | None]:
    """Replace a kernel, which ends when admission asks for it; return outcome and position."""
    ending: list[str] = []
    asker = KernelRef("new", old.owner, replaces=frozenset({old.kernel_id}))
    try:
        future = admission.submit(asker, request, on_room_reserved=lambda: ending.append(old.kernel_id))
        await settle()
        for kernel_id in ending:
            await admission.release(kernel_id)
        await settle()
        if future.done():
            future.result()
            return Outcome.STARTS, None
    except errors.AliquotError:
        return Outcome.NEVER, None
    entry = admission.waiting("new")
    assert entry is not None
    return Outcome.QUEUED, entry.position


def test_a_kernel_that_gives_up_room_is_replaced_before_others_in_the_queue() -> None:
    half = Quota("GPU-0", 0, GpuShare(50), Bytes(4 * GIB))
    grant = Grant("old", "bob", Request(GpuShare(50)), "n", (half,), "", ())
    state = a_state(0, pending=1)
    holding = Holding(grant, KernelRef("old", "bob"), 0.0)
    state = replace(state, ledger=replace(state.ledger, holdings={"old": holding}))
    told = dry_run(state, Candidate("bob", Request(GpuShare(25)), replaces=frozenset({"old"})), 0.0)
    assert (told.outcome, told.message) == (Outcome.STARTS, "starts at once")


def a_state(*free: int, pending: int = 0, limit: int | None = None, **rest: Any) -> QueueState:
    """Return a queue state of 8 GiB devices.

    ``free`` is the free hundredths of each device, ``pending`` the number of queued requests, each
    for a whole device.
    """
    memory = Bytes(8 * GIB)
    devices = tuple(
        Device(f"GPU-{index}", index, "Stub", memory, GpuShare(100 - left), Bytes(memory * (100 - left) // 100))
        for index, left in enumerate(free)
    )
    queue = tuple(Pending(f"w{n}", "bob", Request(GpuShare(100)), 0.0) for n in range(pending))
    ledger = LedgerSnapshot(node=Node("n", "stub", devices))
    return QueueState(ledger, queue, GpuCaps(None if limit is None else GpuShare(limit)), **rest)


@pytest.mark.parametrize(
    ("state", "request_", "want_outcome", "want_message"),
    [
        (a_state(100), Request(GpuShare(50)), "starts", "starts at once"),
        (a_state(25), Request(GpuShare(50)), "queued", "queued: needs 0.5 GPU; 0.25 GPU is free on gpu0"),
        (
            a_state(25, pending=2),
            Request(GpuShare(50)),
            "queued",
            "queued, 2 ahead: needs 0.5 GPU; 0.25 GPU is free on gpu0",
        ),
        (
            a_state(75, pending=1),
            Request(GpuShare(50)),
            "queued",
            "queued, 1 ahead: needs 0.5 GPU; enough is free, but requests ahead of it come first",
        ),
        (a_state(100, 60), Request(GpuShare(200)), "queued", "queued: needs 2 GPUs; 1 of 2 GPUs is free"),
        (
            a_state(50),
            Request(
                GpuShare(20),
                Bytes(5 * GIB),
            ),
            "starts",
            "starts at once",
        ),
        (
            a_state(100, 100),
            Request(GpuShare(250)),
            "never",
            "never fits: requested 2.5 GPUs (20.0 GiB), but this node has 2 GPUs (16.0 GiB). Ask for less",
        ),
        (
            a_state(100, largest=GpuShare(50)),
            Request(GpuShare(60)),
            "never",
            "never fits: requested 0.6 GPU, but this server grants at most 0.5 GPU. Choose a smaller size",
        ),
        (
            a_state(100),
            Request(GpuShare(50), Bytes(9 * GIB)),
            "never",
            "never fits: requested 0.5 GPU (9.0 GiB), but this node has 1 GPU (8.0 GiB). Ask for less",
        ),
        (
            a_state(),
            Request(GpuShare(50)),
            "never",
            "never fits: requested 0.5 GPU, but this node has no GPU. See nvidia-smi and aliquot doctor",
        ),
        (
            a_state(100, limit=40),
            Request(GpuShare(50)),
            "never",
            "over limit: requested 0.5 GPU, but ada holds 0, waits for 0 and may have 0.4 in all. Choose a smaller "
            "size, end a kernel that is not needed, or, to change the size of one that runs, resize it or end it first",
        ),
        (
            a_state(100, problem="nobody answers"),
            Request(GpuShare(50)),
            "queued",
            "queued: the node agent does not answer: nobody answers. The gateway tries again",
        ),
    ],
)
def test_a_dry_run_says_in_a_sentence(
    state: QueueState, request_: Request, want_outcome: str, want_message: str
) -> None:
    told = dry_run(state, Candidate("ada", request_), 0.0)
    assert (told.outcome.value, told.message) == (want_outcome, want_message)


def test_a_dry_run_of_a_running_kernel_speaks_of_its_own_devices() -> None:
    half = Quota("GPU-0", 0, GpuShare(50), Bytes(4 * GIB))
    grant = Grant("k", "bob", Request(GpuShare(50)), "n", (half,), "", ())
    said = {
        hundredths: dry_run(a_state(25, 100), Candidate("bob", Request(GpuShare(hundredths)), grant), 0.0).message
        for hundredths in (25, 50, 75, 80, 110)
    }
    assert said == {
        25: "changes at once",
        50: "it has this size",
        75: "changes at once",
        80: "queued: needs 0.3 GPU more; 0.25 GPU is free on gpu0",
        110: "not on its GPUs: requested 1.1 GPUs, which takes 2 devices; the kernel has 0.5 GPU on 1 device, "
        "and a kernel keeps its devices while it runs. Choose a size on 1 device, or start a kernel of the other size",
    }


def test_a_class_that_its_owner_may_not_have_is_not_allowed() -> None:
    refusal = errors.LimitError("Requested a class that ada may not have")
    told = dry_run(a_state(100), Candidate("ada", Request(GpuShare(50)), refusal=refusal), 0.0)
    assert (told.outcome, told.message) == (Outcome.NEVER, "not allowed: requested a class that ada may not have")
    assert told.quota_bytes == 4 * GIB


def test_a_kernel_that_another_program_started_does_not_wait_here() -> None:
    half = Quota("GPU-0", 0, GpuShare(50), Bytes(4 * GIB))
    grant = Grant("k", "bob", Request(GpuShare(50)), "n", (half,), "", ())
    told = dry_run(a_state(25), Candidate("bob", Request(GpuShare(80)), grant, is_queued=False), 0.0)
    assert (told.outcome, told.message) == (Outcome.NEVER, "not now: needs 0.3 GPU more; 0.25 GPU is free on gpu0")


@given(before=before, ask=questions, which=st.integers(0, 6), devices=st.integers(1, 3))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_room_is_counted_as_it_is_when_a_kernel_has_ended(
    play: Any, settle: Any, before: list[Ask], ask: Ask, which: int, devices: int
) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        for number, one in enumerate(before):
            try:
                admission.submit(KernelRef(f"k{number}", one.owner), one.request)
            except errors.AliquotError:
                continue
            await settle()
            if admission.waiting(f"k{number}") is not None:
                admission.withdraw(f"k{number}")
        holdings = admission.snapshot().holdings
        if holdings:
            ended = holdings[which % len(holdings)].grant.kernel_id
            ledger = replace(admission.snapshot().ledger, node=await agent.status())
            told = dry_run(QueueState(ledger.without(ended)), Candidate(ask.owner, ask.request), 0.0)
            await admission.release(ended)
            await settle()
            after = replace(admission.snapshot().ledger, node=await agent.status())
            assert told == dry_run(QueueState(after), Candidate(ask.owner, ask.request), 0.0)

    play(scene, devices=devices)
