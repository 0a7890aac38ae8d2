"""Reading an answer's JSON into the typed reports, with every field checked.

The reports are TypedDicts: a checker is made once for each type, from the type itself, so that no
field is listed twice. Fields that this version does not know stay in the answer.
"""

from __future__ import annotations

import functools
import json
import types
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Union, get_args, get_origin, get_type_hints, is_typeddict

from .errors import AnswerError

# Raises _WrongValue. The second argument is where in the answer the value stands.
Checker = Callable[[Any, str], None]


class _WrongValue(Exception):
    """A value is not what the contract says; the text says where."""


def read_json(text: str | bytes, want: Any, origin: str) -> Any:
    """Return the JSON value in *text*, of the type *want*. Raises AnswerError.

    Args:
        text: The body of an answer, or a message of a websocket.
        want: A TypedDict, a basic type, or a list, union or dict of these.
        origin: The request, for the error's words.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise AnswerError(
            f"{origin} was answered with something that is no JSON ({error}). Check that the address is that of a "
            "server with Aliquot, and that no proxy answers in its place"
        ) from error
    try:
        _checker(want)(value, "")
    except _WrongValue as error:
        raise AnswerError(
            f"{origin} was answered with another answer than this client knows: {error}. The gateway must be of the "
            "client's version or newer: compare `version` of the status with the installed jupyter-aliquot"
        ) from error
    return value


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


@functools.cache
def _checker(want: Any) -> Checker:
    if is_typeddict(want):
        return _struct_checker(want)
    origin, parts = get_origin(want), get_args(want)
    if origin in (Union, types.UnionType):
        return _union_checker(tuple(_checker(part) for part in parts))
    if origin is list:
        return _list_checker(_checker(parts[0]))
    if origin is tuple:
        return _tuple_checker(tuple(_checker(part) for part in parts))
    if origin is dict:
        return _dict_checker(_checker(parts[1]))
    return _PLAIN[want]


def _struct_checker(struct: Any) -> Checker:
    fields = {name: _checker(hint) for name, hint in get_type_hints(struct).items()}
    required = struct.__required_keys__

    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise _WrongValue(f"{where or 'the answer'} is no object")
        for name, check_field in fields.items():
            if name in value:
                check_field(value[name], f"{where}.{name}" if where else name)
            elif name in required:
                raise _WrongValue(f"{where or 'the answer'} has no field {name}")

    return check


def _union_checker(checkers: tuple[Checker, ...]) -> Checker:
    def check(value: Any, where: str) -> None:
        errors = []
        for one in checkers:
            try:
                return one(value, where)
            except _WrongValue as error:
                errors.append(error)
        # The one that got deepest: a wrong field of an object says more than "is not null".
        raise max(errors, key=lambda error: len(str(error)))

    return check


def _list_checker(check_item: Checker) -> Checker:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, list):
            raise _WrongValue(f"{where or 'the answer'} is no list")
        for index, item in enumerate(value):
            check_item(item, f"{where}[{index}]")

    return check


def _tuple_checker(checkers: tuple[Checker, ...]) -> Checker:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, list) or len(value) != len(checkers):
            raise _WrongValue(f"{where} is no list of {len(checkers)}")
        for index, one in enumerate(checkers):
            one(value[index], f"{where}[{index}]")

    return check


def _dict_checker(check_value: Checker) -> Checker:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise _WrongValue(f"{where or 'the answer'} is no object")
        for name, item in value.items():
            check_value(item, f"{where}.{name}")

    return check


def _plain_checker(kinds: tuple[type, ...], words: str) -> Checker:
    def check(value: Any, where: str) -> None:
        # A bool is an int of Python's, and none of JSON's.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise _WrongValue(f"{where or 'the answer'} is no {words}")

    return check


def _accept(value: Any, where: str) -> None:
    """Accept any value of JSON."""


_PLAIN: Mapping[Any, Checker] = {
    str: _plain_checker((str,), "text"),
    int: _plain_checker((int,), "integer"),
    float: _plain_checker((int, float), "number"),
    bool: _plain_checker((bool,), "boolean"),
    type(None): _plain_checker((type(None),), "null"),
    Any: _accept,
}
