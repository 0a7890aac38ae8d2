"""What an outlook tells is what happens to who asks at once: by the real admission, with an agent turned by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from jupyter_aliquot.gateway.scheduling.admission import Admission
from jupyter_aliquot.gateway.scheduling.capacity import Room, RoomDevice
from jupyter_aliquot.gateway.scheduling.dry_run import LARGEST, Moment, Outcome, Outlook, Question, foresee
from jupyter_aliquot.gateway.scheduling.ledger import Asker, Device, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.planner import Pending
from jupyter_aliquot.gateway.scheduling.quotas import GpuCaps
from jupyter_aliquot.gateway.scheduling.room_limits import alone, largest_share, most_memory
from jupyter_aliquot.provisioner import errors
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request, WorkloadClass

GIB = 1 << 30
LIMIT = GpuShare(250)


@dataclass(frozen=True)
class Ask:
    """``grows``: which of the kernels that run is to change, by its number."""

    owner: str
    request: Request
    grows: int | None = None


shares = st.sampled_from([1, 10, 25, 50, 75, 100, 110, 150, 200, 260, 400]).map(GpuShare)
limits = st.none() | st.integers(1, 20).map(lambda gib: Bytes(gib * GIB))
requests = st.builds(Request, shares, limits, st.sampled_from(WorkloadClass))
askers = st.sampled_from(["ada", "bob", "cy"])
before = st.lists(st.builds(Ask, askers, requests), max_size=7)
questions = st.builds(Ask, askers, requests, st.none() | st.integers(0, 6))


async def asked(admission: Admission, agent: Any, ask: Ask, held: list[Grant]) -> tuple[Outlook, Grant | None]:
    known = admission.snapshot()
    grant = held[ask.grows % len(held)] if ask.grows is not None and held else None
    moment = Moment(replace(known.ledger, node=await agent.status()), known.pending, GpuCaps(LIMIT), LARGEST)
    owner = ask.owner if grant is None else grant.owner
    return foresee(moment, Question(owner, ask.request, grant), 0.0), grant


async def what_happens(admission: Admission, settle: Any, ask: Ask, grant: Grant | None) -> tuple[Outcome, int | None]:
    """To the same request, when it is made."""
    kernel_id = "new" if grant is None else grant.kernel_id
    try:
        if grant is not None:
            done = await admission.resize(kernel_id, ask.request)
            return (Outcome.STARTS, None) if isinstance(done, Grant) else (Outcome.QUEUED, done.position)
        future = admission.submit(Asker(kernel_id, ask.owner), ask.request)
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
def test_an_outlook_tells_what_admission_then_does(
    play: Any, settle: Any, before: list[Ask], ask: Ask, devices: int
) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        for number, one in enumerate(before):
            try:
                admission.submit(Asker(f"k{number}", one.owner), one.request)
            except errors.AliquotError:
                continue
            await settle()
        snapshot = admission.snapshot()
        told, grant = await asked(admission, agent, ask, [holding.grant for holding in snapshot.holdings])
        assert admission.snapshot() == snapshot, "an outlook changes nothing"
        did, position = await what_happens(admission, settle, ask, grant)
        assert told.outcome is did, told
        if did is Outcome.STARTS:
            holding = {h.grant.kernel_id: h.grant for h in admission.snapshot().holdings}
            quotas = holding["new" if grant is None else grant.kernel_id].quotas
            assert told.quota_bytes == sum(quota.memory for quota in quotas)
        if did is Outcome.QUEUED and grant is None:
            assert told.position == position

    play(scene, devices=devices, caps=GpuCaps(LIMIT))


def a_moment(*free: int, pending: int = 0, limit: int | None = None, **rest: Any) -> Moment:
    """Devices of 8 GiB with this much free, and others in the queue who ask for a whole one."""
    memory = Bytes(8 * GIB)
    devices = tuple(
        Device(f"GPU-{index}", index, "Stub", memory, GpuShare(100 - left), Bytes(memory * (100 - left) // 100))
        for index, left in enumerate(free)
    )
    queue = tuple(Pending(f"w{n}", "bob", Request(GpuShare(100)), 0.0) for n in range(pending))
    ledger = LedgerSnapshot(node=Node("n", "stub", devices))
    return Moment(ledger, queue, GpuCaps(None if limit is None else GpuShare(limit)), **rest)


@pytest.mark.parametrize(
    ("moment", "request_", "want_outcome", "want_message"),
    [
        (a_moment(100), Request(GpuShare(50)), "starts", "starts at once"),
        (a_moment(25), Request(GpuShare(50)), "queued", "queued: needs 0.5 GPU; 0.25 GPU is free on gpu0"),
        (
            a_moment(25, pending=2),
            Request(GpuShare(50)),
            "queued",
            "queued behind 2: needs 0.5 GPU; 0.25 GPU is free on gpu0",
        ),
        (
            a_moment(75, pending=1),
            Request(GpuShare(50)),
            "queued",
            "queued behind 1: needs 0.5 GPU; enough is free, but requests ahead of it come first",
        ),
        (a_moment(100, 60), Request(GpuShare(200)), "queued", "queued: needs 2 GPUs; 1 of 2 GPUs is free"),
        (
            a_moment(50),
            Request(
                GpuShare(20),
                Bytes(5 * GIB),
            ),
            "starts",
            "starts at once",
        ),
        (a_moment(100, 100), Request(GpuShare(250)), "never", "never fits: the largest is 2 GPUs"),
        (
            a_moment(100, largest=GpuShare(50)),
            Request(GpuShare(60)),
            "never",
            "never fits: the largest is 0.5 GPU",
        ),
        (
            a_moment(100),
            Request(GpuShare(50), Bytes(9 * GIB)),
            "never",
            "never fits: the most memory for 0.5 GPU is 8 GiB",
        ),
        (a_moment(), Request(GpuShare(50)), "never", "never fits: there is no GPU"),
        (a_moment(100, limit=40), Request(GpuShare(50)), "never", "over your quota of 0.4 GPU: 0.4 is left"),
        (
            a_moment(100, problem="nobody answers"),
            Request(GpuShare(50)),
            "queued",
            "queued: the node agent does not answer: nobody answers. The gateway tries again",
        ),
    ],
)
def test_an_outlook_says_in_a_sentence(moment: Moment, request_: Request, want_outcome: str, want_message: str) -> None:
    told = foresee(moment, Question("ada", request_), 0.0)
    assert (told.outcome.value, told.message) == (want_outcome, want_message)


def test_an_outlook_of_a_running_kernel_speaks_of_its_own_devices() -> None:
    half = Quota("GPU-0", 0, GpuShare(50), Bytes(4 * GIB))
    grant = Grant("k", "bob", Request(GpuShare(50)), "n", (half,), "", ())
    said = {
        hundredths: foresee(a_moment(25, 100), Question("bob", Request(GpuShare(hundredths)), grant), 0.0).message
        for hundredths in (25, 50, 75, 80, 110)
    }
    assert said == {
        25: "changes at once",
        50: "it has this size",
        75: "changes at once",
        80: "queued: needs 0.3 GPU more; 0.25 GPU is free on gpu0",
        110: "it keeps its one GPU while it runs: 1 GPU is the most",
    }


def test_a_class_that_one_may_not_have_is_said_plainly() -> None:
    refusal = errors.LimitError("asked 0.5 GPU of the class production; …")
    told = foresee(a_moment(100), Question("ada", Request(GpuShare(50)), refusal=refusal), 0.0)
    assert (told.outcome, told.message) == (Outcome.NEVER, "you may have opportunistic kernels only")
    assert told.quota_bytes == 4 * GIB


def test_a_kernel_that_another_program_started_does_not_wait_here() -> None:
    half = Quota("GPU-0", 0, GpuShare(50), Bytes(4 * GIB))
    grant = Grant("k", "bob", Request(GpuShare(50)), "n", (half,), "", ())
    told = foresee(a_moment(25), Question("bob", Request(GpuShare(80)), grant, is_queued=False), 0.0)
    assert (told.outcome, told.message) == (Outcome.NEVER, "not now: needs 0.3 GPU more; 0.25 GPU is free on gpu0")


@given(
    memories=st.lists(st.integers(1, 3), min_size=1, max_size=6),
    lost=st.integers(0, 3),
    share=st.sampled_from([1, 30, 100, 170, 300]).map(GpuShare),
)
@settings(max_examples=40, deadline=None)
def test_the_largest_that_is_told_is_the_largest_that_fits(memories: list[int], lost: int, share: GpuShare) -> None:
    devices = tuple(RoomDevice(f"G{n}", n, GIB * size, n < lost) for n, size in enumerate(memories))
    room, request = Room(devices), Request(share)
    most = largest_share(room, request)
    if most.hundredths:
        assert alone(room, replace(request, gpus=most)) is not None
    assert alone(room, replace(request, gpus=GpuShare(most.hundredths + 1))) is None
    memory = most_memory(room, request)
    if memory:
        assert alone(room, replace(request, memory_limit=memory)) is not None
        assert alone(room, replace(request, memory_limit=Bytes(memory + (share.hundredths << 21)))) is None
    else:
        assert alone(room, request) is None


@given(before=before, ask=questions, which=st.integers(0, 6), devices=st.integers(1, 3))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_room_is_counted_as_it_is_when_a_kernel_has_ended(
    play: Any, settle: Any, before: list[Ask], ask: Ask, which: int, devices: int
) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        for number, one in enumerate(before):
            try:
                admission.submit(Asker(f"k{number}", one.owner), one.request)
            except errors.AliquotError:
                continue
            await settle()
            if admission.waiting(f"k{number}") is not None:
                admission.withdraw(f"k{number}")
        holdings = admission.snapshot().holdings
        if holdings:
            ended = holdings[which % len(holdings)].grant.kernel_id
            ledger = replace(admission.snapshot().ledger, node=await agent.status())
            told = foresee(Moment(ledger.without(ended)), Question(ask.owner, ask.request), 0.0)
            await admission.release(ended)
            await settle()
            after = replace(admission.snapshot().ledger, node=await agent.status())
            assert told == foresee(Moment(after), Question(ask.owner, ask.request), 0.0)

    play(scene, devices=devices)
