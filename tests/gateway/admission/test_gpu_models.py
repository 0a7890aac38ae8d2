"""GPU models as a wish of a request: "H200, else A100", in plans and in what the user is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from jupyter_aliquot.gateway.scheduling.capacity import Held
from jupyter_aliquot.gateway.scheduling.dry_run import Candidate, Outcome, QueueState, dry_run
from jupyter_aliquot.gateway.scheduling.foreseeing.never import never_fits
from jupyter_aliquot.gateway.scheduling.ledger import Device, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.planner import Pending, Plan, plan
from jupyter_aliquot.gateway.sizes.wish import Wish, read_wish, wish_arguments, wish_of
from jupyter_aliquot.gateway.state.persistence import lasting_arguments
from jupyter_aliquot.gateway.teams.reading import read_quotas
from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.provisioner.errors import DeviceLostError, NeverFitsError, RequestError
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Request, WorkloadClass

GIB = 1 << 30
EITHER = ("H200", "A100")
MODELS = (*EITHER, "L40")


def a_node(*devices: tuple[str, int], quotas: str = "") -> LedgerSnapshot:
    """Return the ledger of one node with devices of these models, of which so much is reserved."""
    found = [
        Device(f"GPU-{at}", at, f"NVIDIA {model}", Bytes(8 * GIB), GpuShare(held), Bytes(8 * GIB * held // 100))
        for at, (model, held) in enumerate(devices)
    ]
    return LedgerSnapshot(
        node=Node("n", "stub", tuple(found)), quotas=read_quotas(quotas, "aliquot.yaml") if quotas else None
    )


def asks(name: str, hundredths: int, *models: str, since: float = 0.0) -> Pending:
    return Pending(name, "ann", Request(GpuShare(hundredths)), since, wish=Wish(models))


def models_of(ledger: LedgerSnapshot, planned: Plan, name: str) -> set[str]:
    names = {device.uuid: device.name.removeprefix("NVIDIA ") for device in ledger.node.devices}
    (admit,) = [one for one in planned.admissions if one.kernel_id == name]
    return {names[part.uuid] for part in admit.parts}


@pytest.mark.parametrize("quotas", ["", "teams:\n  a: {users: [ann], nominalQuota: 4}\n"])
def test_a_request_gets_the_first_of_its_models_that_has_room(quotas: str) -> None:
    for h200, want in ((0, "H200"), (75, "A100")):
        ledger = a_node(("A100", 50), ("H200", h200), ("L40", 0), quotas=quotas)
        assert models_of(ledger, plan(ledger, [asks("k", 50, *EITHER)], 0.0), "k") == {want}
    assert models_of(ledger, plan(ledger, [asks("k", 50, "l40")], 0.0), "k") == {"L40"}


def test_all_gpus_of_a_kernel_are_of_one_model() -> None:
    ledger = a_node(("H200", 0), ("A100", 0), ("A100", 0))
    assert models_of(ledger, plan(ledger, [asks("k", 200, *EITHER)], 0.0), "k") == {"A100"}


def test_a_quota_of_one_model_is_used_up_before_the_next_model() -> None:
    ledger = a_node(
        ("H200", 0),
        ("H200", 0),
        ("A100", 0),
        quotas="teams:\n  a: {users: [ann], nominalQuota: {H200: 1, A100: 1}, borrowingLimit: {H200: 0}}\n",
    )
    planned = plan(ledger, [asks(f"k{at}", 100, *EITHER, since=at) for at in range(3)], 3.0)
    assert [models_of(ledger, planned, f"k{at}") for at in range(2)] == [{"H200"}, {"A100"}]
    assert [one.kernel_id for one in planned.waiting] == ["k2"]


def test_a_request_that_waits_for_its_model_says_so_and_holds_up_no_other_model() -> None:
    planned = plan(a_node(("H200", 100), ("A100", 0)), [asks("h", 50, "H200"), asks("a", 50)], 0.0)
    assert [one.kernel_id for one in planned.admissions] == ["a"]
    assert planned.waiting[0].reason.sentence == "Needs 0.5 GPU of the model H200; none is free"


def test_a_model_that_no_node_has_is_refused_with_the_models_that_are_there() -> None:
    ledger = a_node(("A100", 0), ("L40", 0))
    (refused,) = plan(ledger, [asks("k", 50, "H200")], 0.0).refusals
    assert isinstance(refused.error, NeverFitsError)
    assert "the models here are NVIDIA A100, NVIDIA L40" in str(refused.error)
    (two,) = plan(ledger, [asks("k", 200, *EITHER)], 0.0).refusals
    assert "2 GPU of the model H200, else A100" in str(two.error)
    not_known_yet = replace(ledger, is_complete=False)
    assert not plan(not_known_yet, [asks("k", 50, "H200")], 0.0).refusals, "another node may have it"


def test_a_model_whose_gpus_are_lost_is_refused_as_lost() -> None:
    ledger = a_node(("A100", 0), ("H200", 0))
    whole, lost = ledger.node.devices[0], replace(ledger.node.devices[1], is_lost=True)
    ledger = replace(ledger, node=replace(ledger.node, devices=(whole, lost)))
    (refused,) = plan(ledger, [asks("k", 50, "H200")], 0.0).refusals
    assert isinstance(refused.error, DeviceLostError)
    assert "of the model H200, but the node lost gpu1 (NVIDIA H200)" in str(refused.error)
    (none,) = plan(ledger, [asks("k", 50, "L40")], 0.0).refusals
    assert isinstance(none.error, NeverFitsError), "no L40 was there"


def test_a_resize_beyond_the_device_is_told_of_the_device_and_not_of_its_model() -> None:
    small, large = a_node(("A100", 100), ("H200", 0)).node.devices
    devices = (small, replace(large, memory=Bytes(16 * GIB)))
    ledger = LedgerSnapshot(node=Node("n", "stub", devices))
    held = Held((Part("GPU-0", 0, 100, 8 * GIB),), WorkloadClass.PRODUCTION)
    error = never_fits(ledger.capacity(), Request(GpuShare(100), Bytes(10 * GIB)), held, Wish(("A100",)))
    assert isinstance(error, NeverFitsError)
    assert "the device has 8.0 GiB. Ask for less" in str(error)


@given(
    st.lists(
        st.tuples(st.sampled_from(("H200", "A100", "L40")), st.sampled_from((0, 50, 100))), min_size=1, max_size=5
    ),
    st.lists(
        st.tuples(
            st.sampled_from((25, 50, 100, 200)),
            st.lists(st.sampled_from(MODELS), max_size=3, unique=True),
        ),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
)
def test_no_request_gets_another_model_than_it_takes(
    devices: list[tuple[str, int]], sizes: list[tuple[int, list[str]]], has_quotas: bool
) -> None:
    quotas = "teams:\n  a: {users: [ann], nominalQuota: 3}\n" if has_quotas else ""
    ledger = a_node(*devices, quotas=quotas)
    pending = [asks(f"k{at}", size, *models, since=at) for at, (size, models) in enumerate(sizes)]
    planned = plan(ledger, pending, 10.0)
    wishes = {one.kernel_id: one.wish.models for one in pending}
    for admit in planned.admissions:
        got = models_of(ledger, planned, admit.kernel_id)
        wished = wishes[admit.kernel_id]
        assert not wished or (len(got) == 1 and got <= set(wished))
    decided = [*planned.admissions, *planned.waiting, *planned.refusals]
    assert sorted(one.kernel_id for one in decided) == sorted(wishes)
    again = plan(ledger, pending, 10.0)
    assert (again.admissions, again.waiting) == (planned.admissions, planned.waiting)


@pytest.mark.parametrize(
    ("env", "want"),
    [
        ({}, Wish()),
        ({"KERNEL_GPU_MODELS": " H200, A100 ,H200"}, Wish(EITHER)),
        ({"KERNEL_GPU_SECONDS": "900"}, Wish(seconds=900.0)),
    ],
)
def test_a_wish_is_read_and_kept_for_the_next_gateway(env: dict[str, str], want: Wish) -> None:
    assert read_wish(env) == want
    assert wish_of(lasting_arguments(wish_arguments(want))) == want


@pytest.mark.parametrize(
    "env",
    [
        {"KERNEL_GPU_MODELS": "a,b,c,d,e"},
        {"KERNEL_GPU_MODELS": "H200;A100"},
        {"KERNEL_GPU_MODELS": "x" * 41},
        *({"KERNEL_GPU_SECONDS": text} for text in ("soon", "-1", "0", "inf", "nan")),
    ],
)
def test_a_wish_that_is_none_is_refused_by_its_variable(env: dict[str, str]) -> None:
    with pytest.raises(RequestError, match=next(iter(env))):
        read_wish(env)


def test_the_dry_run_of_a_size_tries_the_models_of_the_request() -> None:
    state = QueueState(a_node(("H200", 100), ("A100", 0), ("A100", 0)))

    def told(hundredths: int, *models: str) -> tuple[Outcome, str]:
        found = dry_run(state, Candidate("ann", Request(GpuShare(hundredths)), wish=Wish(models)), 0.0)
        return found.outcome, found.message

    assert told(100) == (Outcome.STARTS, "starts at once")
    assert told(100, "H200") == (Outcome.QUEUED, "queued: needs 1 GPU of the model H200; none is free")
    assert told(100, *EITHER) == (Outcome.STARTS, "starts at once")
    assert told(200, "H200")[0] is Outcome.NEVER
    assert told(100, "B200")[1].startswith("never fits: requested 1 GPU of the model B200, but no node has so many")
