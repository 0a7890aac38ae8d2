"""Gangs in a node: all of a kernel's devices or none, in one NVLink or PCIe domain while it may wait for one."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, strategies as st

from jupyter_aliquot.gateway.node.agent_calls import read_device
from jupyter_aliquot.gateway.scheduling.dry_run import Candidate, QueueState, dry_run
from jupyter_aliquot.gateway.scheduling.foreseeing.ends import expected_starts
from jupyter_aliquot.gateway.scheduling.ledger import Device, Holding, KernelRef, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.planner import Pending, Plan, plan
from jupyter_aliquot.gateway.scheduling.wait_reason import WaitCode
from jupyter_aliquot.gateway.teams.reading import read_quotas
from jupyter_aliquot.gpu_hook.client.reports import DeviceStatus
from jupyter_aliquot.gpu_hook.placement.overcommit import Oversubscription, Reserved
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request

GIB = 1 << 30
PAIRS = (0, 0, 1, 1)
WAIT = 'queue: {localityWait: 30s}\nteams:\n  all: {users: ["*"], nominalQuota: 8}\n'


def a_node(*held: int, domains: tuple[int | None, ...] = PAIRS, name: str = "", quotas: str = "") -> LedgerSnapshot:
    """Return a node on whose devices so many hundredths are held, and the domain of each device."""
    devices = tuple(
        Device(
            f"GPU-{name}{at}", at, "Stub", Bytes(8 * GIB), GpuShare(share), Bytes(8 * GIB * share // 100), domain=domain
        )
        for at, (share, domain) in enumerate(zip(held, domains, strict=False))
    )
    file = read_quotas(quotas, "aliquot.yaml") if quotas else None
    return LedgerSnapshot(node=Node(name, "stub", devices), quotas=file)


def asks(hundredths: int, since: float = 0.0, name: str = "k") -> Pending:
    return Pending(name, "ann", Request(GpuShare(hundredths)), since)


def parts(planned: Plan, name: str = "k") -> dict[str, int]:
    """Return what a request gets, by the number of the device; nothing for one that waits."""
    found = [one.placement() for one in planned.admissions if one.kernel_id == name]
    return {uuid.removeprefix("GPU-"): share for one in found for uuid, share in one.items()}


def test_two_and_a_half_gpus_start_with_all_their_devices_or_with_none() -> None:
    lacks = plan(a_node(0, 0, 60, 75), [asks(250)], 0.0)
    assert (parts(lacks), lacks.waiting[0].reason.code) == ({}, WaitCode.GPU)
    assert parts(plan(a_node(0, 0, 50, 75), [asks(250)], 0.0)) == {"0": 100, "1": 100, "2": 50}


def test_a_pair_of_gpus_is_in_one_domain_where_one_has_room() -> None:
    assert parts(plan(a_node(0, 100, 0, 0), [asks(200)], 0.0)) == {"2": 100, "3": 100}
    assert parts(plan(a_node(0, 100, 0, 50), [asks(150)], 0.0)) == {"2": 100, "3": 50}
    unknown = a_node(0, 100, 0, 0, domains=(None,) * 4)
    assert parts(plan(unknown, [asks(200)], 0.0)) == {"0": 100, "2": 100}, "an earlier agent tells no domains"


def test_the_fullest_domain_that_holds_it_is_taken() -> None:
    six = (0, 0, 0, 0, 1, 1)
    assert parts(plan(a_node(*[0] * 6, domains=six), [asks(200)], 0.0)) == {"4": 100, "5": 100}


def test_a_node_with_a_domain_for_it_goes_before_one_that_is_fuller() -> None:
    apart, together = a_node(0, 100, 0, 100, name="a").node, a_node(0, 0, 0, 0, name="b").node
    ledger = LedgerSnapshot(others=(apart, together))
    assert parts(plan(ledger, [asks(200)], 0.0)) == {"b0": 100, "b1": 100}
    assert parts(plan(ledger, [asks(100)], 0.0)) == {"a0": 100}, "one device is in one domain anywhere"


def test_without_a_wait_devices_of_several_domains_will_do_at_once() -> None:
    assert parts(plan(a_node(0, 100, 0, 100), [asks(200)], 0.0)) == {"0": 100, "2": 100}


def test_a_request_waits_for_one_domain_and_takes_any_devices_after_that() -> None:
    ledger = a_node(0, 100, 0, 100, quotas=WAIT)
    early = plan(ledger, [asks(200)], 29.0)
    assert parts(early) == {}
    assert early.waiting[0].reason.code is WaitCode.LOCALITY
    assert early.waiting[0].reason.sentence == (
        "Needs 2 GPUs; enough is free, but not in one NVLink or PCIe domain, for which it waits 30 s"
    )
    assert parts(plan(ledger, [asks(200)], 30.0)) == {"0": 100, "2": 100}
    assert parts(plan(ledger, [asks(200, since=99.0)], 0.0)) == {}, "a clock that went back counts as no waiting"
    assert parts(plan(a_node(0, 0, 0, 100, quotas=WAIT), [asks(200)], 1.0)) == {"0": 100, "1": 100}


def test_a_size_that_no_domain_holds_does_not_wait_for_one() -> None:
    assert parts(plan(a_node(0, 0, 0, 0, quotas=WAIT), [asks(300)], 0.0)) == {"0": 100, "1": 100, "2": 100}


def test_later_requests_leave_one_that_waits_its_devices() -> None:
    ledger = a_node(0, 100, 0, 100, quotas=WAIT)
    planned = plan(ledger, [asks(200), asks(100, since=1.0, name="later")], 2.0)
    assert planned.admissions == ()
    assert [one.kernel_id for one in planned.waiting] == ["k", "later"]


def test_no_kernel_leaves_for_a_request_that_lacks_one_domain_alone() -> None:
    text = "queue: {localityWait: 30s}\nteams:\n  a: {users: [ann], nominalQuota: 4}\n  b: {users: [bob]}\n"
    ledger = a_node(0, 0, 0, 0, quotas=text)
    ledger = replace(ledger, node=replace(ledger.node, evicted=frozenset()))
    for owner, at in (("bob", 1), ("bob", 3)):
        ledger = with_kernel(ledger, owner, at)
    assert plan(ledger, [asks(200)], 9.0).evictions == ()
    assert [one.wanted_by for one in plan(ledger, [asks(300)], 9.0).evictions] == ["k"]


def with_kernel(ledger: LedgerSnapshot, owner: str, at: int) -> LedgerSnapshot:
    """Return the ledger once a kernel of this owner holds the device with this number."""
    name, quota = f"{owner}-{at}", Quota(f"GPU-{at}", at, GpuShare(100), Bytes(8 * GIB))
    grant = Grant(name, owner, Request(GpuShare(100)), "", (quota,), "", ())
    devices = tuple(
        one.with_reserved(Reserved(100, 8 * GIB, 100, 8 * GIB)) if one.index == at else one
        for one in ledger.node.devices
    )
    holdings = {**ledger.holdings, name: Holding(grant, KernelRef(name, owner), 0.0)}
    return replace(ledger, node=replace(ledger.node, devices=devices), holdings=holdings)


def test_the_dry_run_and_the_expected_start_know_the_wait() -> None:
    ledger = a_node(0, 100, 0, 100, quotas=WAIT)
    told = dry_run(QueueState(ledger), Candidate("ann", Request(GpuShare(200))), 0.0)
    assert (told.outcome.value, "one NVLink or PCIe domain" in told.message) == ("queued", True)
    assert expected_starts(ledger, [asks(200, since=5.0)], {}, 10.0) == {"k": 35.0}


@given(
    st.lists(st.tuples(st.sampled_from((0, 50, 100)), st.integers(0, 2)), min_size=2, max_size=6),
    st.sampled_from((150, 200, 250, 300)),
)
def test_domains_hide_no_room_and_are_kept_where_one_suffices(devices: list[tuple[int, int]], size: int) -> None:
    held, domains = (tuple(part) for part in zip(*devices, strict=True))
    got = parts(plan(a_node(*held, domains=domains), [asks(size)], 0.0))
    anywhere = parts(plan(a_node(*held, domains=(0,) * len(held)), [asks(size)], 0.0))
    assert sum(got.values()) == sum(anywhere.values())
    alone = [
        parts(plan(a_node(*(share if one == domain else 100 for share, one in devices)), [asks(size)], 0.0))
        for domain in set(domains)
    ]
    if any(alone):
        assert len({domains[int(at)] for at in got}) == 1


def test_kernels_that_take_turns_are_kept_in_one_domain_and_none_takes_turns_for_that() -> None:
    def shared(*held: int, quotas: str = "") -> LedgerSnapshot:
        ledger = a_node(*held, quotas=quotas)
        return replace(ledger, node=replace(ledger.node, rule=Oversubscription(2.0, 2.0)))

    assert len({PAIRS[int(at)] for at in parts(plan(shared(100, 100, 100, 100), [asks(200)], 0.0))}) == 1
    assert parts(plan(shared(0, 100, 0, 100), [asks(200)], 0.0)) == {"0": 100, "2": 100}
    assert parts(plan(shared(50, 50, 0, 0, quotas=WAIT), [asks(200)], 0.0)) == {"2": 100, "3": 100}


def test_the_ledger_has_the_domain_that_the_agent_tells() -> None:
    facts = {"index": 0, "uuid": "GPU-0", "name": "Stub", "memory_bytes": 8 * GIB, "lost": False}
    rest = {"reserved_bytes": 0, "reserved_hundredths": 0, "utilization_percent": 0}
    told = DeviceStatus(**facts, **rest, temperature_celsius=None, power_watts=None, domain=3)  # type: ignore[arg-type]
    assert read_device(told).domain == 3
