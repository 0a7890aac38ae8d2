"""Encode and decode protobuf messages that are declared as frozen dataclasses. Pure.

It knows what the kubelet's two services use: text, flags, sub-messages, lists of both, and maps of
text. A field that a message does not declare is skipped, as the format asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Protocol, TypeVar

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIRE = "wire"
_LONGEST_VARINT = 10


class WireError(ValueError):
    """The bytes are no message of this format."""


class Message(Protocol):
    """A frozen dataclass whose fields all come from the functions below."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


_Message = TypeVar("_Message", bound=Message)


@dataclass(frozen=True)
class _Form:
    """A field's number, and its form: ``text``, ``flag``, ``texts``, ``messages`` or ``words``."""

    number: int
    form: str
    type: type[Any] | None = None


def text(number: int) -> Any:
    """Return a dataclass field for a string."""
    return field(default="", metadata={_WIRE: _Form(number, "text")})


def flag(number: int) -> Any:
    """Return a dataclass field for a bool."""
    return field(default=False, metadata={_WIRE: _Form(number, "flag")})


def texts(number: int) -> Any:
    """Return a dataclass field for repeated strings: a tuple."""
    return field(default=(), metadata={_WIRE: _Form(number, "texts")})


def messages(number: int, kind: type[Any]) -> Any:
    """Return a dataclass field for repeated messages: a tuple."""
    return field(default=(), metadata={_WIRE: _Form(number, "messages", kind)})


def words(number: int) -> Any:
    """Return a dataclass field for a map of strings to strings."""
    return field(default_factory=dict, metadata={_WIRE: _Form(number, "words")})


def encode(told: Message) -> bytes:
    """Return the message's bytes. Fields with their default value are left out, as in proto3."""
    parts: list[bytes] = []
    for name, form in _forms(type(told)).items():
        value = getattr(told, name)
        if form.form == "flag":
            parts += [_tag(form.number, _VARINT) + b"\x01"] if value else []
        elif form.form == "text":
            parts += [_counted(form.number, value.encode())] if value else []
        elif form.form == "texts":
            parts += [_counted(form.number, one.encode()) for one in value]
        elif form.form == "messages":
            parts += [_counted(form.number, encode(one)) for one in value]
        else:
            parts += [_counted(form.number, _pair(key, one)) for key, one in sorted(value.items())]
    return b"".join(parts)


def decode(kind: type[_Message], data: bytes) -> _Message:
    """Return the message that the bytes hold. Raises WireError."""
    by_number = {form.number: (name, form) for name, form in _forms(kind).items()}
    found: dict[str, Any] = {}
    for number, content in _fields_of(data):
        name, form = by_number.get(number, ("", None))
        if form is None:
            continue
        if (form.form == "flag") is not isinstance(content, int):
            raise WireError(f"the field {name} of {kind.__name__} has another type on the wire")
        if form.form == "flag":
            found[name] = bool(content)
        elif form.form == "text":
            found[name] = _text(content)
        elif form.form == "texts":
            found[name] = (*found.get(name, ()), _text(content))
        elif form.form == "messages":
            found[name] = (*found.get(name, ()), decode(_kind(form), _bytes(content)))
        else:
            found.setdefault(name, {}).update([_read_pair(_bytes(content))])
    return kind(**found)


@cache
def _forms(kind: type[Any]) -> Mapping[str, _Form]:
    return {one.name: one.metadata[_WIRE] for one in fields(kind)}


def _kind(form: _Form) -> type[Any]:
    assert form.type is not None
    return form.type


def _fields_of(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield each field's number and content. Raises WireError."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, at = _read_varint(data, at)
            yield number, value
            continue
        if wire_type == _BYTES:
            size, at = _read_varint(data, at)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            raise WireError(f"the field {number} has the type {wire_type}, which does not exist")
        if number == 0 or at + size > len(data):
            raise WireError(f"the field {number} ends behind the message")
        yield number, data[at : at + size]
        at += size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_LONGEST_VARINT):
        if at + place >= len(data):
            break
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise WireError("a number does not end")


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _tag(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _counted(number: int, content: bytes) -> bytes:
    return _tag(number, _BYTES) + _varint(len(content)) + content


def _pair(key: str, value: str) -> bytes:
    return _counted(1, key.encode()) + _counted(2, value.encode())


def _read_pair(data: bytes) -> tuple[str, str]:
    found = {number: content for number, content in _fields_of(data) if number in (1, 2)}
    return _text(found.get(1, b"")), _text(found.get(2, b""))


def _bytes(content: int | bytes) -> bytes:
    if isinstance(content, int):
        raise WireError("a number stands where a message is expected")
    return content


def _text(content: int | bytes) -> str:
    try:
        return _bytes(content).decode()
    except UnicodeDecodeError as error:
        raise WireError(f"a text is not UTF-8: {error}") from error
