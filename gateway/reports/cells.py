"""Cells of CSV files that a spreadsheet does not take for formulas. Pure."""

from __future__ import annotations

# The beginnings that a spreadsheet takes for a formula. Users choose names and labels.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def safe_cell(value: object) -> object:
    """Return the cell's content. Text that would begin a formula gets a quote before it; None is empty."""
    if value is None:
        return ""
    if isinstance(value, str) and value.lstrip(" \u00a0").startswith(_FORMULA):
        return f"'{value}"
    return value
