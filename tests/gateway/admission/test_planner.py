from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_aliquot.gateway.scheduling.capacity import Held
from jupyter_aliquot.gateway.scheduling.ledger import Device, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.planner import Pending, Plan, plan
from jupyter_aliquot.gateway.scheduling.wait_reason import WaitCode
from jupyter_aliquot.gpu_hook.placement.host_memory import HostShortage
from jupyter_aliquot.gpu_hook.placement.overcommit import Oversubscription
from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.provisioner import errors
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Request, WorkloadClass

GIB = 1 << 30


def a_device(index: int, reserved: int = 0, is_lost: bool = False) -> Device:
    memory = Bytes(8 * GIB)
    return Device(
        f"GPU-{index}", index, "Stub", memory, GpuShare(reserved), Bytes(memory * reserved // 100), is_lost=is_lost
    )


def a_plan(pending: list[Pending], *devices: Device, now: float = 0.0) -> Plan:
    return plan(LedgerSnapshot(node=Node("n", "stub", devices)), pending, now)


def asks(name: str, hundredths: int, *, deadline: float | None = None, limit: int | None = None) -> Pending:
    request = Request(GpuShare(hundredths), None if limit is None else Bytes(limit))
    return Pending(name, "ada", request, since=0.0, deadline=deadline)


def test_heads_that_fit_are_admitted_in_order() -> None:
    planned = a_plan([asks("a", 50), asks("b", 50), asks("c", 25)], a_device(0))
    assert [admit.kernel_id for admit in planned.admissions] == ["a", "b"]
    assert planned.admissions[0].placement() == {"GPU-0": 50}
    assert [(wait.kernel_id, wait.position, wait.reason.sentence) for wait in planned.waiting] == [
        ("c", 1, "Needs 0.25 GPU; none is free")
    ]


def test_a_head_that_does_not_fit_blocks_those_behind_it() -> None:
    planned = a_plan([asks("large", 100), asks("small", 10)], a_device(0, reserved=75))
    assert planned.admissions == ()
    assert [(wait.position, wait.reason.sentence) for wait in planned.waiting] == [
        (1, "Needs 1 GPU; 0.25 GPU is free on gpu0"),
        (2, "Needs 0.1 GPU; enough is free, but requests ahead of it come first"),
    ]


def test_several_devices_are_counted_whole() -> None:
    planned = a_plan([asks("a", 250)], a_device(0), a_device(1), a_device(2, reserved=60))
    assert planned.waiting[0].reason.sentence == "Needs 2.5 GPUs; 2 of 3 GPUs are free"


def test_memory_that_is_missing_is_named() -> None:
    device = replace(a_device(0, reserved=50), reserved_memory=Bytes(7 * GIB + GIB // 2))
    planned = a_plan([asks("a", 10, limit=6 * GIB)], device)
    assert planned.waiting[0].reason.code is WaitCode.GPU_MEMORY
    assert planned.waiting[0].reason.sentence == "Needs 818 MiB of GPU memory; 512 MiB is free on gpu0"


def test_what_can_never_fit_is_refused_and_blocks_nobody() -> None:
    planned = a_plan([asks("huge", 300), asks("small", 25)], a_device(0))
    assert isinstance(planned.refusals[0].error, errors.NeverFitsError)
    assert "Requested 3 GPUs" in str(planned.refusals[0].error)
    assert [admit.kernel_id for admit in planned.admissions] == ["small"]


def test_what_a_lost_device_would_hold_is_refused_as_lost() -> None:
    planned = a_plan([asks("a", 200)], a_device(0), a_device(1, is_lost=True))
    assert isinstance(planned.refusals[0].error, errors.DeviceLostError)
    assert "gpu1 lost" in str(planned.refusals[0].error)


def test_a_request_leaves_the_queue_at_its_deadline_and_says_who_was_before() -> None:
    pending = [asks("a", 100), asks("b", 50, deadline=10.0)]
    assert [wait.kernel_id for wait in a_plan(pending, a_device(0, reserved=50), now=9.9).waiting] == ["a", "b"]
    planned = a_plan(pending, a_device(0, reserved=50), now=10.0)
    (refused,) = planned.refusals
    assert isinstance(refused.error, errors.QueueTimeoutError)
    for want_words in ("Needs 0.5 GPU", "requests ahead of it come first", "waited 10 s", "1 request ahead of it"):
        assert want_words in str(refused.error)


def test_room_at_the_deadline_is_room() -> None:
    planned = a_plan([asks("a", 50, deadline=10.0)], a_device(0), now=11.0)
    assert [admit.kernel_id for admit in planned.admissions] == ["a"]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_every_request_is_in_exactly_one_part_of_the_plan(count: int) -> None:
    pending = [asks(str(n), 30 * (n + 1)) for n in range(6)]
    planned = a_plan(pending, *[a_device(n) for n in range(count)])
    parts = [*planned.admissions, *planned.waiting, *planned.refusals]
    assert sorted(part.kernel_id for part in parts) == [entry.kernel_id for entry in pending]


def low(name: str, hundredths: int) -> Pending:
    return Pending(name, "ada", Request(GpuShare(hundredths), None, WorkloadClass.OPPORTUNISTIC), since=0.0)


def beyond(*devices: Device, largest: int = 0, **rule: float) -> LedgerSnapshot:
    return LedgerSnapshot(node=Node("n", "stub", devices, Oversubscription(**rule), largest))  # type: ignore[arg-type]


def test_more_than_there_is_may_be_promised_up_to_the_ratio() -> None:
    snapshot = beyond(a_device(0, reserved=100), production=2.0, opportunistic=2.0)
    planned = plan(snapshot, [asks("a", 75), asks("b", 25), asks("c", 1)], 0.0)
    assert [admit.kernel_id for admit in planned.admissions] == ["a", "b"]
    assert [wait.kernel_id for wait in planned.waiting] == ["c"]


def test_each_class_has_its_own_ratio() -> None:
    snapshot = beyond(a_device(0, reserved=100), production=1.0, opportunistic=1.5)
    planned = plan(snapshot, [low("low", 50), low("late", 25)], 0.0)
    assert [admit.kernel_id for admit in planned.admissions] == ["low"]
    assert plan(snapshot, [asks("production", 25)], 0.0).admissions == ()


def test_what_devices_lack_has_to_have_room_on_the_host() -> None:
    node = beyond(a_device(0, reserved=75), largest=2 * GIB, host_bytes=10 * GIB, production=2.0)
    planned = plan(node, [asks("a", 50), asks("b", 1)], 0.0)
    assert [admit.kernel_id for admit in planned.admissions] == ["a"], "all that the host has is taken"
    assert [wait.kernel_id for wait in planned.waiting] == ["b"]


def test_host_memory_that_lacks_is_named_though_the_gpu_has_room() -> None:
    """The GPU may promise three quarters more, but the host has no memory for the copies."""
    node = beyond(a_device(0, reserved=125), largest=8 * GIB, host_bytes=11 * GIB, production=2.0)
    [wait] = plan(node, [asks("a", 50)], 0.0).waiting
    assert wait.reason.code is WaitCode.HOST_MEMORY
    assert wait.reason.host == HostShortage(needs_bytes=14 * GIB, budget_bytes=11 * GIB)
    assert wait.reason.free_gpus == 75, "the GPU is not what lacks"
    want_words = (
        "copies of swapped-out kernels may then need 14.0 GiB of host memory, and 11.0 GiB is set aside for them"
    )
    assert wait.reason.sentence == f"Needs 0.5 GPU; {want_words}"


def test_a_growth_counts_what_it_has_and_tells_only_its_own_gpu() -> None:
    held = Held((Part("GPU-0", 0, 50, 4 * GIB),), WorkloadClass.PRODUCTION)
    planned = a_plan([replace(asks("a", 75), held=held)], a_device(0, reserved=90), a_device(1))
    [wait] = planned.waiting
    assert (wait.reason.code, wait.reason.gpus, wait.reason.memory_bytes) == (WaitCode.GPU, 25, 2 * GIB)
    assert (wait.reason.free_gpus, wait.reason.device, wait.reason.is_growth) == (10, 0, True)
    assert wait.reason.sentence == "Needs 0.25 GPU more; 0.1 GPU is free on gpu0"


def test_a_growth_in_memory_alone_names_the_memory() -> None:
    held = Held((Part("GPU-0", 0, 50, 4 * GIB),), WorkloadClass.PRODUCTION)
    request = Request(GpuShare(50), Bytes(7 * GIB), residency="off")
    planned = a_plan([Pending("a", "ada", request, 0.0, held=held)], a_device(0, reserved=90))
    [wait] = planned.waiting
    assert wait.reason.code is WaitCode.GPU_MEMORY
    assert wait.reason.sentence.startswith("Needs 3.0 GiB more of GPU memory; ")


def test_requests_of_one_size_that_leave_memory_differently_have_reasons_of_their_own() -> None:
    burstable = Pending("a", "ada", Request(GpuShare(50), Bytes(8 * GIB)), 0.0)
    fixed = Pending("b", "ada", Request(GpuShare(50), Bytes(8 * GIB), residency="off"), 0.0)
    planned = a_plan([asks("large", 100), burstable, fixed], a_device(0, reserved=50))
    assert [wait.reason.code for wait in planned.waiting] == [WaitCode.GPU, WaitCode.AHEAD, WaitCode.GPU_MEMORY]


def test_a_limit_beyond_the_share_is_burstable_and_reserves_nothing() -> None:
    planned = a_plan([asks("a", 50, limit=8 * GIB), asks("b", 50)], a_device(0))
    assert [admit.kernel_id for admit in planned.admissions] == ["a", "b"]
    [part] = planned.admissions[0].parts
    assert (part.quota_bytes, part.reserved_bytes) == (8 * GIB, 4 * GIB)
    fixed = Pending("c", "ada", Request(GpuShare(50), Bytes(8 * GIB), residency="off"), since=0.0)
    assert a_plan([fixed], a_device(0, reserved=25)).admissions == (), "what is never swapped is reserved whole"


def test_who_shrinks_is_not_refused_where_the_ratio_was_lowered() -> None:
    has = (Part("GPU-0", 0, 80, 8 * GIB * 80 // 100),)
    shrinks = replace(asks("a", 40), held=Held(has, WorkloadClass.PRODUCTION))
    planned = plan(beyond(a_device(0, reserved=160)), [shrinks], 0.0)
    assert [admit.kernel_id for admit in planned.admissions] == ["a"]


def test_pages_that_no_host_can_hold_are_refused_for_good_and_those_that_one_can_are_not() -> None:
    def managed(gib: int) -> Pending:
        return Pending("m", "ada", Request(GpuShare(100), Bytes(gib * GIB), residency="managed"), 0.0)

    held = Held((Part("GPU-0", 0, 100, 8 * GIB),), WorkloadClass.PRODUCTION)
    for more in (managed(100), replace(managed(100), held=held)):
        (refused,) = plan(beyond(a_device(0), host_bytes=4 * GIB), [more], 0.0).refusals
        assert isinstance(refused.error, errors.NeverFitsError)
        assert "4.0 GiB of host memory is for what leaves them" in str(refused.error)
    full = a_device(0, reserved=100)
    assert not plan(beyond(full, host_bytes=4 * GIB), [managed(12)], 0.0).refusals
    larger = replace(a_device(1, reserved=100), memory=Bytes(96 * GIB))
    assert not plan(beyond(full, larger, host_bytes=4 * GIB), [managed(100)], 0.0).refusals, (
        "the larger one can hold it"
    )
    assert not plan(beyond(full), [managed(100)], 0.0).refusals, "the host has no limit"
