"""Kernels that replace others: their limits, the end of the old one, and the queue meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_aliquot.gateway.scheduling.admission import Admission
from jupyter_aliquot.gateway.scheduling.ledger import KernelRef
from jupyter_aliquot.gateway.scheduling.quotas import GpuCaps
from jupyter_aliquot.provisioner import errors
from jupyter_aliquot.provisioner.resources import GpuShare, Request


def size(hundredths: int) -> Request:
    return Request(GpuShare(hundredths))


class Notebook:
    """A notebook that changes its kernel: each new kernel replaces the last that ran.

    ``asked_to_end`` lists the replaced kernels that it was asked to end.
    """

    def __init__(self, admission: Admission, owner: str = "ada") -> None:
        self._admission = admission
        self._owner = owner
        self.asked_to_end: list[str] = []

    def change(self, name: str, hundredths: int, *replaced: str) -> Any:
        requester = KernelRef(name, self._owner, replaces=frozenset(replaced))
        return self._admission.submit(
            requester, size(hundredths), on_room_reserved=lambda: self.asked_to_end.extend(replaced)
        )


def held(admission: Admission) -> dict[str, int]:
    return {h.grant.kernel_id: h.grant.request.gpus.hundredths for h in admission.snapshot().holdings}


def test_where_both_have_room_the_new_one_is_granted_while_the_old_one_runs(play: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        notebook = Notebook(admission)
        await notebook.change("old", 50)
        await notebook.change("new", 25, "old")
        assert held(admission) == {"old": 50, "new": 25}
        assert notebook.asked_to_end == [], "whoever asked ends it, now that it has its grant"

    play(scene)


def test_where_the_old_ones_room_is_needed_it_is_asked_to_end_once_and_the_new_one_follows(
    play: Any, settle: Any
) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        notebook = Notebook(admission)
        await notebook.change("old", 100)
        new = notebook.change("new", 75, "old")
        await settle()
        assert notebook.asked_to_end == ["old"]
        entry = admission.waiting("new")
        assert entry is not None
        assert entry.reason == "Starts when the kernel that it replaces has ended"
        await clock.advance(60)
        assert (notebook.asked_to_end, held(admission)) == (["old"], {"old": 100}), "asked once"
        await admission.release("old")
        assert (await new).kernel_id == "new"
        assert held(admission) == {"new": 75}

    play(scene)


def test_while_others_hold_what_it_lacks_the_old_one_stays_and_is_there_when_the_new_one_is_given_up(
    play: Any, settle: Any
) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        notebook = Notebook(admission)
        await notebook.change("old", 25)
        await Notebook(admission, "bob").change("bobs", 75)
        new = notebook.change("new", 50, "old")
        await settle()
        assert notebook.asked_to_end == []
        admission.withdraw("new")
        with pytest.raises(errors.WithdrawnError):
            await new
        assert held(admission) == {"old": 25, "bobs": 75}
        late = notebook.change("late", 50, "old")
        await admission.release("bobs")
        await late
        assert notebook.asked_to_end == [], "there is room for both"

    play(scene)


def test_the_room_of_the_old_one_is_promised_to_the_new_one_alone(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        notebook, other = Notebook(admission), Notebook(admission, "bob")
        await notebook.change("old", 50)
        await other.change("more", 40)
        large, small = other.change("large", 100), other.change("small", 60)
        new = notebook.change("new", 50, "old")
        await settle()
        assert notebook.asked_to_end == ["old"], "it needs no more than it has, and waits for nobody"
        await admission.release("old")
        assert (await new).request == size(50)
        assert not large.done()
        assert not small.done()
        bigger = notebook.change("bigger", 60, "new")
        await settle()
        assert notebook.asked_to_end == ["old"], "one that needs more waits behind those who came first"
        for waits in (large, small, bigger):
            waits.cancel()

    play(scene)


def test_the_old_one_counts_for_no_limit_of_the_new_one(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        notebook = Notebook(admission)
        await notebook.change("old", 50)
        with pytest.raises(errors.LimitError, match="resize it or end it first"):
            notebook.change("beside", 25)
        with pytest.raises(
            errors.LimitError, match=r"Requested 0\.6 GPU, but ada holds 0, waits for 0 and may have 0\.5"
        ):
            notebook.change("large", 60, "old")
        assert (notebook.asked_to_end, held(admission)) == ([], {"old": 50}), "a refusal costs nothing"
        await notebook.change("new", 50, "old")
        with pytest.raises(errors.LimitError, match=r"holds 0\.5, waits for 0 "):
            notebook.change("third", 10, "new")
        await admission.release("old")
        await Notebook(admission, "bob").change("bobs", 50)
        waits = notebook.change("third", 40, "new")
        with pytest.raises(errors.LimitError, match=r"holds 0\.5, waits for 0 "):
            notebook.change("beside", 10)
        waits.cancel()

    play(scene, caps=GpuCaps(GpuShare(50)))
