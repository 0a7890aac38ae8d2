"""Policies without Aliquot, which hold whole GPUs.

They hold them for a session, until a notebook was idle for a time, or for a cell. A closed loop in
simulated time: a cell is submitted its original pause after the end of the one before it. First
come, first served; sessions that fit pass one that does not. A kernel's GPUs are on one node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .clockwork import Clockwork
from .trace import Cell, Session

GPUS_OF_A_NODE = 8
FOR_THE_SESSION = math.inf


@dataclass(frozen=True)
class Outcome:
    """The outcome of a simulation, in seconds.

    ``resumes``: from each GPU cell's submission to its start; ``starts``: the wait for a notebook's
    first GPUs; ``stretches``: a cell's time over its time alone.
    """

    resumes: tuple[float, ...]
    starts: tuple[float, ...]
    gpu_hours_held: float
    peak_gpus: float
    stretches: tuple[float, ...] = ()


@dataclass(frozen=True)
class Holding:
    """The rule by which a policy holds GPUs.

    ``idle_seconds``: how long GPUs stay after a cell; FOR_THE_SESSION, or 0 for one cell at a time.
    """

    idle_seconds: float
    reload_seconds: Callable[[Cell], float]


class WholeGpus:
    """Nodes of whole GPUs."""

    def __init__(self, nodes: int, holding: Holding) -> None:
        self._holding = holding
        self._clock = Clockwork()
        self._free = [GPUS_OF_A_NODE] * nodes
        self._queue: list[_Notebook] = []
        self._held = self._peak = 0
        self._gpu_seconds = 0.0
        self.resumes: list[float] = []
        self.starts: list[float] = []

    def run(self, sessions: Sequence[Session]) -> Outcome:
        for session in sessions:
            notebook = _Notebook(session, self, self._clock, self._holding)
            self._clock.at(session.start, notebook.open)
        self._clock.run(self._account)
        hours = self._gpu_seconds / 3600
        return Outcome(tuple(self.resumes), tuple(self.starts), hours, self._peak)

    def acquire(self, notebook: _Notebook) -> None:
        """Request GPUs: call ``notebook.got`` at once, or when there is room."""
        self._queue.append(notebook)
        self._serve()

    def release(self, node: int, gpus: int) -> None:
        self._free[node] += gpus
        self._held -= gpus
        self._serve()

    def _account(self, seconds: float) -> None:
        self._gpu_seconds += self._held * seconds

    def _serve(self) -> None:
        for notebook in list(self._queue):
            fitting = [node for node, free in enumerate(self._free) if free >= notebook.wants]
            if fitting:
                node = min(fitting, key=lambda node: self._free[node])
                self._queue.remove(notebook)
                self._free[node] -= notebook.wants
                self._held += notebook.wants
                self._peak = max(self._peak, self._held)
                notebook.got(node)


class _Notebook:
    """One session, cell by cell."""

    def __init__(self, session: Session, gpus: WholeGpus, clock: Clockwork, holding: Holding) -> None:
        self._session = session
        self._gpus = gpus
        self._clock = clock
        self._holding = holding
        self._next = 0
        self._node: int | None = None
        self._asked = 0.0
        self._was_on_gpu = False
        self._uses = 0  # counts, so that the time-out of an old use ends no later one
        self.wants = session.gpus

    def open(self) -> None:
        if self._holding.idle_seconds == FOR_THE_SESSION:
            self._ask()
        else:
            self._think()

    def got(self, node: int) -> None:
        self._node = node
        waited = self._clock.now - self._asked
        if not self._was_on_gpu:
            self._gpus.starts.append(waited)
        if self._holding.idle_seconds == FOR_THE_SESSION:
            self._was_on_gpu = True
            return self._think()
        reload = self._holding.reload_seconds(self._cell) if self._was_on_gpu else 0.0
        self._was_on_gpu = True
        self._run(waited, reload)

    @property
    def _cell(self) -> Cell:
        return self._session.cells[self._next]

    def _think(self) -> None:
        if self._next == len(self._session.cells):
            self._clock.after(self._session.tail, self._close)
        else:
            self._clock.after(self._cell.pause, self._submit)

    def _submit(self) -> None:
        self._uses += 1
        if self._cell.gpus and self._node is None:
            if not self._holding.idle_seconds:
                self.wants = self._cell.gpus
            self._ask()
        else:
            self._run(0.0, 0.0)

    def _ask(self) -> None:
        self._asked = self._clock.now
        self._gpus.acquire(self)

    def _run(self, waited: float, reload: float) -> None:
        if self._cell.gpus:
            self._gpus.resumes.append(waited + reload)
        self._clock.after(reload + self._cell.seconds, self._end_cell)

    def _end_cell(self) -> None:
        self._next += 1
        if self._node is not None and self._holding.idle_seconds != FOR_THE_SESSION:
            use = self._uses
            self._clock.after(self._holding.idle_seconds, lambda: self._time_out(use))
        self._think()

    def _time_out(self, use: int) -> None:
        if use == self._uses:
            self._let_go()

    def _close(self) -> None:
        self._uses += 1
        self._let_go()

    def _let_go(self) -> None:
        if self._node is not None:
            node, self._node = self._node, None
            self._gpus.release(node, self.wants)
