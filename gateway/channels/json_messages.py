"""Write a kernel's message for a page that speaks Jupyter's older protocol: one JSON text a message.

Jupyter reads a message's parts, makes objects of their dates, and writes all of it anew. The parts are JSON
texts already: here they are looked at, and passed on as they are. This module sends nothing.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jupyter_client.session import Session

# From the delimiter on: it, the signature, header, parent header, metadata and content; buffers come after.
_FRAMES = 6
_PACKERS = ("json", "jupyter_client.session.json_packer", "jupyter_client.session.json_unpacker")


@dataclass(frozen=True)
class JsonMessage:
    """A message as a page gets it. ``parts``: the header, the parent header, the metadata and the content."""

    header: dict[str, Any]
    parts: list[bytes] = field(repr=False)
    text: str = field(repr=False)


def json_message(session: Session, channel: str, frames: Sequence[Any]) -> JsonMessage | None:
    """Return the message for the page; None for one that Jupyter has to read: with buffers, or of another kind.

    Raises ValueError for one that is not signed with the session's key, or whose parts are no JSON.
    """
    if len(frames) != _FRAMES or session.packer not in _PACKERS or session.unpacker not in _PACKERS:
        return None
    signature, *parts = [bytes(frame) for frame in frames[1:]]
    if session.auth is not None and not hmac.compare_digest(signature, session.sign(parts)):
        raise ValueError("its signature is not that of the kernel's key")
    head, before, metadata, content = texts = [part.decode("utf-8", "replace") for part in parts]
    header, parent, _, _ = map(json.loads, texts)
    if not _is_as_written(header, is_whole=True) or not _is_as_written(parent, is_whole=False):
        return None
    text = (
        f'{{"header": {head}, "msg_id": {json.dumps(header["msg_id"])}, "msg_type": {json.dumps(header["msg_type"])}, '
        f'"parent_header": {before}, "metadata": {metadata}, "content": {content}, "buffers": [], '
        f'"channel": "{channel}"}}'
    )
    return JsonMessage(header, parts, text)


def _is_as_written(header: Any, *, is_whole: bool) -> bool:
    """Return whether Jupyter would write a header as it came: of protocol 5, with its date in UTC."""
    if not isinstance(header, dict):
        return False
    date = header.get("date")
    if not is_whole and date is None:
        return True
    is_known = isinstance(header.get("msg_id"), str) and isinstance(header.get("msg_type"), str)
    is_dated = isinstance(date, str) and date.endswith("Z") and str(header.get("version", "")).startswith("5.")
    return is_dated and (is_known or not is_whole)
