"""Read and write the mark of a message that is sent again. Pure.

Servers in gateway mode set the mark and gateways date it. Neither passes on a mark that a page wrote.
"""

from __future__ import annotations

import json
from typing import Any

from jupyter_aliquot.provisioner.relay.wire.resend import MARK, seconds_of

# In a gateway's answer to the opening of a websocket: what comes again does no harm there.
TAKES_AGAIN = "Aliquot-Takes-Again"


def marked(message: str, age: float, *, runs: bool) -> str:
    """It says of itself that it comes again. One that must not run comes without what it would run."""
    told = read_message(message)
    mark = {"age": age, "runs": runs}
    again = {**told, "metadata": {**part_of(told, "metadata"), MARK: mark}}
    if not runs:
        again["content"] = {name: part_of(told, "content").get(name) for name in ("silent", "comm_id")} | {"code": ""}
    text = json.dumps(again, ensure_ascii=False, separators=(",", ":"))
    return text if _is_unicode(text) else json.dumps(again)


def _is_unicode(text: str) -> bool:
    """Whether it can be sent as it is: an escape may stand for what is no character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def unmarked(message: str) -> str:
    """As a page may send it: a notebook's file brings metadata of its own, and only servers say what comes again."""
    if MARK not in message:
        return message
    told = read_message(message)
    if MARK not in (metadata := part_of(told, "metadata")):
        return message
    return json.dumps({**told, "metadata": {name: value for name, value in metadata.items() if name != MARK}})


def dated(message: str, now: float) -> str:
    """At the gateway: with the time at which it was sent first, by the clock that the relay has, too."""
    told = read_message(message)
    mark = part_of(part_of(told, "metadata"), MARK)
    age = seconds_of(mark.pop("age", None))
    if age is None:
        return message
    mark |= {"sent": now - max(0.0, age)}
    return json.dumps(told)


def read_message(message: str) -> dict[str, Any]:
    """Return a message's fields; none for what is no JSON object."""
    try:
        told = json.loads(message)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def part_of(told: dict[str, Any], name: str) -> dict[str, Any]:
    """Return one of its tables, such as its header; an empty one where it is no table."""
    part = told.get(name)
    return part if isinstance(part, dict) else {}
