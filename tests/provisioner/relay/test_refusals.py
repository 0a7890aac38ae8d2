"""The answers to a message that the kernel does not get. Pure."""

from __future__ import annotations

import pytest

from jupyter_aliquot.provisioner.relay.wire.error_replies import CommWords, answers, unread_words

MIB = 1 << 20


def kinds(msg_type: str, **more: bool) -> list[str]:
    return [one.msg_type for one in answers("shell", {"msg_type": msg_type}, {"comm_id": "c"}, "No", "why", **more)]


@pytest.mark.parametrize(
    ("msg_type", "want_quiet", "want_told"),
    [
        ("comm_msg", [], ["error"]),
        ("comm_open", ["comm_close"], ["error", "comm_close"]),
        ("comm_close", [], ["error"]),
        ("complete_request", ["complete_reply"], ["complete_reply"]),
        ("execute_request", ["error", "execute_reply"], ["error", "execute_reply"]),
    ],
)
def test_a_comm_message_fails_as_a_cell_does_where_that_is_to_be_told(
    msg_type: str, want_quiet: list[str], want_told: list[str]
) -> None:
    assert kinds(msg_type) == ["status", *want_quiet, "status"]
    assert kinds(msg_type, tells_comm=True) == ["status", *want_told, "status"]


def test_comm_messages_are_told_of_once_in_a_minute_and_others_never() -> None:
    words = CommWords()
    asked = [("execute_request", 0.0), ("comm_msg", 1.0), ("comm_open", 2.0), ("comm_msg", 60.9), ("comm_close", 61.0)]
    assert [words.are_due(kind, now) for kind, now in asked] == [False, True, False, False, True]
    assert not words.are_due(None, 1000.0)


def test_the_words_say_what_to_do_again() -> None:
    assert "This was not run: run it again" in unread_words(MIB, 64 * MIB, 64 * MIB)
    told = unread_words(MIB, 64 * MIB, 64 * MIB, "comm_msg")
    assert "The kernel has 64.0 MiB to read, and at most 64.0 MiB may wait" in told
    assert "what was changed in a widget: change it again" in told
