"""Marks of kernels: equal while nothing that a status shows of a kernel has changed, so that it is not asked again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_aliquot.gateway.api.base import pieces
from jupyter_aliquot.gateway.kernels.kernel import ManagedKernel
from jupyter_aliquot.gateway.kernels.relay_activity import RelayActivity
from jupyter_aliquot.gateway.relays.activity import Activity
from jupyter_aliquot.gateway.relays.link import NOTHING_DROPPED
from jupyter_aliquot.gateway.scheduling.ledger import LedgerSnapshot
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gateway.sharing.shares import Shares
from jupyter_aliquot.gateway.status.collector import KernelMemo, local_kernels
from jupyter_aliquot.gateway.status.report import LocalKernel

from .conftest import Ask
from .fake_agent import FakeAgent

IDLE = Activity(0, 0, None, 1.0, 1.0)


class Links:
    """The links of kernels, as RelayActivity asks for them."""

    def __init__(self) -> None:
        self.k1 = SimpleNamespace(activity=IDLE, dropped=NOTHING_DROPPED)

    def get(self, kernel_id: str) -> Any:
        return self.k1 if kernel_id == "k1" else None

    def activity(self, kernel_id: str) -> Activity | None:
        return self.k1.activity


class Manager:
    """A kernel manager that counts how often it is asked for a kernel's state."""

    def __init__(self) -> None:
        self.kernel, self.links, self.asked = ManagedKernel(kernel_name="python3"), Links(), 0
        self.kernel.ready.set_result(None)
        self.owners = {"k1": "ada"}
        links: Any = self.links
        self.activity = RelayActivity({"k1": self.kernel}, links, None, lambda at: None, lambda kernel_id: None)

    def state_of(self, kernel_id: str, kernel: ManagedKernel) -> tuple[str, str, str]:
        self.asked += 1
        return "on_gpu", kernel.reason, kernel.execution_state


def change_activity(manager: Manager) -> None:
    manager.links.k1.activity = Activity(1, 1, 2.0, None, 2.0)


def count_dropped(manager: Manager) -> None:
    manager.links.k1.dropped = {**NOTHING_DROPPED, "rate_limit": 1}


CHANGES: dict[str, Callable[[Manager], None]] = {
    "execution state": lambda manager: setattr(manager.kernel, "execution_state", "busy"),
    "reason": lambda manager: setattr(manager.kernel, "reason", "no memory"),
    "name": lambda manager: setattr(manager.kernel, "kernel_name", "python3.gpu-0.5"),
    "shares": lambda manager: setattr(manager.kernel, "shares", Shares()),
    "crash": lambda manager: setattr(manager.kernel, "last_crash", None),
    "message": lambda manager: setattr(manager.kernel, "owner_message", {"text": "hello"}),
    "activity": change_activity,
    "messages left out": count_dropped,
    "interrupt": lambda manager: manager.activity.note_interrupt("k1"),
}


def look(manager: Manager, memo: KernelMemo, holding: Any, **labels: str) -> LocalKernel:
    ledger: Any = SimpleNamespace(holdings={"k1": holding})
    snapshot = replace(AdmissionSnapshot("ok", "", ()), ledger=ledger)
    [found] = local_kernels(manager, ("k1", "gone"), snapshot, labels, {}, memo)
    return found


@pytest.fixture
def a_holding() -> Any:
    grant = SimpleNamespace(request=None, quotas=())
    return SimpleNamespace(grant=grant, doubt=None, since=1.0)


async def test_a_kernel_without_changes_is_asked_once(a_holding: Any) -> None:
    manager, memo = Manager(), KernelMemo()
    first = look(manager, memo, a_holding)
    assert look(manager, memo, a_holding) is first
    assert manager.asked == 1
    look(manager, memo, a_holding, k1="a.ipynb")
    look(manager, memo, SimpleNamespace(**{**vars(a_holding), "since": 2.0}), k1="a.ipynb")
    assert manager.asked == 3, "another label, and another grant"


@pytest.mark.parametrize("what", CHANGES)
async def test_a_kernel_is_asked_again_after_each_change(what: str, a_holding: Any) -> None:
    manager, memo = Manager(), KernelMemo()
    look(manager, memo, a_holding)
    CHANGES[what](manager)
    look(manager, memo, a_holding)
    assert manager.asked == 2


async def test_a_kernel_that_is_not_ready_or_has_no_grant_is_asked_each_time(a_holding: Any) -> None:
    manager, memo = Manager(), KernelMemo()
    manager.kernel._ready = None
    for _ in range(2):
        look(manager, memo, a_holding)
    assert manager.asked == 2
    manager, memo = Manager(), KernelMemo()
    ledger = LedgerSnapshot()
    manager.kernel.shares = Shares()
    manager.kernel.was_shared = True
    for _ in range(2):
        list(local_kernels(manager, ("k1",), replace(AdmissionSnapshot("ok", "", ()), ledger=ledger), {}, {}, memo))
    assert manager.asked == 2


def test_pieces_are_the_parts_in_their_order() -> None:
    parts = [b"a" * length for length in (1, 200_000, 60_000, 60_000, 10)]
    found = list(pieces(parts))
    assert b"".join(found) == b"".join(parts)
    assert [len(one) for one in found] == [1, 200_000, 60_000, 60_010]
    assert list(pieces([])) == [b""]


async def test_an_administrators_status_has_its_length_and_its_type(ask: Ask, an_agent: FakeAgent) -> None:
    await an_agent.start()
    answer = await ask("ada", "GET", "aliquot/api/v1/status")
    assert answer.headers["Content-Length"] == str(len(answer.body))
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Transfer-Encoding" not in answer.headers
