"""Whether what a browser's websocket brought can be taken apart: its own numbers say where its parts lie.

Jupyter's readers believe those numbers: eight bytes of them make a server build a list without end, and parts that
overlap become many times what was sent. Pure, and it reads no more than the numbers.
"""

from __future__ import annotations

import itertools
import struct

V1 = "v1.kernel.websocket.jupyter.org"
_MOST_PARTS = 1 << 16


def why_unreadable(message: str | bytes, subprotocol: str | None) -> str:
    """In a few words, for the socket that sent it; empty for what can be read on. JSON is looked at by who reads it."""
    if subprotocol == V1:
        return _why_not(message, count_format="<Q", number="Q", order="<", least=3)
    return "" if isinstance(message, str) else _why_not(message, count_format="!i", number="I", order="!", least=1)


def _why_not(message: str | bytes, *, count_format: str, number: str, order: str, least: int) -> str:
    """How many offsets, then the offsets of the parts: ascending, and none beyond the end."""
    if isinstance(message, str):
        return "text, where this protocol has bytes"
    width = struct.calcsize(count_format)
    if len(message) < width:
        return "no room for the number of its parts"
    (count,) = struct.unpack_from(count_format, message)
    if not least <= count <= _MOST_PARTS:
        return f"{count} parts; a message has {least} to {_MOST_PARTS}"
    if len(message) < width * (count + 1):
        return f"no room for the places of {count} parts"
    places = (0, *struct.unpack_from(f"{order}{count}{number}", message, width), len(message))
    if any(before > after for before, after in itertools.pairwise(places)):
        return "parts that overlap, or lie beyond its end"
    return ""
