"""Encode and decode records on relay.sock and link.sock: a head, then frames.

    head    magic "AqR1", number of frames (u32), bytes of all frames (u64), then each frame's length (u64)
    frames  a JSON object with "op" (the header), then, for some ops, a ZMQ message from its delimiter on

Ops and their fields are in docs/reference/relay.md. Numbers are big-endian.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from typing import Any

VERSIONS = (2,)
ROLES = ("link", "control")
CHANNELS = ("shell", "control", "stdin", "iopub")
DELIMITER = b"<IDS|MSG>"

MAGIC = b"AqR1"
MOST_FRAMES = 1 << 16
LONGEST_RECORD = 4 << 30
# The bytes of a message from a relay that runs as another account than its gateway: one that a user
# can replace. The relay leaves a larger one out, and the gateway takes none.
LONGEST_MESSAGE = 64 << 20
LONGEST_GREETING = 1 << 16  # of a peer that has not yet said hello
LONGEST_HEADER = 8 << 20  # a launch's environment is in the header
LONGEST_HEADER_OF_ANOTHER = 2 << 20  # 15,000 open cells
LONGEST_OF_ANOTHER = LONGEST_MESSAGE + LONGEST_HEADER
LONGEST_QUESTION = 2 * LONGEST_HEADER  # of a control connection, and of its answers: they have no frames

_HEAD = struct.Struct(">4sIQ")
_SCRATCH = 1 << 16
# The cost of a waiting message beside its bytes: objects of Python and of ZMQ.
_MESSAGE_BYTES, _FRAME_BYTES = 1024, 128
_HEADER_ENCODER = json.JSONEncoder(separators=(",", ":"))
_raw_decode = json.JSONDecoder().raw_decode

Frame = bytes | memoryview
Header = dict[str, Any]


class ProtocolError(Exception):
    """The peer sent bytes that are no record; the message says what was found."""


class Record:
    """A record as it was read. Large frames are views of one buffer; ``bytes(frame)`` copies."""

    __slots__ = ("frames", "header")

    def __init__(self, header: Header, frames: list[Frame]) -> None:
        self.header = header
        self.frames = frames

    @property
    def op(self) -> str:
        return str(self.header.get("op", ""))


def encode(header: Header, frames: Sequence[Any] = ()) -> list[Any]:
    """Return the buffers to send, in order.

    Large ``frames`` (bytes, views, ZMQ frames' buffers) are not copied.
    """
    return encode_text(_HEADER_ENCODER.encode(header), frames)


def encode_text(header: str, frames: Sequence[Any] = ()) -> list[Any]:
    """Return the buffers of a record whose header is a JSON text already: an encoder costs more than all else."""
    text = header.encode()
    lengths = [len(text)]
    lengths += [frame.nbytes if isinstance(frame, memoryview) else len(frame) for frame in frames]
    total = sum(lengths)
    head = struct.pack(f">4sIQ{len(lengths)}Q", MAGIC, len(lengths), total, *lengths)
    if total <= _SCRATCH:
        return [b"".join((head, text, *frames))]
    return [head + text, *frames]


def read_json(text: bytes) -> Any:
    """Return the value of a JSON text, as json.loads does, but faster where it is UTF-8 without space around it.

    Raises ValueError and RecursionError.
    """
    try:
        plain = text.decode()
        value, end = _raw_decode(plain)
        if end == len(plain):
            return value
    except ValueError:
        pass
    return json.loads(text)


def charge(frames: Sequence[Any]) -> int:
    """Return the bytes that a waiting message counts for, with the cost of its parts."""
    return _MESSAGE_BYTES + sum(len(frame) + _FRAME_BYTES for frame in frames)


def encode_whole(header: Header, frames: Sequence[Any] = ()) -> bytes:
    """Return a small record as one piece."""
    return b"".join(encode(header, frames))


class RecordReader:
    """Turn received bytes into records, in whatever pieces they come. Nothing is copied twice.

    Receive into ``buffer()``, and tell ``filled(n)`` how much came. A ProtocolError is its end. Between
    records it has no buffer, unless it ``keeps`` one: a gateway has a reader for each kernel, most of
    which say nothing.
    """

    def __init__(self, longest: int = LONGEST_GREETING, *, keeps: bool = False) -> None:
        self.longest, self.keeps = longest, keeps
        self.longest_header = LONGEST_HEADER
        self._scratch: memoryview | None = None
        self._start = 0
        self._end = 0
        self._lengths: tuple[int, ...] | None = None
        self._body: memoryview | None = None  # the buffer of a record larger than the scratch
        self._body_end = 0

    @property
    def is_between_records(self) -> bool:
        """Tell whether an end of the stream here would cut no record."""
        return self._body is None and self._lengths is None and self._start == self._end

    def buffer(self) -> memoryview:
        """Return the buffer for the next bytes; never empty."""
        if self._body is not None:
            return self._body[self._body_end :]
        if self._scratch is None:
            self._scratch = memoryview(bytearray(_SCRATCH))
        view = self._scratch
        if self._end == _SCRATCH:
            rest = bytes(view[self._start : self._end])
            view[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        return view[self._end :]

    def filled(self, count: int) -> list[Record]:
        """Return the records that are complete now. Raises ProtocolError."""
        if self._body is not None:
            self._body_end += count
            if self._body_end < len(self._body):
                return []
            body, lengths = self._body, self._lengths or ()
            self._body, self._lengths = None, None
            return [_split(body, lengths)]
        self._end += count
        records = []
        while (record := self._next()) is not None:
            records.append(record)
        if self._start == self._end:
            self._start = self._end = 0
            if not self.keeps:
                self._scratch = None
        return records

    def _next(self) -> Record | None:
        view = self._scratch
        if view is None or (self._lengths is None and not self._read_head(view)):
            return None
        lengths = self._lengths or ()
        total = sum(lengths)
        there = self._end - self._start
        if there >= total:
            body = view[self._start : self._start + total]
            self._start += total
            self._lengths = None
            return _split(bytes(body), lengths)
        if total > _SCRATCH:
            whole = bytearray(total)
            whole[:there] = view[self._start : self._end]
            self._body, self._body_end = memoryview(whole), there
            self._start = self._end = 0
            self._scratch = None
        return None

    def _read_head(self, view: memoryview) -> bool:
        there = self._end - self._start
        if there < _HEAD.size:
            self._check_magic(bytes(view[self._start : self._start + min(4, there)]), view)
            return False
        magic, count, total = _HEAD.unpack_from(view, self._start)
        self._check_magic(magic, view)
        self._check(count, total)
        if there < _HEAD.size + 8 * count:
            return False
        lengths = struct.unpack_from(f">{count}Q", view, self._start + _HEAD.size)
        if sum(lengths) != total or lengths[0] > self.longest_header:
            raise ProtocolError(f"a record of {total} bytes has frames of {sum(lengths)}, a header of {lengths[0]}")
        self._start += _HEAD.size + 8 * count
        self._lengths = lengths
        return True

    def _check_magic(self, begin: bytes, view: memoryview) -> None:
        if not MAGIC.startswith(begin):
            found = bytes(view[self._start : min(self._start + 16, self._end)])
            raise ProtocolError(f"a record begins with {found!r} instead of {MAGIC!r}")

    def _check(self, count: int, total: int) -> None:
        most = min(MOST_FRAMES, (_SCRATCH - _HEAD.size) // 8)
        if not 1 <= count <= most:
            raise ProtocolError(f"a record has {count} frames; 1 to {most} are understood")
        if total > self.longest:
            raise ProtocolError(f"a record has {total} bytes; at most {self.longest} are accepted now")


def _split(body: Frame, lengths: Iterable[int]) -> Record:
    """Return the record of a body: its frames are bytes of bytes, and views of a view."""
    frames: list[Frame] = []
    at = 0
    for length in lengths:
        frames.append(body[at : at + length])
        at += length
    try:
        header = read_json(bytes(frames[0]))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a record's header is no JSON: {bytes(frames[0][:60])!r}") from error
    if not isinstance(header, dict):
        raise ProtocolError(f"a record's header is {type(header).__name__}, not an object")
    return Record(header, frames[1:])
