"""How far a move of a kernel is, for people who wait: read from its hooks' pages, which count while they copy.

Nothing is decided by it: a hook may say what it likes, and is bounded by what it was to move.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceAccount

from .facts import Moving
from .process import ProcessResidency


class MoveProgress:
    """Made when the processes are told to move: what they copied before does not count."""

    def __init__(
        self, processes: Iterable[ProcessResidency], accounts: Sequence[DeviceAccount], *, is_out: bool
    ) -> None:
        self._parts = [
            (process, process.copied(), sum(_bytes(process, i, a, is_out) for i, a in enumerate(accounts)))
            for process in processes
        ]

    def now(self) -> Moving | None:
        """None where there is nothing to copy, and where a hook from before these words does not tell."""
        done = total = 0
        for process, before, wanted in self._parts:
            copied = process.copied()
            if process.has_left or not wanted:
                continue
            if before is None or copied is None:
                return None
            total += wanted
            done += max(0, min(wanted, copied - before))
        return Moving(done, total) if total else None


def _bytes(process: ProcessResidency, device: int, account: DeviceAccount, is_out: bool) -> int:
    away = process.swapped(device, account)
    return process.elastic(device, account) - away if is_out else away
