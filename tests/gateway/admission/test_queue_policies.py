"""The policies of the quota file: attained service and Gittins index of users, and estimates, in plans."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from jupyter_aliquot.gateway.planning.gittins import GittinsIndex
from jupyter_aliquot.gateway.planning.node_choice import NodeOrder
from jupyter_aliquot.gateway.scheduling.ledger import Device, Holding, KernelRef, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.planner import Pending, plan
from jupyter_aliquot.gateway.scheduling.queue_policy import PATIENCE_SECONDS, PastUse
from jupyter_aliquot.gateway.sizes.wish import Wish
from jupyter_aliquot.gateway.teams.reading import read_quotas
from jupyter_aliquot.gpu_hook.placement.overcommit import Oversubscription
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request

GIB = 1 << 30
HOUR = 3600.0


def a_ledger(policy: str, **granted_at: float) -> LedgerSnapshot:
    """Return the ledger of a device with nothing free, on which each user has a quarter since then."""
    text = f'queue: {{order: {policy}, backfill: false}}\nteams:\n  all: {{users: ["*"], nominalQuota: 4}}\n'
    device = Device("GPU-0", 0, "Stub", Bytes(8 * GIB), GpuShare(100), Bytes(8 * GIB))
    return LedgerSnapshot(
        node=Node("n", "stub", (device,)),
        holdings={user: holds(user, since) for user, since in granted_at.items()},
        quotas=read_quotas(text, "aliquot.yaml"),
    )


def holds(user: str, since: float) -> Holding:
    grant = Grant(user, user, Request(GpuShare(25)), "n", (Quota("GPU-0", 0, GpuShare(25), Bytes(GIB)),), "", ())
    return Holding(grant, KernelRef(user, user), 0.0, granted_at=since)


def asks(user: str, since: float, seconds: float | None = None) -> Pending:
    return Pending(f"more-{user}", user, Request(GpuShare(25)), since, wish=Wish(seconds=seconds))


def queue(ledger: LedgerSnapshot, *pending: Pending, now: float) -> list[str]:
    return [one.kernel_id.removeprefix("more-") for one in plan(ledger, pending, now).waiting]


def test_the_user_who_had_less_of_the_gpus_goes_first() -> None:
    held = {"long": 0.0, "short": 9.5 * HOUR}
    requests = [asks("long", 9.8 * HOUR), asks("short", 9.9 * HOUR), asks("new", 9.95 * HOUR)]
    assert queue(a_ledger("fifo", **held), *requests, now=10 * HOUR) == ["long", "short", "new"]
    assert queue(a_ledger("las", **held), *requests, now=10 * HOUR) == ["short", "new", "long"]


def test_small_differences_reorder_nothing() -> None:
    held = {"first": 0.0, "second": 60.0}
    assert queue(a_ledger("las", **held), asks("first", 70.0), asks("second", 80.0), now=120.0) == ["first", "second"]


def test_a_request_that_waited_for_an_hour_goes_first() -> None:
    ledger = a_ledger("las", long=0.0)
    requests = [asks("long", 10 * HOUR), asks("new", 10 * HOUR + 60.0)]
    assert queue(ledger, *requests, now=10 * HOUR + PATIENCE_SECONDS - 1.0) == ["new", "long"]
    assert queue(ledger, *requests, now=10 * HOUR + PATIENCE_SECONDS) == ["long", "new"]


def test_with_gittins_goes_first_who_is_most_likely_to_end_soon() -> None:
    ledger = replace(a_ledger("gittins", near=7 * HOUR, far=0.0), past=PastUse(services=GittinsIndex([3300.0] * 9)))
    requests = [asks("far", 8.8 * HOUR), asks("new", 8.9 * HOUR), asks("near", 9.0 * HOUR)]
    assert queue(ledger, *requests, now=9 * HOUR) == ["near", "new", "far"]
    nothing_known = replace(ledger, past=PastUse())
    assert queue(nothing_known, *requests, now=9 * HOUR) == ["new", "near", "far"]


def test_the_shortest_estimate_goes_first_and_a_request_without_one_last() -> None:
    requests = [
        asks("none", 9.0 * HOUR + 100),
        asks("long", 9.0 * HOUR + 200, seconds=7200.0),
        asks("short", 9.0 * HOUR + 300, seconds=600.0),
    ]
    assert queue(a_ledger("srtf", holder=0.0), *requests, now=10 * HOUR) == ["short", "long", "none"]
    assert queue(a_ledger("srtf", holder=0.0), *requests, now=9.0 * HOUR + 100 + HOUR)[0] == "none", "it waited an hour"
    assert queue(a_ledger("fifo", holder=0.0), *requests, now=10 * HOUR) == ["none", "long", "short"]


@given(st.lists(st.floats(0, 5 * HOUR), min_size=1, max_size=6), st.sampled_from(["las", "gittins", "srtf"]))
def test_none_waits_behind_more_than_an_hour_of_later_requests(arrivals: list[float], policy: str) -> None:
    now = 10 * HOUR
    ledger = a_ledger(policy, old=0.0)
    late = sorted(now - one for one in arrivals)
    order = queue(
        ledger,
        asks("old", now - PATIENCE_SECONDS),
        *(asks(f"u{at}", s, seconds=60.0) for at, s in enumerate(late)),
        now=now,
    )
    before = order[: order.index("old")]
    assert all(late[int(user[1:])] <= now - PATIENCE_SECONDS for user in before)


def test_a_team_may_have_an_order_of_its_own() -> None:
    teams = "  a: {users: [ann, abe], queueOrder: srtf}\n  b: {users: [bob, bea]}\n"
    text = f"queue: {{backfill: false}}\nteams:\n{teams}"
    full = Device("GPU-0", 0, "Stub", Bytes(8 * GIB), GpuShare(100), Bytes(8 * GIB))
    ledger = LedgerSnapshot(node=Node("n", "stub", (full,)), quotas=read_quotas(text, "aliquot.yaml"))
    requests = [asks("ann", 1.0, 500.0), asks("bob", 2.0, 500.0), asks("abe", 3.0, 5.0), asks("bea", 4.0, 5.0)]
    assert queue(ledger, *requests, now=5.0) == ["abe", "bob", "ann", "bea"]
    alike = replace(ledger, quotas=read_quotas(text.replace("srtf", "fifo"), "aliquot.yaml"))
    assert queue(alike, *requests, now=5.0) == ["ann", "bob", "abe", "bea"]


def placed_on(placement: str, running: dict[str, tuple[int, ...]], hundredths: int, times: float = 1.0) -> str:
    """Return the node of a new kernel; *running* are the hundredths held of each node's devices.

    *times*: how many times each device may be reserved.
    """
    text = f'queue: {{placement: {placement}}}\nteams:\n  all: {{users: ["*"], nominalQuota: 99}}\n'
    nodes, holdings = [], dict[str, Holding]()
    for name, held in running.items():
        devices = [
            Device(f"{name}{at}", at, "Stub", Bytes(8 * GIB), GpuShare(one), Bytes(8 * GIB * one // 100))
            for at, one in enumerate(held)
        ]
        nodes.append(Node(name, "stub", tuple(devices), Oversubscription(times, times)))
        for device, one in zip(devices, held, strict=True):
            quota = Quota(device.uuid, device.index, GpuShare(one), Bytes(GIB))
            grant = Grant(device.uuid, "ann", Request(GpuShare(one)), name, (quota,), "", ())
            holdings |= {device.uuid: Holding(grant, KernelRef(device.uuid, "ann"), 0.0)} if one else {}
    ledger = LedgerSnapshot(others=tuple(nodes), holdings=holdings, quotas=read_quotas(text, "aliquot.yaml"))
    pending = Pending("new", "ann", Request(GpuShare(hundredths)), 0.0)
    (admit,) = plan(ledger, [pending], 1.0).admissions
    return ledger.capacity().node_of(admit.parts)


def test_the_policy_chooses_the_node() -> None:
    running = {"full": (50, 75), "empty": (0, 0), "half": (0, 50)}
    assert placed_on("best-fit", running, 25) == "full"
    assert placed_on("spread", running, 25) == "empty"
    assert placed_on("fragmentation", running, 25) == "full"


@pytest.mark.parametrize("placement", list(NodeOrder))
def test_a_node_where_the_kernel_takes_turns_with_no_other_goes_first(placement: NodeOrder) -> None:
    """Devices that may be reserved twice have room beside a kernel; that room is shared by turns."""
    running = {"busy": (100, 0), "idle": (0, 0)}
    assert placed_on(placement.value, running, 200, times=2.0) == "idle"
    assert placed_on("best-fit", {"busy": (100,), "idle": (0,)}, 50, times=2.0) == "idle"
    assert placed_on("best-fit", {"busier": (150,), "busy": (100,)}, 50, times=2.0) == "busier"


def test_fragmentation_keeps_what_the_usual_sizes_need() -> None:
    """Halves are usual: a quarter breaks no half on a device with three quarters free."""
    running = {"a": (50, 50, 50), "b": (25,)}
    assert placed_on("best-fit", running, 25) == "a"
    assert placed_on("fragmentation", running, 25) == "b"
