"""A table that leaves out whole columns where the terminal is too narrow, the least useful first."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table

_GAP = 2  # between two columns
_LEAST_OF_WRAPPED = 20


class RankedTable:
    """A table without lines.

    It cuts a cell with an ellipsis only when it can leave out no more columns.

    Args:
        names: the columns, from left to right.
        drop_first: the columns that may be left out, in that order.
        numbers: the columns whose cells stand on the right.
        wrapped: the columns of sentences, whose cells fold instead of being cut.
    """

    def __init__(
        self,
        names: Sequence[str],
        drop_first: Sequence[str] = (),
        numbers: Sequence[str] = (),
        wrapped: Sequence[str] = (),
    ) -> None:
        unknown = {*drop_first, *numbers, *wrapped} - set(names)
        if unknown:
            raise ValueError(f"no such columns: {', '.join(sorted(unknown))}")
        self._names = tuple(names)
        self._drop_first = tuple(drop_first)
        self._numbers = frozenset(numbers)
        self._wrapped = frozenset(wrapped)
        self._rows: list[tuple[tuple[str, ...], str | None]] = []

    def add_row(self, *cells: str, style: str | None = None) -> None:
        """Add one row, a cell for each column. Raises ValueError for another number of cells."""
        if len(cells) != len(self._names):
            raise ValueError(f"{len(cells)} cells for {len(self._names)} columns")
        self._rows.append((cells, style))

    @property
    def row_count(self) -> int:
        return len(self._rows)

    def shown_columns(self, width: int) -> tuple[str, ...]:
        """The columns that a terminal of *width* cells shows."""
        widths = dict(zip(self._names, self._widths(), strict=True))
        shown = list(self._names)
        for name in self._drop_first:
            if sum(widths[one] for one in shown) + _GAP * (len(shown) - 1) <= width:
                break
            shown.remove(name)
        return tuple(shown)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Called by rich."""
        yield self._table(options.max_width)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Called by rich."""
        return Measurement.get(console, options, self._table(options.max_width))

    def _table(self, width: int) -> Table:
        shown = self.shown_columns(width)
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in shown:
            is_wrapped = name in self._wrapped
            table.add_column(
                name,
                justify="right" if name in self._numbers else "left",
                no_wrap=not is_wrapped,
                overflow="fold" if is_wrapped else "ellipsis",
            )
        kept = [self._names.index(name) for name in shown]
        for cells, style in self._rows:
            table.add_row(*(cells[index] for index in kept), style=style)
        return table

    def _widths(self) -> list[int]:
        """Return the width of each column's cells; a column of sentences counts with a small width."""
        found = []
        for index, name in enumerate(self._names):
            widest = max([cell_len(name), *(cell_len(cells[index]) for cells, _ in self._rows)])
            found.append(min(widest, _LEAST_OF_WRAPPED) if name in self._wrapped else widest)
        return found
