"""Numbers of messages as ranges, first and last: what a relay tells a pod's sidecar that it is done with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Range = tuple[int, int]


def joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return the same numbers in as few ranges as their order allows."""
    made: list[Range] = []
    for first, last in ranges:
        if made and made[-1][0] <= first <= made[-1][1] + 1:
            made[-1] = made[-1][0], max(made[-1][1], last)
        else:
            made.append((first, last))
    return tuple(made)


def read_ranges(told: object) -> Sequence[Range]:
    """Return the ranges of a record. Raises ValueError."""
    try:
        found = [(first, last) for first, last in told]  # type: ignore[attr-defined]
    except TypeError as error:
        raise ValueError(f"{told!r:.60} are no ranges") from error
    if not all(isinstance(one, int) and one >= 0 for pair in found for one in pair):
        raise ValueError(f"{told!r:.60} are no ranges of whole numbers")
    return found
