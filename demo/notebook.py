"""One notebook in one kernel, run cell by cell through nbclient.

At some points it waits for the others.

It needs nbclient (the extra `demo`). It decides nothing: its observations are values for claims.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat.reader import NotJSONError
from nbformat.validator import ValidationError

import jupyter_aliquot.gateway.serverapp.lazy_rfc3987  # noqa: F401 (before nbformat, which imports jsonschema)
from jupyter_aliquot.provisioner.errors import AliquotError

CELL_SECONDS = 90
START_SECONDS = 90

_LONGEST_REASON = 200

Report = Callable[[str, int, int, str], None]


class NotebookError(AliquotError):
    """The demo's notebook cannot be read."""


@dataclass(frozen=True)
class Part:
    """One kernel of the demo: its name, its size, and the tagged cells that it leaves out."""

    name: str
    kernelspec: str
    gpus: str
    leaves_out: frozenset[str] = frozenset()


@dataclass
class NotebookRun:
    """Runs the part's cells.

    Other tasks read `kernel_id`, `current` and `outputs`, and set `may_finish`.
    """

    part: Part
    notebook: Path
    log: Path
    report: Report
    kernel_id: str = ""
    pid: int = 0
    current: str = "starting"
    error: str = ""
    is_dead: bool = False
    is_finished: bool = False
    is_ending: bool = False
    outputs: dict[str, str] = field(default_factory=dict)
    is_waiting: asyncio.Event = field(default_factory=asyncio.Event)
    may_finish: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        notebook = read_notebook(self.notebook)
        self._client = NotebookClient(notebook, kernel_name=self.part.kernelspec, timeout=CELL_SECONDS)
        self._client.startup_timeout = START_SECONDS
        self._cells = [
            (index, cell)
            for index, cell in enumerate(notebook.cells)
            if cell.cell_type == "code" and not self.part.leaves_out & _tags(cell)
        ]

    async def start(self) -> None:
        """Start the kernel through its kernelspec's provisioner. Raises what that raises."""
        manager = self._client.create_kernel_manager()
        environment = {**os.environ, "JPY_SESSION_NAME": self.part.name}
        with self.log.open("wb") as log:
            await self._client.async_start_new_kernel(env=environment, stdout=log, stderr=log)
        provisioner: Any = manager.provisioner
        self.kernel_id, self.pid = provisioner.kernel_id, provisioner.pid
        await self._client.async_start_new_kernel_client()

    async def run(self) -> None:
        """Run the cells in order; the one tagged `verify` when the others allow it.

        Does not raise for a cell.
        """
        try:
            for step, (index, cell) in enumerate(self._cells):
                if "verify" in _tags(cell):
                    self.report(self.part.name, step, len(self._cells), "waits for the others")
                    self.is_waiting.set()
                    await self.may_finish.wait()
                if self.is_ending:
                    return
                self.current = cell.id
                self.report(self.part.name, step, len(self._cells), f"cell {cell.id}")
                await self._client.async_execute_cell(cell, index)
                self.outputs[cell.id] = _text(cell)
            self.is_finished = True
            self.report(self.part.name, len(self._cells), len(self._cells), "done")
        except DeadKernelError:
            self.is_dead = True
            if not self.is_ending:
                self.report(self.part.name, len(self._cells), len(self._cells), "its kernel is dead")
        except (CellExecutionError, TimeoutError) as error:
            self.error = f"cell {self.current}: {_last_line(error)}"
            self.report(self.part.name, len(self._cells), len(self._cells), self.error)
        finally:
            self.is_waiting.set()

    def printed(self, cell_id: str) -> str:
        """Return the output of a cell so far, also while it runs."""
        return next((_text(cell) for _, cell in self._cells if cell.id == cell_id), "")

    async def end_kernel(self) -> None:
        """Shut the kernel down and give its part back. Idempotent.

        A run is ended so, and not by cancelling it: nbclient takes a cancelled cell for a dead
        kernel, and leaves its tasks behind.
        """
        self.is_ending = True
        self.may_finish.set()
        manager = self._client.km
        if manager is not None and manager.has_kernel:
            await manager.shutdown_kernel(now=True)  # type: ignore[misc]  # nbclient declares the synchronous manager

    def close(self) -> None:
        """Close the connections to the kernel, when the run has ended."""
        if self._client.kc is not None:
            self._client.kc.stop_channels()


@contextlib.asynccontextmanager
async def on_stage(runs: Sequence[NotebookRun], late: str) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Start the kernels, and end them however the act ends.

    Tasks that the caller puts into the list are awaited then. Raises what a start raises, and
    AliquotError(``late``) when the act ran out of time.
    """
    tasks: list[asyncio.Task[None]] = []
    try:
        await asyncio.gather(*(run.start() for run in runs))
        yield tasks
    except asyncio.TimeoutError:
        raise AliquotError(late) from None
    finally:
        await asyncio.gather(*(run.end_kernel() for run in runs))
        if tasks:
            await asyncio.wait(tasks)
        for run in runs:
            run.close()


def read_notebook(path: Path) -> Any:
    """Read a notebook. Raises NotebookError for a file that is none."""
    try:
        return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]  # nbformat's
    except (OSError, UnicodeDecodeError, NotJSONError, ValidationError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise NotebookError(
            f"Requested the notebook {path}, which cannot be read: {reason[:_LONGEST_REASON]}"
        ) from error


def _tags(cell: Any) -> frozenset[str]:
    return frozenset(cell.metadata.get("tags", ()))


def _text(cell: Any) -> str:
    """Return the standard output of a cell.

    Notices, such as a wait for memory, are on standard error.
    """
    streams = (output for output in cell.outputs if output.output_type == "stream" and output.name == "stdout")
    return "".join(output.text for output in streams)


def _last_line(error: BaseException) -> str:
    """Return the last line of nbclient's message.

    The message is a whole traceback, in colors; its last line says what went wrong.
    """
    name, value = getattr(error, "ename", ""), getattr(error, "evalue", "")
    if name:
        return f"{name}: {value}"
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
