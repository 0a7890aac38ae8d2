"""Answers to requests that the kernel must not see.

They look like those of a kernel that refuses, so that a cell ends. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jupyter_aliquot.gpu_hook.base.pacing import Throttle

from .messages import CONTENT, HEADER, is_silent, read_object

_HEADER = ("msg_id", "session", "username", "date", "version", "msg_type")
_LONGEST = 256
_LONGEST_READ = 1 << 16
_ASKS = "_request"
# Messages of widgets, to which no kernel replies.
_COMMS = frozenset({"comm_open", "comm_msg", "comm_close"})
_QUIET_SECONDS = 60.0
# The error of a request that did not reach the kernel.
NOT_RUN = "CellNotRun"


@dataclass(frozen=True)
class Answer:
    """A message to the client that asked; on iopub also to others, like the kernel's own."""

    channel: str
    msg_type: str
    content: dict[str, Any]


class CommWords:
    """Decide when a refused comm message gets an error in words.

    It does once a minute, because a slider sends many.
    """

    def __init__(self) -> None:
        self._due = Throttle(_QUIET_SECONDS)

    def are_due(self, msg_type: Any, now: float) -> bool:
        """Tell whether this message gets the words. *now* is in seconds that only go forward."""
        is_comm = isinstance(msg_type, str) and msg_type in _COMMS
        return is_comm and self._due.passes("", now)


def answers(
    channel: str,
    header: Mapping[str, Any],
    content: Mapping[str, Any],
    ename: str,
    said: str,
    *,
    tells_comm: bool = False,
) -> list[Answer]:
    """Return the answers in order; none for a message that no kernel answers.

    ``tells_comm``: a comm message fails as a cell does, so that pages can say so; else its widget
    just stands still.
    """
    msg_type = header.get("msg_type")
    if not isinstance(msg_type, str) or channel not in ("shell", "control"):
        return []
    error = {"ename": ename, "evalue": said, "traceback": [f"{ename}: {said}"]}
    found = [Answer("iopub", "status", {"execution_state": "busy"})]
    if (msg_type == "execute_request" and not content.get("silent")) or (tells_comm and msg_type in _COMMS):
        found.append(Answer("iopub", "error", error))
    if msg_type == "comm_open":
        found.append(Answer("iopub", "comm_close", {"comm_id": str(content.get("comm_id"))[:_LONGEST], "data": {}}))
    if msg_type.endswith(_ASKS):
        reply = {"status": "error", **error, **_more(msg_type, content, said)}
        found.append(Answer(channel, msg_type.removesuffix(_ASKS) + "_reply", reply))
    return [*found, Answer("iopub", "status", {"execution_state": "idle"})]


def _more(msg_type: str, content: Mapping[str, Any], said: str) -> dict[str, Any]:
    if msg_type == "execute_request":
        return {"execution_count": None, "user_expressions": {}, "payload": []}
    if msg_type == "debug_request":  # refusals have another form in the debugger's protocol
        told = {"type": "response", "success": False, "message": said, "body": {}}
        return {**told, "request_seq": content.get("seq"), "command": content.get("command")}
    return {}


def parent_of(header: Mapping[str, Any]) -> bytes:
    """Return the parent header of answers to a message with this header; empty without a fit id."""
    told = {name: header[name] for name in _HEADER if isinstance(header.get(name), str)}
    if "msg_id" not in told or any(len(text) > _LONGEST for text in told.values()):
        return b""
    return json.dumps(told).encode()


def content_of(message: Sequence[Any]) -> dict[str, Any]:
    """Return what answers need of a message's content. A long content is not read."""
    if b'"execute_request"' in bytes(message[HEADER]):
        return {"silent": is_silent(message)}
    return read_object(message[CONTENT]) if len(message[CONTENT]) <= _LONGEST_READ else {}


def unread_words(size: int, waiting: int, most: int, msg_type: Any = "execute_request") -> str:
    """Return the error for a message that is one too many for a kernel that does not read."""
    what, again = ("This was not run", "run it again")
    if msg_type in _COMMS:
        what, again = ("The kernel does not know what was changed in a widget", "change it again")
    return (
        f"The kernel has {_megabytes(waiting)} to read, and at most {_megabytes(most)} may wait "
        f"(c.Limits.unread_bytes), so {_megabytes(size)} more were refused. {what}: {again} when the kernel has gone "
        "on, or interrupt or restart the kernel."
    )


def _megabytes(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"
