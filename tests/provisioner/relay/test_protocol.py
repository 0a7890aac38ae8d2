"""Records on the wire, in pieces of any size, and bytes that are no record."""

from __future__ import annotations

import json
import struct
import tracemalloc

import pytest
from hypothesis import given, strategies as st

from jupyter_aliquot.provisioner.relay.wire.protocol import (
    LONGEST_GREETING,
    LONGEST_HEADER,
    LONGEST_RECORD,
    MAGIC,
    ProtocolError,
    Record,
    RecordReader,
    encode,
    encode_whole,
)

texts = st.text(max_size=20)
headers = st.dictionaries(texts, st.none() | st.booleans() | st.integers() | texts | st.lists(texts), max_size=5)
frame_lists = st.lists(
    st.binary(max_size=100)
    | st.integers(60_000, 140_000).map(lambda size: bytes(range(256)) * (size // 256) + b"x" * (size % 256)),
    max_size=6,
)


def feed(reader: RecordReader, data: bytes, pieces: list[int]) -> list[Record]:
    """Receive in pieces of these sizes, over and over, as far as the reader's buffer allows."""
    records, at, turn = [], 0, 0
    while at < len(data):
        buffer = reader.buffer()
        assert len(buffer)
        count = min(len(buffer), pieces[turn % len(pieces)], len(data) - at)
        buffer[:count] = data[at : at + count]
        records += reader.filled(count)
        at, turn = at + count, turn + 1
    return records


@given(
    st.lists(st.tuples(headers, frame_lists), max_size=4),
    st.lists(st.integers(1, 100_000), min_size=1, max_size=5) | st.just([1 << 20]),
)
def test_records_come_out_as_they_went_in_whatever_the_pieces(
    sent: list[tuple[dict[str, object], list[bytes]]], pieces: list[int]
) -> None:
    reader = RecordReader(LONGEST_RECORD)
    data = b"".join(b"".join(encode(header, frames)) for header, frames in sent)
    records = feed(reader, data, [max(piece, len(data) // 200 + 1) for piece in pieces])
    assert [(r.header, [bytes(f) for f in r.frames]) for r in records] == sent
    assert reader.is_between_records


def test_a_reader_that_waits_for_a_record_keeps_no_buffer() -> None:
    tracemalloc.start()
    try:
        readers = [RecordReader(LONGEST_RECORD) for _ in range(100)]
        for reader in readers:
            feed(reader, encode_whole({"op": "hello"}), [1000])
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert all(reader.is_between_records for reader in readers)
    assert kept / len(readers) < 4096, "a thousand kernels would keep 62 MiB, of 64 KiB each"


@given(st.binary(min_size=1, max_size=300))
def test_garbage_is_refused_or_waits_for_more_and_never_becomes_a_record(data: bytes) -> None:
    reader = RecordReader(LONGEST_RECORD)
    if MAGIC.startswith(data[:4]) or data.startswith(MAGIC):
        return
    with pytest.raises(ProtocolError, match="a record begins with"):
        feed(reader, data, [300])


def head(frames: int, total: int, *lengths: int) -> bytes:
    return struct.pack(">4sIQ", MAGIC, frames, total) + struct.pack(f">{len(lengths)}Q", *lengths)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (head(0, 0), "0 frames"),
        (head(1 << 20, 1), "1048576 frames"),
        (head(1, 1 << 60, 1 << 60), f"at most {LONGEST_RECORD}"),
        (head(2, 5, 2, 2), "frames of 4"),
        (head(1, LONGEST_HEADER + 1, LONGEST_HEADER + 1), "a header of"),
        (head(1, 3, 3) + b"nop", "no JSON"),
        (head(1, 2, 2) + b"[]", "list, not an object"),
        (head(1, 200_000, 200_000) + b"[" * 200_000, "no JSON"),
    ],
)
def test_a_record_that_is_wrong_is_refused_with_what_was_found(data: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        feed(RecordReader(LONGEST_RECORD), data, [len(data)])


def test_who_has_not_greeted_cannot_make_us_reserve_memory() -> None:
    with pytest.raises(ProtocolError, match=f"at most {LONGEST_GREETING}"):
        feed(RecordReader(), head(1, LONGEST_GREETING + 1, LONGEST_GREETING + 1), [16])


def test_half_a_record_is_seen_as_half() -> None:
    data = encode_whole({"op": "x"}, [b"frame"])
    for cut in range(1, len(data)):
        reader = RecordReader()
        assert not feed(reader, data[:cut], [len(data)])
        assert not reader.is_between_records, cut


def test_texts_that_are_no_unicode_survive() -> None:
    """Environments may hold any bytes; Python has them as lone surrogates."""
    (record,) = feed(RecordReader(), encode_whole({"env": "\udcff"}), [1000])
    assert record.header == {"env": "\udcff"}
    assert json.dumps(record.header)
