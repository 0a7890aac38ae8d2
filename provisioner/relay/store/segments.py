"""Messages on disk, in files that are removed once nothing in them is needed.

This module owns the spill folder. A file has the size that its relay claimed of the room for all
relays, before anything is written to it.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .spill_room import SpillRoom

SEGMENT_BYTES = 32 << 20
_CLAIM_BYTES = 4 << 20
_COUNT = struct.Struct(">I")


class Place(NamedTuple):
    """The place of a message on disk."""

    segment: int
    offset: int
    length: int


class _Segment:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self.end = 0
        self.claimed = 0
        self.wanted = 0

    def claim(self, count: int) -> None:
        """Claim that many bytes more of the disk. Raises OSError."""
        os.posix_fallocate(self.descriptor, self.claimed, count)
        self.claimed += count

    def give_back(self) -> None:
        """Note that nothing more is written to this file."""
        os.ftruncate(self.descriptor, self.end)
        self.claimed = self.end

    def remove(self) -> None:
        os.close(self.descriptor)
        with contextlib.suppress(OSError):
            self.path.unlink()


class Spill:
    """The files of one relay.

    ``write`` raises OSError if the disk or the room is full, and then keeps nothing of that
    message.
    """

    def __init__(self, room: SpillRoom, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._room = room
        self._segment_bytes = segment_bytes
        self._segments: dict[int, _Segment] = {}
        self._last = 0

    @property
    def segments(self) -> int:
        return len(self._segments)

    def write(self, frames: Sequence[Any]) -> Place:
        """Append one message."""
        lengths = [len(frame) for frame in frames]
        head = _COUNT.pack(len(lengths)) + struct.pack(f">{len(lengths)}Q", *lengths)
        length = len(head) + sum(lengths)
        segment = self._segment_for(length)
        place = Place(self._last, segment.end, length)
        at = segment.end
        for part in (head, *frames):
            at = _write_all(segment.descriptor, part, at)
        segment.end, segment.wanted = at, segment.wanted + 1
        return place

    def read(self, place: Place) -> list[memoryview]:
        """Return the frames of a message. Raises OSError."""
        data = memoryview(os.pread(self._segments[place.segment].descriptor, place.length, place.offset))
        if len(data) != place.length:
            raise OSError(f"{self._segments[place.segment].path} was cut short")
        (count,) = _COUNT.unpack_from(data)
        at = _COUNT.size + 8 * count
        frames = []
        for length in struct.unpack_from(f">{count}Q", data, _COUNT.size):
            frames.append(data[at : at + length])
            at += length
        return frames

    def forget(self, place: Place) -> None:
        """Forget a message."""
        segment = self._segments[place.segment]
        segment.wanted -= 1
        if not segment.wanted:
            segment.remove()
            del self._segments[place.segment]

    def close(self) -> None:
        """Remove all files."""
        for segment in self._segments.values():
            segment.remove()
        self._segments.clear()
        self._room.close()

    def _segment_for(self, length: int) -> _Segment:
        """Return the file to append that many bytes to, with the bytes claimed."""
        segment = self._segments.get(self._last)
        if segment is None or segment.end >= self._segment_bytes:
            return self._new_segment(segment, length)
        least = segment.end + length - segment.claimed
        if least > 0:
            with self._room.claim(least, self._wanted(least, self._segment_bytes - segment.end)) as claimed:
                segment.claim(claimed)
        return segment

    def _new_segment(self, former: _Segment | None, length: int) -> _Segment:
        with self._room.claim(length, self._wanted(length, self._segment_bytes)) as claimed:
            if former is not None:
                former.give_back()
            segment = _Segment(self._room.folder / f"{self._last + 1}")
            try:
                segment.claim(claimed)
            except OSError:
                segment.remove()
                raise
        self._last += 1
        self._segments[self._last] = segment
        return segment

    def _wanted(self, least: int, most: int) -> int:
        """Return the bytes to claim: claims stay few, and little of them unused."""
        return max(least, min(_CLAIM_BYTES, most))


def _write_all(descriptor: int, part: Any, at: int) -> int:
    view = memoryview(part)
    while len(view):
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written
    return at
