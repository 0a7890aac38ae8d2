"""The progress of a move: the hooks' counts, bounded by the bytes to move."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceAccount
from jupyter_aliquot.gpu_hook.agent.swap.facts import Moving
from jupyter_aliquot.gpu_hook.agent.swap.moves import MoveProgress
from jupyter_aliquot.gpu_hook.agent.swap.process import ProcessResidency

ACCOUNTS = cast("list[DeviceAccount]", [None])


class AProcess:
    """A process with bytes to move, whose hook reports its copied bytes."""

    def __init__(self, *, swappable: int = 0, swapped: int = 0, copied: int = 0) -> None:
        self.counted, self.has_left = copied, False
        self._bytes = SimpleNamespace(swappable=swappable, swapped=swapped)

    def swappable(self, device: int, account: DeviceAccount) -> int:
        return int(self._bytes.swappable)

    def swapped(self, device: int, account: DeviceAccount) -> int:
        return int(self._bytes.swapped)

    def copied(self) -> int:
        return self.counted


def watch(*processes: AProcess, is_out: bool) -> MoveProgress:
    return MoveProgress([cast(ProcessResidency, one) for one in processes], ACCOUNTS, is_out=is_out)


def test_a_move_goes_from_nothing_to_all_of_it_over_all_processes() -> None:
    first, second = AProcess(swappable=10, copied=7), AProcess(swappable=30)
    progress = watch(first, second, is_out=True)
    assert progress.now() == Moving(0, 40)  # bytes that were copied before belong to another move
    first.counted = 17
    assert progress.now() == Moving(10, 40)
    second.counted = 30
    assert progress.now() == Moving(40, 40)


def test_what_is_out_is_what_comes_in() -> None:
    process = AProcess(swappable=10, swapped=6)
    progress = watch(process, is_out=False)
    process.counted = 4
    assert progress.now() == Moving(4, 6)
    assert watch(process, is_out=True).now() == Moving(0, 4)


def test_a_hook_that_counts_too_far_or_back_is_bounded() -> None:
    process = AProcess(swappable=10, copied=5)
    progress = watch(process, is_out=True)
    process.counted = 1 << 63
    assert progress.now() == Moving(10, 10)
    process.counted = 0
    assert progress.now() == Moving(0, 10)


def test_a_process_that_left_does_not_count() -> None:
    leaver, other = AProcess(swappable=10), AProcess(swappable=20)
    progress = watch(leaver, other, is_out=True)
    assert progress.now() == Moving(0, 30)
    leaver.has_left = True
    assert progress.now() == Moving(0, 20)
    assert watch(AProcess(), is_out=True).now() is None
