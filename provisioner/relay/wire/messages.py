"""Read Jupyter messages as frames, as far as a relay needs, and sign its own.

This module knows no sockets. A pod's sidecar imports it beside the kernel's start: so its values, and
the store's, are named tuples, which need no import of dataclasses.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

from .protocol import DELIMITER, read_json

_FIRST_FRAMES = 8  # identities come before the delimiter; no client sends more of them
_VERSION = "5.4"
_DELIMITER_LENGTH = len(DELIMITER)
# Indexes of frames in their order on the wire, from the delimiter on.
SIGNATURE, HEADER, PARENT, METADATA, CONTENT = range(1, 6)

_WORK = frozenset({"execute_request", "comm_open", "comm_msg", "comm_close"})
_LONGEST_CELL_NAME = 256
_LONGEST_PROMPT = 4096
_LONGEST_QUESTION_NAME = 256
_SILENT = re.compile(rb'(?<!\\)"silent"\s*:\s*true')
# These messages to an earlier kernel must not end a restarted one.
_FOR_ONE_KERNEL = frozenset({"shutdown_request", "interrupt_request"})
_CONTROL_COMM = "jupyter.widget.control"
_STATE_METHODS = ("request_state", "request_states")
# A page opens one such comm, reads, and closes it.
_MOST_CONTROL_COMMS = 64
_LONGEST_STATE_READ = 4096  # of such a request; a longer comm message is a widget's own
_JOINED_BYTES = 1 << 16  # of a message that is signed in one call; a longer one would be copied


class Request(NamedTuple):
    """The fields of a request's header that a relay needs.

    ``sent``: seconds since the epoch, None if the client does not say. The kernel begins requests
    of one ``lane``, a channel or a subshell, in their order. ``reads_state``: it reads widgets'
    state, as a page does that comes back.
    """

    msg_id: str
    msg_type: str
    sent: float | None = None
    lane: str = ""
    reads_state: bool = False

    @property
    def is_work(self) -> bool:
        """True for cells and comm messages, which run the user's code.

        False for completion and the like.
        """
        return self.msg_type in _WORK and not self.reads_state

    @property
    def is_for_one_kernel(self) -> bool:
        """True for a request to the kernel that ran when it was sent, and to no later one."""
        return self.msg_type in _FOR_ONE_KERNEL


def find_delimiter(frames: Sequence[Any]) -> int:
    """Return the index of the delimiter, or -1. Frames may be ZMQ's."""
    for index, frame in enumerate(frames[:_FIRST_FRAMES]):
        if len(frame) == _DELIMITER_LENGTH and bytes(frame) == DELIMITER:
            return index
    return -1


def read_object(frame: Any) -> dict[str, Any]:
    """Return a frame's JSON object; empty for anything else."""
    try:
        found = read_json(bytes(frame))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def read_request(header: Mapping[str, Any], channel: str = "") -> Request | None:
    """Return the request of a header; None without id or type."""
    msg_id, msg_type = header.get("msg_id"), header.get("msg_type")
    if not isinstance(msg_id, str) or not isinstance(msg_type, str) or not msg_id:
        return None
    return Request(msg_id, msg_type, read_date(header.get("date")), f"{channel} {header.get('subshell_id') or ''}")


def is_silent(message: Sequence[Any]) -> bool:
    """Tell whether a cell, from its delimiter on, is silent."""
    return len(message) <= CONTENT or _SILENT.search(bytes(message[CONTENT])) is not None


def named_cell(message: Sequence[Any]) -> str:
    """Return the cell's id in its notebook, as JupyterLab tells it; empty without one."""
    name = read_object(message[METADATA]).get("cellId") if b"cellId" in bytes(message[METADATA]) else None
    return name if isinstance(name, str) and len(name) <= _LONGEST_CELL_NAME else ""


def read_question(message: Sequence[Any]) -> dict[str, Any]:
    """Return what an input_request asks its user, with its id, which tells equal questions apart."""
    content, name = read_object(message[CONTENT]), read_object(message[HEADER]).get("msg_id")
    asked = {"prompt": str(content.get("prompt", ""))[:_LONGEST_PROMPT], "password": bool(content.get("password"))}
    return {**asked, "id": name} if isinstance(name, str) and 0 < len(name) <= _LONGEST_QUESTION_NAME else asked


def read_date(date: Any) -> float | None:
    """Return a header's date in seconds since the epoch; None if it cannot be read."""
    try:
        moment = datetime.fromisoformat(str(date).replace("Z", "+00:00"))
    except ValueError:
        return None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)).timestamp()


class StateReads:
    """Recognizes how a page that comes back reads widgets' state: requests that are no user's work.

    The protocol is that of ipywidgets' control comm, version 1, and of its older ``request_state``.
    Control comms are remembered, so that closing one counts as a part of the reading.
    """

    def __init__(self) -> None:
        self._comms: deque[str] = deque(maxlen=_MOST_CONTROL_COMMS)

    def request(self, message: Sequence[Any], channel: str) -> Request | None:
        """Return the request of a message, from its delimiter on.

        None for a header without id or type.
        """
        request = read_request(read_object(message[HEADER]), channel)
        if request is None or not request.msg_type.startswith("comm_"):
            return request
        content = bytes(message[CONTENT])
        is_read = len(content) <= _LONGEST_STATE_READ and self._is_read(request.msg_type, read_object(content))
        return request._replace(reads_state=is_read)

    def _is_read(self, msg_type: str, content: Mapping[str, Any]) -> bool:
        comm, data = content.get("comm_id"), content.get("data")
        if msg_type == "comm_open":
            if content.get("target_name") != _CONTROL_COMM or not isinstance(comm, str):
                return False
            self._comms.append(comm)
            return True
        if msg_type == "comm_close":
            return comm in self._comms
        return isinstance(data, dict) and data.get("method") in _STATE_METHODS


class Signer:
    """Signs and verifies messages with the connection's key. With an empty key nothing is signed."""

    def __init__(self, key: str, scheme: str, session: str) -> None:
        """Take the connection's key. Raises ValueError for a scheme that is no hmac."""
        kind, _, digest = scheme.partition("-")
        if kind != "hmac" or digest not in hashlib.algorithms_available:
            raise ValueError(f"Signature scheme {scheme!r} is not known. Use hmac-sha256 or another hmac.")
        self._key = key.encode()
        self._digest = digest
        self._session = session

    def is_signed(self, message: Sequence[Any]) -> bool:
        """Tell whether a message, from its delimiter on, is signed with the key."""
        if len(message) <= CONTENT:
            return False
        return not self._key or hmac.compare_digest(
            bytes(message[SIGNATURE]), self._sign(message[HEADER : CONTENT + 1])
        )

    def message(
        self, msg_type: str, content: Mapping[str, Any], parent: bytes = b"{}", msg_id: str = ""
    ) -> list[bytes]:
        """Return a message of the relay's own, from its delimiter on.

        ``parent`` is a header as it came.
        """
        header = {
            "msg_id": msg_id or new_id(),
            "msg_type": msg_type,
            "username": "aliquot",
            "session": self._session,
            "date": datetime.now(timezone.utc).isoformat().replace("+00:00", "Z"),
            "version": _VERSION,
        }
        return self.signed(json.dumps(header).encode(), parent, json.dumps(content).encode())

    def signed(self, header: bytes, parent: bytes, content: bytes) -> list[bytes]:
        """Return a message's frames, signed, from its delimiter on."""
        parts = [header, parent, b"{}", content]
        return [DELIMITER, self._sign(parts), *parts]

    def _sign(self, parts: Sequence[Any]) -> bytes:
        if not self._key:
            return b""
        views = [part.buffer if hasattr(part, "buffer") else part for part in parts]
        if sum(map(len, views)) <= _JOINED_BYTES:
            return hmac.digest(self._key, b"".join(views), self._digest).hex().encode()
        made = hmac.new(self._key, digestmod=self._digest)
        for view in views:
            made.update(view)
        return made.hexdigest().encode()


def new_id() -> str:
    """Return a new unique id."""
    return os.urandom(16).hex()
