"""What a websocket of somebody who may only look is answered: pure, from a message's header to Jupyter's messages.

Two questions go to the kernel, made anew so that nothing else of them does. All others are answered at once, as by a
kernel that refuses, so that a cell ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.provisioner.relay.wire import error_replies as refusals
from jupyter_aliquot.provisioner.relay.wire.error_replies import Answer

ASKABLE = frozenset({"kernel_info_request", "comm_info_request"})
ENAME = "ReadOnlyKernel"
_HEADER = ("msg_id", "session", "username", "date", "version", "msg_type")
_LONGEST = 256
_ASKS = "_request"


def question(channel: str, header: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any] | None:
    """The message to forward; None for what is not for who may only look."""
    if channel not in ("shell", "control") or header.get("msg_type") not in ASKABLE:
        return None
    told = {name: header[name] for name in _HEADER if isinstance(header.get(name), str)}
    if not {"msg_id", "session"} <= set(told) or any(len(text) > _LONGEST for text in told.values()):
        return None
    target = content.get("target_name")
    asked = {"target_name": target} if isinstance(target, str) and len(target) <= _LONGEST else {}
    return {"header": told, "parent_header": {}, "metadata": {}, "content": asked}


def replies(channel: str, header: Mapping[str, Any], content: dict[str, Any]) -> list[Answer]:
    """What the kernel answered to a question, as the kernel says it."""
    busy, idle = (Answer("iopub", "status", {"execution_state": state}) for state in ("busy", "idle"))
    return [busy, Answer(channel, header["msg_type"].removesuffix(_ASKS) + "_reply", content), idle]


def refusal(owner: str, access: Access = Access.READ) -> str:
    """What a cell shows."""
    if access is Access.WRITE:
        return f"shared with you to use by {owner}, who alone ends it"
    return f"shared with you read-only by {owner}: you see what it shows, and run nothing in it"


def answers(channel: str, header: Mapping[str, Any], content: Mapping[str, Any], said: str) -> list[Answer]:
    """Return the answers in order; none for a message that no kernel answers."""
    return refusals.answers(channel, header, content, ENAME, said)
