"""Check that the values of an agent's report are of the types that its class states.

Agents on other machines are not trusted: what one of them reports must not fail a reader much later.
Numbers have to be finite, and text has to be Unicode that can be encoded. Parts that are reports
themselves were checked when they were read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

_T = TypeVar("_T")
_Claim = Callable[[Any], bool]
# Larger numbers are no bytes, seconds or counts; a float holds them still.
_LARGEST = 1 << 64
_LONGEST_SHOWN = 40


def checked(report: _T) -> _T:
    """Return the report, a dataclass. Raises ValueError that names the first field of a wrong type."""
    for name, claim, wanted in _claims(cast(Hashable, type(report))):
        value = getattr(report, name)
        if not claim(value):
            shown = ascii(value)[:_LONGEST_SHOWN]
            raise ValueError(f"{name} of {type(report).__name__} is {shown}, and not {wanted}")
    return report


@cache
def _claims(kind: Hashable) -> tuple[tuple[str, _Claim, str], ...]:
    hints = get_type_hints(cast(Any, kind))
    return tuple((one.name, _claim(hints[one.name]), str(one.type)) for one in fields(cast(Any, kind)))


def _claim(hint: Any) -> _Claim:
    """Return the function that tells whether a value is of this type."""
    if hint is int or hint is float:
        return _is_number
    if hint is str:
        return _is_text
    origin, parts = get_origin(hint), [_claim(part) for part in get_args(hint) if part is not Ellipsis]
    if origin is Union or origin is UnionType:
        return lambda value: any(part(value) for part in parts)
    if origin is tuple and Ellipsis in get_args(hint):
        return lambda value: isinstance(value, tuple) and all(map(parts[0], value))
    if origin is tuple:
        return lambda value: (
            isinstance(value, tuple)
            and len(value) == len(parts)
            and all(part(one) for part, one in zip(parts, value, strict=True))
        )
    if origin is Mapping:
        return lambda value: (
            isinstance(value, Mapping) and all(map(parts[0], value)) and all(map(parts[1], value.values()))
        )
    kind = NoneType if hint is None else hint
    return lambda value: isinstance(value, kind)


def _is_number(value: Any) -> bool:
    # NaN and the infinities fail the comparison.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -_LARGEST < value < _LARGEST


def _is_text(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False
