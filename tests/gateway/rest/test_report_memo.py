"""Reports of a thousand kernels to two hundred users: counts of reports made once, and for each."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.kernels.kernel import NOT_REPORTED
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gateway.nodes.remote_node import RemoteNodeView
from jupyter_aliquot.gateway.reports.kernel import Kernel
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gateway.sharing.registry import KernelOwners, ShareRegistry
from jupyter_aliquot.gateway.sharing.shares import Share, Shares
from jupyter_aliquot.gateway.status.collector import KernelMemo, local_kernels
from jupyter_aliquot.gateway.status.report import (
    LocalKernel,
    StatusSnapshot,
    status_parts,
    status_report,
    status_text,
)
from jupyter_aliquot.gateway.status.report_cache import ReportMemo
from jupyter_aliquot.gpu_hook.client.reports import NodeStatus
from jupyter_aliquot.gpu_hook.client.status_reader import StatusReader
from jupyter_aliquot.provisioner.resources import GpuShare, Request

from .fake_agent import device, kernel

COUNT = 1000
USERS = 200
NODE = {"node": "n", "driver": "softgpu", "enforcer": "hook", "connections": 1}
ADA = User("ada", "admin")


def said(*changed: dict[str, Any]) -> dict[str, Any]:
    """Return an agent's status with all kernels.

    ``changed`` replaces those of the same id.
    """
    kernels = {f"k{number}": kernel(f"k{number}", f"u{number % USERS}") for number in range(COUNT)}
    kernels |= {one["kernel_id"]: one for one in changed}
    report = {**NODE, "devices": [device(index=n, uuid=f"G{n}") for n in range(64)], "kernels": list(kernels.values())}
    found: dict[str, Any] = json.loads(json.dumps(report))
    return found


def snapshot(status: NodeStatus | None, memo: ReportMemo) -> StatusSnapshot:
    request = Request(GpuShare(25))
    kernels = (LocalKernel(f"k{n}", "python3.gpu-0.25", f"u{n % USERS}", "", request, "on_gpu") for n in range(COUNT))
    return StatusSnapshot("1", node=NodeView(status), kernels=tuple(kernels), memo=memo)


@pytest.fixture
def reader() -> StatusReader:
    return StatusReader()


def test_a_user_costs_the_reports_of_his_own_kernels(reader: StatusReader) -> None:
    memo, status = ReportMemo(), reader.read(said())
    report = status_report(snapshot(status, memo), User("u7", "user"))
    assert {one["owner"] for one in report["kernels"]} == {"u7"}
    assert memo.made == len(report["kernels"]) == COUNT // USERS


def test_all_who_ask_are_told_from_one_report_of_each_kernel(reader: StatusReader) -> None:
    memo, status = ReportMemo(), reader.read(said())
    for number in range(USERS):
        status_text(snapshot(status, memo), User(f"u{number}", "user"))
    status_text(snapshot(status, memo), ADA)
    assert memo.made == COUNT
    # The next second the agent reports the same in a new message.
    later = reader.read(said())
    status_text(snapshot(later, memo), ADA)
    assert memo.made == COUNT


def test_one_kernel_that_changed_is_one_new_report(reader: StatusReader) -> None:
    memo = ReportMemo()
    status_text(snapshot(reader.read(said()), memo), ADA)
    changed = reader.read(said(kernel("k7", "u7", hundredths=25, interception="leaks")))
    text = status_text(snapshot(changed, memo), ADA)
    assert memo.made == COUNT + 1
    told = {one["id"]: one["interception"] for one in json.loads(text)["kernels"]}
    assert told["k7"] == "leaks"
    assert set(told.values()) == {"active", "leaks"}


def test_what_is_remembered_is_what_would_be_told_anew(reader: StatusReader) -> None:
    memo, status = ReportMemo(), reader.read(said())
    for who in (ADA, User("u3", "user"), User("nobody", "user")):
        for _ in range(2):
            asked = snapshot(status, memo)
            want = status_report(replace(asked, memo=ReportMemo()), who)
            assert json.loads(status_text(asked, who)) == json.loads(json.dumps(want))


def test_kernels_that_are_gone_are_not_remembered_for_long(reader: StatusReader) -> None:
    memo, status = ReportMemo(), reader.read(said())
    status_text(snapshot(status, memo), ADA)
    there = [f"k{number}" for number in range(9 * COUNT // 10)]
    for new in range(2):  # a report of one round stays until the next
        for number in range(COUNT // 5):
            memo.report(f"new-{new}-{number}", "own", (number,), lambda _: {})
        memo.forget_others(lambda: there)
    made = memo.made
    assert memo.count() == len(there) + COUNT // 5
    memo.forget_others(list)  # few came since the last call
    status_text(snapshot(status, memo), ADA)
    assert memo.made == made + COUNT // 10


@pytest.mark.parametrize("count", [60, 100, 1000])
def test_what_is_shown_stays_however_many_are_no_kernels_of_the_node(count: int) -> None:
    memo = ReportMemo()
    for look in range(10):
        memo.forget_others(lambda: ())
        for number in range(count):
            memo.report(f"plain-{number}", "own", (number,), lambda _: {})
        assert memo.made == count, f"made again at look {look}"


def test_what_ended_kernels_leave_is_bounded_by_those_that_are_there(reader: StatusReader) -> None:
    memo, values = ReportMemo(), KernelMemo()
    for number in range(3000):
        kernel_id = f"short-{number}"
        values.of(kernel_id, ("python3", "ada", *[None] * 4, *("", "on_gpu", "", "idle"), *[None] * 3, *NOT_REPORTED))
        values.forget_others([kernel_id])
        memo.report(kernel_id, "own", (number,), lambda _: {})
        memo.forget_others(lambda alive=kernel_id: [alive])
    assert max(memo.count(), len(values._made)) < 600


def test_the_reader_reads_a_kernel_again_only_when_it_changed(reader: StatusReader) -> None:
    before = {one.kernel_id: one for one in reader.read(said()).kernels}
    after = {one.kernel_id: one for one in reader.read(said(kernel("k1", "u1", generation=2))).kernels}
    assert [name for name, one in after.items() if one is not before[name]] == ["k1"]
    assert after["k1"].generation == 2


class Activities:
    """The activities of kernels that have no relay."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def marked(self, kernel_ids: Iterable[str]) -> Iterator[tuple[str, Any, None]]:
        for one in kernel_ids:
            if one in self._manager.owners:
                yield one, self._manager.get_kernel(one), None

    def seen(self, kernel_id: str) -> tuple[None, None, None]:
        return None, None, None


class Manager:
    """A manager of a thousand kernels that are only owners.

    It notes which of them the gateway looks at.
    """

    def __init__(self) -> None:
        self.owners = KernelOwners({f"k{number}": f"u{number % USERS}" for number in range(COUNT)})
        self.sharing = ShareRegistry(self, self.owners, (), logging.getLogger("test"))
        self.activity = Activities(self)
        self.gathered: list[str] = []
        self.shares: dict[str, Shares] = {}
        self.judged: list[str] = []

    def __contains__(self, kernel_id: str) -> bool:
        return kernel_id in self.owners

    def list_kernel_ids(self) -> list[str]:
        return list(self.owners)

    def owner_of(self, kernel_id: str) -> str | None:
        return self.sharing.owner_of(kernel_id)

    def find(self, kernel_id: str) -> Any:
        self.judged.append(kernel_id)
        return SimpleNamespace(shares=self.shares.get(kernel_id, Shares()))

    def get_kernel(self, kernel_id: str) -> Any:
        self.gathered.append(kernel_id)
        metadata = {"kernel_provisioner": {"provisioner_name": "aliquot", "config": {"gpus": "0.25"}}}
        return SimpleNamespace(kernel_name="python3.gpu-0.25", kernel_spec=SimpleNamespace(metadata=metadata))

    def state_of(self, kernel_id: str, kernel: Any) -> tuple[str, str, str]:
        return "on_gpu", "", "idle"


def test_nothing_is_gathered_of_kernels_that_the_asker_may_not_see() -> None:
    manager = Manager()
    visible = manager.sharing.visible_to(User("u7", "user"))
    assert manager.judged == []
    found = list(local_kernels(manager, visible, AdmissionSnapshot("ok", "", ()), {}, {}))
    assert {one.owner for one in found} == {"u7"}
    assert manager.gathered == [one.id for one in found]
    assert len(found) == COUNT // USERS


def test_a_collaborator_sees_shared_kernels_among_his_own_as_they_were_started() -> None:
    manager, u7 = Manager(), User("u7", "user")
    for kernel_id, name in (("k3", "u7"), ("k500", "u8")):
        manager.shares[kernel_id] = Shares((Share("user", name, Access.READ),))
        manager.sharing.note(kernel_id, manager.shares[kernel_id])
    assert manager.sharing.visible_to(u7) == ["k3", "k7", "k207", "k407", "k607", "k807"]
    manager.shares["k3"] = Shares()
    manager.sharing.note("k3", Shares())
    assert manager.sharing.visible_to(u7) == ["k7", "k207", "k407", "k607", "k807"]


def test_a_kernel_is_the_same_value_until_something_of_it_changes() -> None:
    manager, memo = Manager(), KernelMemo()

    def look(**labels: str) -> tuple[LocalKernel, ...]:
        return tuple(local_kernels(manager, ("k1", "k2"), AdmissionSnapshot("ok", "", ()), labels, {}, memo))

    before, same = look(), look()
    assert all(one is other for one, other in zip(before, same, strict=True))
    renamed = look(k1="a.ipynb")
    assert (renamed[0].label, renamed[0] is before[0], renamed[1] is before[1]) == ("a.ipynb", False, True)


def test_a_kernel_that_is_gone_while_others_are_gathered_is_left_out() -> None:
    manager = Manager()
    found = local_kernels(manager, list(manager.owners), AdmissionSnapshot("ok", "", ()), {}, {})
    assert next(found).id == "k0"
    manager.owners.forget("k1")
    assert next(found).id == "k2"


async def test_a_status_in_steps_is_the_same_and_lets_others_run(reader: StatusReader) -> None:
    asked, turns = snapshot(reader.read(said()), ReportMemo()), 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    text = b"".join(await status_parts(asked, ADA))
    counting.cancel()
    assert turns > 2, "a thousand new reports take longer than one step"
    assert text == status_text(asked, ADA)


def test_the_figures_of_a_kernel_on_another_node_are_its_agents(reader: StatusReader) -> None:
    memo, elsewhere = ReportMemo(), StatusReader().read(said())
    own = replace(snapshot(None, memo), nodes=(RemoteNodeView("gpu-a", is_connected=True, status=elsewhere),))

    def k7(asked: StatusSnapshot) -> Kernel:
        return next(one for one in status_report(asked, ADA)["kernels"] if one["id"] == "k7")

    report = k7(own)
    assert (report["interception"], len(report["devices"])) == ("active", 1)
    stale = StatusReader().read(said(kernel("k7", "u7", hundredths=25, interception="leaks")))
    lost = RemoteNodeView("gpu-b", is_connected=False, status=stale)
    assert k7(replace(own, nodes=(*own.nodes, lost))) is report, "a connected node knows better than a lost one"


def test_owners_are_found_from_both_sides() -> None:
    owners = KernelOwners({"a": "ada", "b": "bob", "c": "ada"})
    owners.note("b", "ada")
    assert (dict(owners), list(owners.of("ada")), list(owners.of("bob"))) == (
        {"a": "ada", "c": "ada", "b": "ada"},
        ["a", "c", "b"],
        [],
    )
    for one in ("a", "b", "c", "c"):
        owners.forget(one)
    assert owners == {}
    assert not owners.of("ada")
