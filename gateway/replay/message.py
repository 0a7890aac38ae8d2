"""One message that a cell showed, or several joined, kept for a page that comes back.

What it holds is the user's: nothing here logs it. Binary buffers are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from jupyter_aliquot.gateway.reports.outputs import KeptMessage as MessageReport
from jupyter_aliquot.provisioner.relay.wire.messages import CONTENT, HEADER, METADATA, read_object

# A stream is joined up to this, so that its beginning can be given up before its end.
_LONGEST_JOINED = 1 << 16
# Content beyond it is kept unread: pictures.
LONGEST_READ = 1 << 16
_READ = frozenset({"stream", "clear_output", "update_display_data"})
# The end of an update, as IPython and others write it: which display it is of.
_DISPLAY = re.compile(rb'"transient"\s*:\s*\{\s*"display_id"\s*:\s*("(?:[^"\\]|\\.)+")\s*\}\s*\}\s*\Z')
_LONGEST_END = 400


class KeptMessage:
    """A kept message.

    ``text`` is None for all but streams; ``count`` is the number of messages joined in it.
    """

    __slots__ = ("content", "count", "display_id", "header", "is_gone", "metadata", "msg_type", "name", "size", "text")

    def __init__(self, msg_type: str, frames: Sequence[Any], content: dict[str, Any]) -> None:
        """Keep a message.

        ``frames`` begin at the delimiter; ``content`` is as read, empty if it was not read.
        """
        self.msg_type = msg_type
        self.header = bytes(frames[HEADER])
        self.metadata = bytes(frames[METADATA])
        self.content = b""
        self.name = ""
        self.text: list[str] | None = None
        self.count = 1
        self.is_gone = False
        transient = content.get("transient")
        name = transient.get("display_id") if isinstance(transient, dict) else None
        # The id that an update's message has: the output shown under it is replaced.
        self.display_id = name if isinstance(name, str) and msg_type == "update_display_data" else None
        self.size = sum(len(frame) for frame in frames[HEADER : CONTENT + 1])
        text = content.get("text")
        if msg_type == "stream" and isinstance(text, str):
            self.name, self.text = str(content.get("name")), [text]
        else:
            self.content = bytes(frames[CONTENT])

    def join(self, content: dict[str, Any], size: int) -> int | None:
        """Join the next message of the stream; return the bytes added, None if it does not fit."""
        text = content.get("text")
        if self.text is None or self.size > _LONGEST_JOINED or content.get("name") != self.name:
            return None
        if not isinstance(text, str):
            return None
        self.count += 1
        if _overwrites(self.text[-1], text):
            size -= len(self.text.pop().encode(errors="replace"))
        self.text.append(text)
        self.size += size
        return size

    def drop(self) -> None:
        """Free the content; the message keeps its place in lists for a while."""
        self.is_gone = True
        self.header = self.metadata = self.content = b""
        self.text, self.display_id = None, None

    def value(self) -> tuple[Any, ...]:
        """Return the whole content, to be read elsewhere while this message grows."""
        return self.header, self.metadata, self.content, self.name, None if self.text is None else "".join(self.text)


def read_content(msg_type: str, frame: Any) -> dict[str, Any]:
    """Return what is needed of a message's content; of a long one the display that it updates."""
    if msg_type not in _READ:
        return {}
    if len(frame) <= LONGEST_READ:
        return read_object(frame)
    found = _DISPLAY.search(bytes(frame[-_LONGEST_END:])) if msg_type == "update_display_data" else None
    return {} if found is None else read_object(b'{"transient": {"display_id": %s}}' % found[1])


def _overwrites(shown: str, text: str) -> bool:
    """Return whether a line that begins anew, as a progress bar does, hides the one before it."""
    is_one_line = text.startswith("\r") and shown.startswith("\r") and "\n" not in text + shown
    return is_one_line and len(text) >= len(shown) and "\b" not in text


def read_message(value: tuple[Any, ...], parent: str) -> MessageReport | None:
    """Return a message in Jupyter's form from `KeptMessage.value`; None if it cannot be read."""
    header, metadata, content, name, text = value
    try:
        told = {"name": name, "text": text} if text is not None else _read(content)
        return MessageReport(
            header=_read(header), parent_header={"msg_id": parent}, metadata=_read(metadata), content=told
        )
    except (ValueError, RecursionError):
        return None


def _read(frame: bytes) -> Any:
    return json.loads(frame, parse_constant=_refuse)


def _refuse(name: str) -> None:
    """Refuse NaN and Infinity: a browser could read nothing of an answer that holds one."""
    raise ValueError(f"it holds {name}, which is not JSON")
