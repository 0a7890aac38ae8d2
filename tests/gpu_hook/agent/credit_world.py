"""Processes that borrow, answer and wait, on a clock that the test moves.

They are the surroundings of a credit queue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts, Ledger
from jupyter_aliquot.gpu_hook.placement.placement import Part

QUOTA = 1000
MEMORY = 2500
A, B = DeviceFacts("GPU-a", 0, "a", MEMORY), DeviceFacts("GPU-b", 1, "b", MEMORY)


def a_ledger() -> Ledger:
    ledger = Ledger()
    ledger.set_devices([A, B])
    ledger.reserve("k", [Part("GPU-a", 0, 50, QUOTA)])
    return ledger


@dataclass
class FakeTimer:
    when: float
    action: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


@dataclass
class FakeClock:
    now: float = 0.0
    timers: list[FakeTimer] = field(default_factory=list)

    def call_later(self, seconds: float, action: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(self.now + seconds, action)
        self.timers.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [timer for timer in self.timers if timer.when <= self.now]
        self.timers = [timer for timer in self.timers if timer.when > self.now]
        for timer in due:
            if not timer.is_cancelled:
                timer.action()


@dataclass
class FakeProcess:
    """A hook that keeps its own books: lent bytes are charged or spare."""

    charged: int = 0
    spare: int = 0
    is_stopped: bool = False
    recalls: list[tuple[int, int]] = field(default_factory=list)  # amount, sequence
    waits: list[int] = field(default_factory=list)  # sequences not answered yet


class Mail:
    """Delivers grants at once, and recalls when the process reads them."""

    def __init__(self) -> None:
        self.processes: dict[int, FakeProcess] = {}
        self.answers: list[tuple[int, int]] = []
        self.contexts: list[tuple[int, int]] = []  # rooms that were given, by sequence
        self.patience: list[int] = []

    def grant(self, process: int, device: int, amount: int, sequence: int) -> None:
        receiver = self.processes[process]
        receiver.waits.remove(sequence)
        receiver.spare += amount
        self.answers.append((sequence, amount))

    def grant_context(self, process: int, device: int, amount: int, sequence: int) -> None:
        self.processes[process].waits.remove(sequence)
        self.contexts.append((sequence, amount))

    def ask_patience(self, process: int, device: int, sequence: int) -> None:
        self.patience.append(sequence)

    def recall(self, process: int, device: int, amount: int, sequence: int) -> None:
        assert amount > 0
        self.processes[process].recalls.append((amount, sequence))
