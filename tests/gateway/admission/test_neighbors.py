"""The choice of neighbors by measured loads: after guarantees and fragmentation, with a floor."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from jupyter_aliquot.gateway.planning.colocation import Interference, Loads, Profile
from jupyter_aliquot.gateway.scheduling.ledger import Device, Holding, KernelRef, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.planner import Pending, Plan, plan
from jupyter_aliquot.gateway.scheduling.wait_reason import WaitCode
from jupyter_aliquot.gateway.teams.reading import QuotaFileError, read_quotas
from jupyter_aliquot.gpu_hook.placement.overcommit import Oversubscription
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request, WorkloadClass

GIB = 1 << 30
MEMORY = Bytes(8 * GIB)
HEAVY, MEDIUM, LIGHT = Profile(0.0, 0.9), Profile(0.0, 0.5), Profile(0.0, 0.1)
FLOOR = 'queue: {neighborFloor: 0.9}\nteams:\n  all: {users: ["*"], nominalQuota: 16}\n'
NORMAL, LOW = WorkloadClass.PRODUCTION, WorkloadClass.OPPORTUNISTIC
# A kernel: its node, device, share, load and class.
Resident = tuple[int, int, int, Profile | None, WorkloadClass]


def a_cluster(
    residents: list[Resident],
    *,
    nodes: int = 1,
    devices: int = 2,
    floor: bool = False,
    most: float = 1.0,
    newcomer: Profile | None = None,
) -> LedgerSnapshot:
    """Return nodes with these kernels; *newcomer* is the last load of ann's python3."""
    holdings, loads = dict[str, Holding](), dict[str, Profile]()
    held: dict[str, list[tuple[int, WorkloadClass]]] = {}
    for at, (node, device, share, load, kind) in enumerate(residents):
        uuid, name = f"GPU-{node}-{device}", f"r{at}"
        request, quota = Request(GpuShare(share), None, kind), Quota(uuid, device, GpuShare(share), _memory(share))
        holdings[name] = Holding(Grant(name, "bob", request, f"n{node}", (quota,), "", ()), KernelRef(name, "bob"), 0.0)
        held.setdefault(uuid, []).append((share, kind))
        if load is not None:
            loads[name] = load
    rule = Oversubscription(most, most)
    made = tuple(
        Node(f"n{node}", "stub", tuple(_device(node, at, held) for at in range(devices)), rule, evicted=frozenset())
        for node in range(nodes)
    )
    quotas = read_quotas(FLOOR, "aliquot.yaml") if floor else None
    earlier = {} if newcomer is None else {("ann", "python3"): newcomer}
    return LedgerSnapshot(others=made, holdings=holdings, quotas=quotas, loads=Loads(loads, earlier))


def _memory(share: int) -> Bytes:
    return Bytes(int(MEMORY) * share // 100)


def _device(node: int, at: int, held: dict[str, list[tuple[int, WorkloadClass]]]) -> Device:
    uuid = f"GPU-{node}-{at}"
    there = held.get(uuid, [])
    total, normal = (sum(share for share, kind in there if kind in kinds) for kinds in ((NORMAL, LOW), (NORMAL,)))
    by_class = (GpuShare(normal), _memory(normal))
    return Device(uuid, at, "Stub", MEMORY, GpuShare(total), _memory(total), by_production=by_class)


def asks(share: int = 25, *, low: bool = False, name: str = "k", since: float = 0.0) -> Pending:
    request = Request(GpuShare(share), None, LOW if low else NORMAL)
    return Pending(name, "ann", request, since, kernelspec="python3")


def places(planned: Plan) -> list[str]:
    return [uuid.removeprefix("GPU-") for one in planned.admissions for uuid in one.placement()]


def test_a_kernel_is_placed_away_from_a_heavy_neighbor() -> None:
    heavy_first = [(0, 0, 60, HEAVY, NORMAL), (0, 1, 60, LIGHT, NORMAL)]
    assert places(plan(a_cluster(heavy_first), [asks()], 0.0)) == ["0-1"]
    light_first = [(0, 0, 60, LIGHT, NORMAL), (0, 1, 60, HEAVY, NORMAL)]
    assert places(plan(a_cluster(light_first), [asks()], 0.0)) == ["0-0"]


def test_of_nodes_alike_the_one_with_the_lighter_neighbor_is_chosen() -> None:
    residents = [(0, 0, 60, HEAVY, NORMAL), (1, 0, 60, MEDIUM, NORMAL), (2, 0, 60, LIGHT, NORMAL)]
    assert places(plan(a_cluster(residents, nodes=3, devices=1), [asks()], 0.0)) == ["2-0"]


def test_fragmentation_comes_before_neighbors() -> None:
    residents = [(0, 0, 75, HEAVY, NORMAL), (0, 1, 25, LIGHT, NORMAL)]
    assert places(plan(a_cluster(residents), [asks()], 0.0)) == ["0-0"], "it fills the device"


def test_two_kernels_of_one_plan_see_each_other() -> None:
    ledger = a_cluster([(0, 0, 60, MEDIUM, NORMAL), (0, 1, 60, LIGHT, NORMAL)], newcomer=HEAVY)
    assert places(plan(ledger, [asks(20), asks(20, name="l", since=1.0)], 0.0)) == ["0-1", "0-1"], "best fit"
    ledger = a_cluster([(0, 0, 60, MEDIUM, NORMAL), (0, 1, 60, LIGHT, NORMAL)], newcomer=HEAVY, floor=True)
    planned = plan(ledger, [asks(20), asks(20, name="l", since=1.0)], 0.0)
    assert (places(planned), planned.waiting[0].reason.code) == (["0-1"], WaitCode.NEIGHBORS)


def test_without_measured_kernels_the_first_of_equal_devices_is_taken() -> None:
    residents: list[Resident] = [(0, 0, 60, None, NORMAL), (0, 1, 60, None, NORMAL)]
    assert places(plan(a_cluster(residents), [asks()], 0.0)) == ["0-0"]


def test_a_kernel_of_normal_priority_refuses_a_neighbor_below_the_floor() -> None:
    residents = [(0, 0, 60, HEAVY, NORMAL)]
    planned = plan(a_cluster(residents, devices=1, floor=True, newcomer=MEDIUM), [asks()], 0.0)
    assert planned.admissions == ()
    assert planned.waiting[0].reason.code is WaitCode.NEIGHBORS
    assert planned.waiting[0].reason.sentence == (
        "Needs 0.25 GPU; enough is free, but beside the kernels there one of normal priority would run below 0.9 of "
        "its speed alone (neighborFloor)"
    )
    assert places(plan(a_cluster(residents, devices=2, floor=True, newcomer=MEDIUM), [asks()], 0.0)) == ["0-1"]


@pytest.mark.parametrize(
    ("load", "resident", "newcomer", "low", "want"),
    [
        (MEDIUM, HEAVY, LOW, True, ["0-0"]),  # two of low priority
        (MEDIUM, HEAVY, LOW, False, []),  # it would itself be too slow
        (MEDIUM, HEAVY, NORMAL, True, []),
        (LIGHT, LIGHT, NORMAL, False, ["0-0"]),
        (None, HEAVY, NORMAL, False, ["0-0"]),  # it was never measured
        (MEDIUM, None, NORMAL, False, ["0-0"]),
    ],
)
def test_the_floor_is_for_measured_pairs_with_one_of_normal_priority(
    load: Profile | None, resident: Profile | None, newcomer: WorkloadClass, low: bool, want: list[str]
) -> None:
    ledger = a_cluster([(0, 0, 60, resident, newcomer)], devices=1, floor=True, newcomer=load)
    assert places(plan(ledger, [asks(low=low)], 0.0)) == want


def test_a_request_that_neighbors_refuse_starts_when_they_have_ended() -> None:
    ledger = a_cluster([(0, 0, 60, HEAVY, NORMAL)], devices=1, floor=True, newcomer=MEDIUM)
    assert places(plan(ledger, [asks()], 0.0)) == []
    assert places(plan(ledger.without("r0"), [asks()], 1.0)) == ["0-0"]


def test_an_evicted_kernel_is_no_neighbor() -> None:
    ledger = a_cluster([(0, 0, 60, HEAVY, NORMAL)], devices=1, floor=True, newcomer=MEDIUM)
    out = {"r0": replace(ledger.holdings["r0"], is_evicted=True)}
    assert places(plan(replace(ledger, holdings=out), [asks()], 0.0)) == ["0-0"]


@pytest.mark.parametrize("value", ["-0.1", "1.5", "much"])
def test_a_floor_that_is_no_part_is_refused_with_its_line(value: str) -> None:
    with pytest.raises(QuotaFileError, match=r"aliquot\.yaml:1: queue\.neighborFloor .*from 0 to 0\.944"):
        read_quotas(f"queue: {{neighborFloor: {value}}}\nteams: {{}}\n", "aliquot.yaml")


@pytest.mark.parametrize("value", ["0.945", "1"])
def test_a_floor_above_what_is_predicted_of_any_pair_is_refused(value: str) -> None:
    wanted = rf"neighborFloor is '{value}'\. Use a number from 0 to 0\.944, such as 0\.9 \(above .*\); 0 is off"
    with pytest.raises(QuotaFileError, match=wanted):
        read_quotas(f"queue: {{neighborFloor: {value}}}\nteams: {{}}\n", "aliquot.yaml")


def test_at_the_highest_floor_light_kernels_still_share() -> None:
    """Otherwise no pair would be measured, and no model be fitted."""
    quotas = read_quotas(FLOOR.replace("0.9", "0.944"), "aliquot.yaml")
    ledger = replace(a_cluster([(0, 0, 60, LIGHT, NORMAL)], devices=1, newcomer=LIGHT), quotas=quotas)
    assert places(plan(ledger, [asks()], 0.0)) == ["0-0"]


_profiles = st.none() | st.builds(Profile, *[st.sampled_from((0.0, 0.3, 0.6, 1.0))] * 2)
_residents = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 1), st.sampled_from((10, 25, 40)), _profiles, st.sampled_from((NORMAL, LOW))
    ),
    max_size=6,
)
_asked = st.tuples(st.sampled_from((10, 25, 50, 100, 150)), st.booleans())
_cases = {
    "residents": _residents,
    "requests": st.lists(_asked, max_size=5),
    "newcomer": _profiles,
    "floor": st.booleans(),
    "most": st.sampled_from((1.0, 2.0)),
}


def a_queue(requests: list[tuple[int, bool]]) -> list[Pending]:
    return [asks(share, low=low, name=f"k{at}", since=float(at)) for at, (share, low) in enumerate(requests)]


@settings(max_examples=60, deadline=None)
@given(**_cases)
def test_neighbors_never_cost_a_guarantee_and_the_plan_is_the_same_again(
    residents: list[Resident], requests: list[tuple[int, bool]], newcomer: Profile | None, floor: bool, most: float
) -> None:
    ledger = a_cluster(residents, nodes=3, floor=floor, most=most, newcomer=newcomer)
    planned = plan(ledger, a_queue(requests), 10.0)
    assert planned == plan(replace(ledger), a_queue(requests), 10.0)
    reserved = {one.uuid: one.reserved.hundredths for node in ledger.others for one in node.devices}
    for admit in planned.admissions:
        for uuid, share in admit.placement().items():
            reserved[uuid] += share
            assert reserved[uuid] <= 100 * most


@settings(max_examples=60, deadline=None)
@given(residents=_residents, asked=_asked)
def test_without_a_floor_a_request_starts_as_ever_and_leaves_as_much(
    residents: list[Resident], asked: tuple[int, bool]
) -> None:
    ledger = a_cluster(residents, nodes=3, newcomer=HEAVY)
    known = plan(ledger, a_queue([asked]), 10.0)
    unknown = plan(replace(ledger, loads=Loads()), a_queue([asked]), 10.0)
    assert known.waiting == unknown.waiting
    assert _left(ledger, known) == _left(ledger, unknown)


def _left(ledger: LedgerSnapshot, planned: Plan) -> list[list[int]]:
    """Return what each node has left on its devices, whichever node and device that is."""
    taken = {uuid: share for one in planned.admissions for uuid, share in one.placement().items()}
    return sorted(
        sorted(one.reserved.hundredths + taken.get(one.uuid, 0) for one in node.devices) for node in ledger.others
    )


def test_a_model_that_was_learned_decides_in_place_of_the_rule() -> None:
    # Here pairs of light kernels are slow, and heavy ones are not.
    pairs = [(Profile(0.0, at / 20), Profile(0.0, at / 20), 0.5 + at / 40) for at in range(21)]
    ledger = a_cluster([(0, 0, 60, LIGHT, NORMAL), (0, 1, 60, HEAVY, NORMAL)], newcomer=LIGHT)
    learned = replace(ledger, loads=replace(ledger.loads, model=Interference(pairs)))
    assert places(plan(ledger, [asks()], 0.0)) == ["0-0"]
    assert places(plan(learned, [asks()], 0.0)) == ["0-1"]
