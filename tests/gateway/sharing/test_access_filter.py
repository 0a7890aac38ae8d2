"""Messages that a reader of a shared kernel receives, by kind."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.gateway.sharing.access_filter import ENAME, question, refusal
from jupyter_aliquot.provisioner.relay.wire.error_replies import answers


def header(msg_type: str, **more: Any) -> dict[str, Any]:
    told = {"msg_id": "m", "session": "s", "username": "u", "date": "d", "version": "5.3"}
    return {**told, "msg_type": msg_type, **more}


def test_a_question_keeps_nothing_but_its_few_fields() -> None:
    asked = question("shell", header("comm_info_request", subshell_id="x"), {"target_name": "t", "code": "x = 1"})
    assert asked is not None
    assert asked["header"] == header("comm_info_request")
    assert asked["content"] == {"target_name": "t"}


@pytest.mark.parametrize(
    ("channel", "told"),
    [
        ("shell", header("execute_request")),
        ("stdin", header("kernel_info_request")),
        ("shell", header("kernel_info_request", msg_id=7)),
        ("shell", header("kernel_info_request", session="s" * 300)),
        ("shell", {**header(""), "msg_type": None}),
    ],
)
def test_all_else_is_no_question(channel: str, told: dict[str, Any]) -> None:
    assert question(channel, told, {}) is None


@pytest.mark.parametrize(
    ("channel", "msg_type", "content", "want"),
    [
        ("shell", "execute_request", {}, ["status", "error", "execute_reply", "status"]),
        ("shell", "execute_request", {"silent": True}, ["status", "execute_reply", "status"]),
        ("shell", "complete_request", {}, ["status", "complete_reply", "status"]),
        ("shell", "comm_open", {"comm_id": "c"}, ["status", "comm_close", "status"]),
        ("shell", "comm_msg", {}, ["status", "status"]),
        ("control", "shutdown_request", {}, ["status", "shutdown_reply", "status"]),
        ("control", "debug_request", {"seq": 1}, ["status", "debug_reply", "status"]),
        ("stdin", "input_reply", {"value": "x"}, []),
        ("shell", None, {}, []),
    ],
)
def test_each_request_is_answered_to_its_end(
    channel: str, msg_type: Any, content: dict[str, Any], want: list[str]
) -> None:
    found = answers(channel, {"msg_type": msg_type}, content, ENAME, refusal("alice"))
    assert [answer.msg_type for answer in found] == want
    replies = [answer for answer in found if answer.msg_type.endswith("_reply")]
    assert all(reply.channel == channel and reply.content["status"] == "error" for reply in replies)
    if want:
        states = [answer.content["execution_state"] for answer in found if answer.msg_type == "status"]
        assert states == ["busy", "idle"]


def test_a_refusal_says_by_whom_and_how_it_is_shared() -> None:
    assert "read-only by alice" in refusal("alice")
    assert "to use by alice" in refusal("alice", Access.WRITE)
