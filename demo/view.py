"""The view of the demo: live bars in a terminal, plain lines elsewhere, and its last page."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from jupyter_aliquot.gateway.terminal.ranked_table import RankedTable
from jupyter_aliquot.gateway.terminal.tables import DRIVER_NAMES, SOFTWARE_GPU_NOTE, plain_table, seconds_text

from .runner import PARTS, Result


class DemoView:
    """A context manager: shows progress inside it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._live: Progress | None = None
        self._bars: dict[str, TaskID] = {}
        if console.is_terminal:
            self._live = Progress(
                TextColumn("{task.description}"),
                TextColumn("{task.fields[size]:>8}", style="dim"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[text]}", markup=False),
                TimeElapsedColumn(),
                console=console,
            )

    def __enter__(self) -> DemoView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print one line about the whole demo."""
        self._console.print(f"[{time.monotonic() - self._started:5.1f} s] {text}", markup=False)

    def report(self, name: str, step: int, total: int, text: str) -> None:
        """Show the progress of one kernel."""
        if self._live is None:
            self.say(f"{name}: {text} ({step} of {total} cells done)")
            return
        if name not in self._bars:
            size = next(f"{part.gpus} GPU" for part in PARTS if part.name == name)
            self._bars[name] = self._live.add_task(name, total=total, size=size, text=text)
        self._live.update(self._bars[name], completed=step, total=total, text=text)


def print_result(console: Console, result: Result) -> None:
    """Print the table, then each claim with a tick or a cross."""
    driver = DRIVER_NAMES.get(result.node.driver, result.node.driver)
    name = ", ".join(sorted({device.name for device in result.node.devices}))
    console.print(f"\n{name} ({driver})", style="bold")
    console.print(result_table(result))
    if result.node.driver == "softgpu":
        console.print(f"({SOFTWARE_GPU_NOTE})", style="dim")
    console.print()
    for claim in result.claims:
        mark, style = ("✓", "green") if claim.holds else ("✗", "red")
        found = "" if claim.holds or not claim.found else f" – {claim.found}"
        console.print(f"{mark} {claim.text}{found}", style=style, markup=False)
    console.print()


def result_table(result: Result) -> RankedTable:
    """Return the table: kernel, size, memory limit, peak used, GPU time, outcome."""
    time_column = "GPU time" if result.node.driver != "softgpu" else "simulated GPU time"
    table = plain_table("kernel", "size", "memory limit", "peak used", time_column, "outcome")
    for kernel in result.kernels:
        table.add_row(
            kernel.name,
            f"{kernel.gpus} GPU",
            str(kernel.quota),
            str(kernel.peak),
            seconds_text(kernel.busy_seconds),
            kernel.outcome,
        )
    return table
