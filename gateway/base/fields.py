"""Strict reading of a table, field by field: a configuration entry, or the body of a request.

It knows no field by itself. Every refusal is a RequestError that names the field, its value and the
values to use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_aliquot.provisioner.errors import RequestError
from jupyter_aliquot.provisioner.resources import Bytes


class Entry:
    """A table that is read once. `finish` refuses fields that were not read."""

    def __init__(self, where: str, table: object) -> None:
        if not isinstance(table, Mapping) or not all(isinstance(field, str) for field in table):
            raise RequestError(f"{where} is {table!r}, which is not a table. Use one such as {{'name': …}}")
        self.where = where
        self._table: Mapping[str, Any] = table
        self._known: list[str] = []

    def text(self, field: str, default: str | None = None) -> str:
        """Read a text. Without a default it must be there, and not be empty."""
        value = self._get(field, default)
        if not isinstance(value, str) or (default is None and not value.strip()):
            raise self.refused(field, value, "a text" if default is not None else "a text that is not empty")
        if not value.isprintable():
            raise self.refused(field, value, "a text without control characters")
        return value

    def texts(self, field: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Read a list of texts."""
        value = self._get(field, default)
        if not isinstance(value, (list, tuple)) or not all(
            isinstance(text, str) and text.strip() and text.isprintable() for text in value
        ):
            raise self.refused(field, value, "a list of texts, such as ['alice', 'bob']")
        return tuple(value)

    def pairs(self, field: str) -> tuple[tuple[str, str], ...]:
        """Read a table of texts, in its order."""
        value = self._get(field, {})
        if not isinstance(value, Mapping) or not all(
            isinstance(text, str) and "\0" not in text for pair in value.items() for text in pair
        ):
            raise self.refused(field, value, "a table of texts, such as {'NAME': 'value'}")
        return tuple(value.items())

    def flag(self, field: str, default: bool) -> bool:
        """Read True or False."""
        value = self._get(field, default)
        if not isinstance(value, bool):
            raise self.refused(field, value, "True or False")
        return value

    def number(self, field: str) -> float | None:
        """Read a number above 0; None if it is not there."""
        value = self._get(field, None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            raise self.refused(field, value, "a number above 0")
        return value

    def amount(self, field: str) -> Bytes | None:
        """Read an amount of memory: bytes, or a text such as '8GiB'.

        0 for an explicit null, None if it is not there.
        """
        is_there, value = field in self._table, self._get(field, None)
        if not is_there or value is None:
            return Bytes(0) if is_there else None
        try:
            amount = Bytes.parse(value) if isinstance(value, str) else Bytes(value)
        except (TypeError, ValueError, OverflowError):
            amount = Bytes(0)
        if isinstance(value, (bool, float)) or not 0 < amount < 1 << 62:
            raise self.refused(field, value, "an amount of memory, such as '8GiB' or 8589934592, or null")
        return amount

    def table(self, field: str) -> Entry:
        """Read a table in the table; an empty one if it is not there."""
        return Entry(f"{self.where}[{field!r}]", self._get(field, {}))

    def finish(self) -> None:
        """Raise RequestError for a field that was not read."""
        if unknown := sorted(set(self._table) - set(self._known)):
            raise RequestError(f"{self.where} has unknown fields {unknown}. Use only {sorted(self._known)}")

    def refused(self, field: str, value: object, wanted: str) -> RequestError:
        """Return the error for one field."""
        found = "is missing" if value is None else f"is {value!r}, which is not valid"
        return RequestError(f"{field!r} of {self.where} {found}. Use {wanted}")

    def _get(self, field: str, default: Any) -> Any:
        self._known.append(field)
        return self._table.get(field, default)
