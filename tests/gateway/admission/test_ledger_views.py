"""Views of a ledger's grants stay after a commit, save for the kernels that it changed."""

from __future__ import annotations

import random
from dataclasses import replace

from jupyter_aliquot.gateway.scheduling.ledger import Device, Holding, KernelRef, Ledger, LedgerSnapshot, Node
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request

NODE = Node("a", "stub", (Device("GPU-0", 0, "Stub", Bytes(8 << 30), GpuShare(0), Bytes(0)),))
OWNERS = ("ada", "bob", "cleo")


def a_holding(kernel_id: str, owner: str, **more: bool) -> Holding:
    quotas = (Quota("GPU-0", 0, GpuShare(1), Bytes(1 << 20)),)
    grant = Grant(kernel_id, owner, Request(GpuShare(1)), "a", quotas, f"/k/{kernel_id}", ())
    return Holding(grant, KernelRef(kernel_id, owner), 0.0, **more)


def views(snapshot: LedgerSnapshot) -> dict[str, object]:
    """Return what is asked of a ledger's grants, from this snapshot itself."""
    held = {owner: {one.grant.kernel_id: one for one in snapshot.held_by(owner)} for owner in OWNERS}
    return {**held, "unsettled": dict(snapshot.unsettled)}


def test_views_that_are_taken_over_are_those_of_all_grants() -> None:
    dice, ledger = random.Random(20_261_130), Ledger()
    for _ in range(200):
        kernel_id = f"k{dice.randrange(20)}"
        what = dice.random()
        if what < 0.5:
            ledger.commit(granted=[a_holding(kernel_id, dice.choice(OWNERS), is_confirmed=dice.random() < 0.7)])
        elif what < 0.8:
            ledger.commit(released=[kernel_id])
        else:
            ledger.commit(node=replace(NODE, ending=frozenset({kernel_id})))
        found = ledger.snapshot()
        assert views(found) == views(replace(found)), "a copy has found nothing yet"
    assert set(vars(ledger.snapshot())["_by_owner"]) <= set(OWNERS)


def test_a_commit_of_one_kernel_looks_at_no_other_again() -> None:
    ledger = Ledger()
    ledger.commit(granted=[a_holding(f"k{number}", f"user{number}") for number in range(1000)])
    views(ledger.snapshot())
    before = vars(ledger.snapshot())["_by_owner"]
    ledger.commit(granted=[a_holding("k7", "user7", is_confirmed=False)])
    after = vars(ledger.snapshot())["_by_owner"]
    assert [owner for owner, held in after.items() if held is not before[owner]] == ["user7"]
    assert [*ledger.snapshot().unsettled] == ["k7"]
