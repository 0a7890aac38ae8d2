"""A page that speaks Jupyter's older protocol gets each message as Jupyter would write it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jupyter_client.jsonutil import json_default
from jupyter_client.session import Session

from jupyter_aliquot.gateway.channels.json_messages import json_message

KERNEL = Session(key=b"secret", session="kernel")
HEADER = {"msg_id": "c1", "msg_type": "execute_request", "username": "", "session": "page", "version": "5.3"}


def frames(session: Session = KERNEL, parent: dict[str, Any] | None = None, **content: Any) -> list[bytes]:
    """Return a message of the kernel as the relay's link brings it: from its delimiter on."""
    made = session.msg("stream", content, parent={} if parent is None else {"header": parent})
    return list(session.serialize(made))


@pytest.mark.parametrize("parent", [{}, HEADER, {**HEADER, "date": "2026-11-28T10:00:00.123456Z"}])
@pytest.mark.parametrize(
    "content", [{}, {"name": "stdout", "text": 'tab\t"quoted" Zähler \u2028 \U0001f600'}, {"x": [1.5, None, {}]}]
)
def test_a_page_gets_what_jupyter_would_write(parent: dict[str, Any], content: dict[str, Any]) -> None:
    came = frames(parent=parent, **content)
    made = json_message(Session(key=b"secret"), "iopub", came)
    page = Session(key=b"secret")
    want = {**page.deserialize(page.feed_identities(came)[1]), "channel": "iopub"}
    assert made is not None
    assert json.loads(made.text) == json.loads(json.dumps(want, default=json_default))
    assert made.header["msg_type"] == "stream"


def test_a_message_with_another_signature_is_refused() -> None:
    with pytest.raises(ValueError, match="signature"):
        json_message(Session(key=b"secret"), "iopub", frames(Session(key=b"another")))


@pytest.mark.parametrize("content", [b"{", b'{}, "channel": "shell"', b"\xff"])
def test_parts_that_are_no_json_are_refused(content: bytes) -> None:
    came = frames()
    came[5] = content
    came[1] = KERNEL.sign(came[2:])
    with pytest.raises(json.JSONDecodeError, match="line 1"):
        json_message(Session(key=b"secret"), "iopub", came)


def without(name: str) -> list[bytes]:
    came = frames()
    header = json.loads(came[2])
    del header[name]
    came[2] = json.dumps(header).encode()
    came[1] = KERNEL.sign(came[2:])
    return came


def dated(date: str) -> list[bytes]:
    came = frames()
    came[2] = json.dumps({**json.loads(came[2]), "date": date}).encode()
    came[1] = KERNEL.sign(came[2:])
    return came


@pytest.mark.parametrize(
    "came",
    [[*frames(), b"buffer"], without("msg_id"), without("date"), without("version"), dated("2026-11-28T10:00:00")],
    ids=["buffers", "no id", "no date", "no version", "a date without a zone"],
)
def test_a_message_that_jupyter_completes_or_packs_is_left_to_it(came: list[bytes]) -> None:
    assert json_message(Session(key=b"secret"), "iopub", came) is None


def test_a_session_with_another_packer_is_left_to_jupyter() -> None:
    session = Session(key=b"secret", packer="pickle")
    assert json_message(session, "iopub", frames()) is None
