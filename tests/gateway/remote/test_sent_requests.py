"""Which requests of pages a user's server keeps, until when, and which of them it sends again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jupyter_aliquot.gateway.channels.resend_mark import dated, unmarked
from jupyter_aliquot.gateway.remote import resend as remote_requests
from jupyter_aliquot.gateway.remote.resend import SentRequests

KERNEL, PAGE = "k", "page"


class Desk(SentRequests):
    """With one kernel and one page, unless told otherwise, and a clock of the test's own."""

    def __init__(self) -> None:
        self.seconds = self.date = 0.0
        super().__init__(lambda: self.seconds, lambda: self.date)

    def page(self, msg_id: str, kind: str, channel: str = "shell", kernel: str = KERNEL, **more: Any) -> str:
        header = {"msg_id": msg_id, "msg_type": kind}
        said = {"header": header, "parent_header": {}, "metadata": {"cellId": "c"}, "content": {}, "channel": channel}
        text = json.dumps({**said, **more})
        self.sent(kernel, more.get("session", PAGE), text)
        return text

    def kernel(self, kind: str, parent: str, msg_id: str = "of-kernel", content: str = "") -> None:
        header, content_of = {"msg_id": msg_id, "msg_type": kind}, {"text": content}
        told = {"header": header, "msg_id": msg_id, "msg_type": kind, "parent_header": {"msg_id": parent}}
        self.heard(KERNEL, PAGE, json.dumps({**told, "content": content_of}))

    def comes_again(self, page: str = PAGE) -> list[tuple[str, bool]]:
        found = [json.loads(text) for text in self.again(KERNEL, page)]
        return [(one["header"]["msg_id"], one["metadata"]["aliquot_again"]["runs"]) for one in found]


KINDS = [
    ("shell", "execute_request", True),
    ("shell", "comm_open", True),
    ("shell", "comm_msg", True),
    ("shell", "comm_close", True),
    ("shell", "kernel_info_request", False),
    ("shell", "complete_request", False),
    ("shell", "inspect_request", False),
    ("shell", "history_request", False),
    ("shell", "shutdown_request", False),
    ("control", "execute_request", False),
    ("control", "interrupt_request", False),
    ("control", "shutdown_request", False),
    ("control", "debug_request", False),
    ("stdin", "input_reply", False),
]


@pytest.mark.parametrize(("channel", "kind", "want"), KINDS, ids=[f"{kind} on {channel}" for channel, kind, _ in KINDS])
def test_what_means_the_same_when_it_comes_late_comes_again_and_nothing_else(
    channel: str, kind: str, want: bool
) -> None:
    desk = Desk()
    desk.page("a", kind, channel)
    assert desk.comes_again() == ([("a", True)] if want else [])


def test_a_message_comes_again_as_it_was_in_its_order_with_its_age() -> None:
    desk = Desk()
    first = json.loads(desk.page("a", "execute_request", content={"code": "é"}))
    desk.seconds = 5.0
    desk.page("b", "comm_msg")
    desk.seconds = 7.5
    [again, other] = [json.loads(text) for text in desk.again(KERNEL, PAGE)]
    assert again["metadata"].pop("aliquot_again") == {"age": 7.5, "runs": True}
    assert again == first
    assert (other["header"]["msg_id"], other["metadata"]["aliquot_again"]["age"]) == ("b", 2.5)
    at_the_gateway = json.loads(dated(json.dumps(other), 100.0))
    assert at_the_gateway["metadata"]["aliquot_again"] == {"sent": 97.5, "runs": True}


@pytest.mark.parametrize(
    "metadata", [{}, {"aliquot_again": 1}, {"aliquot_again": {"age": "x"}}, {"n": "aliquot_again"}]
)
def test_a_gateway_changes_no_message_that_says_nothing_of_its_age(metadata: dict[str, Any]) -> None:
    text = json.dumps({"header": {}, "metadata": metadata})
    assert dated(text, 100.0) is text


def test_any_answer_shows_that_a_request_arrived_and_no_words_of_its_users_do() -> None:
    desk = Desk()
    desk.page("a", "execute_request")
    desk.page("b", "execute_request")
    desk.kernel("stream", "x", content='"parent_header": {"msg_id": "a"}')
    assert desk.comes_again() == [("a", True), ("b", True)]
    desk.kernel("status", "a")
    assert desk.comes_again() == [("b", False)]
    desk.heard(KERNEL, PAGE, "no message")


def test_each_page_of_a_kernel_sends_its_own_again() -> None:
    desk = Desk()
    desk.page("a", "execute_request", session="other")
    desk.page("b", "execute_request")
    desk.page("c", "execute_request", kernel="another")
    desk.page("b", "execute_request", kernel="another")
    desk.heard("another", PAGE, json.dumps({"header": {}, "parent_header": {"msg_id": "b"}}))
    desk.heard(KERNEL, "other", json.dumps({"header": {}, "parent_header": {"msg_id": "b"}}))
    assert (desk.comes_again(), desk.comes_again("other")) == ([("b", True)], [("a", True)])


def test_what_was_interrupted_or_restarted_is_answered_and_not_run() -> None:
    for kind in ("REST", "message"):
        desk = Desk()
        desk.page("a", "execute_request")
        if kind == "REST":
            desk.interrupted(KERNEL)
        else:
            desk.page("i", "interrupt_request", "control")
        desk.page("b", "execute_request")
        assert desk.comes_again() == [("a", False), ("b", True)]
        desk.page("c", "execute_request")
        desk.page("s", "shutdown_request", "control")
        assert desk.comes_again() == [("a", False), ("b", False), ("c", False)]
        desk.forget(KERNEL)
        assert (desk.comes_again(), len(desk)) == ([], 0)


def test_nothing_runs_that_comes_a_second_time_or_late_or_among_many() -> None:
    desk = Desk()
    desk.page("a", "execute_request", content={"code": "x" * 1000, "silent": True})
    assert desk.comes_again() == [("a", True)]
    [again] = desk.again(KERNEL, PAGE)
    told = json.loads(again)
    assert (told["metadata"]["aliquot_again"]["runs"], told["content"]["code"], len(again) < 500) == (False, "", True)
    assert (told["content"]["silent"], desk.comes_again(), desk.comes_again()) == (True, [("a", False)], [])
    assert len(desk) == 0, "its cell stays as it is"

    desk.page("b", "execute_request")
    desk.seconds = 31.0
    assert desk.comes_again() == [("b", False)]
    desk.forget(KERNEL)
    desk.page("c", "execute_request")
    desk.date = 31.0
    assert desk.comes_again() == [("c", False)], "the machine slept"
    desk.forget(KERNEL)

    for number in range(70):
        desk.page(f"m{number}", "comm_msg")
    assert [runs for _, runs in desk.comes_again()] == [True] * 64 + [False] * 6


def test_what_comes_again_is_no_larger_than_it_was_but_for_its_mark() -> None:
    desk = Desk()
    sent = desk.page("a", "execute_request", content={"code": "中" * 300_000})
    desk.page("b", "execute_request", content={"code": "中" * 400_000})
    raw = json.dumps(json.loads(sent), ensure_ascii=False)
    desk.forget(KERNEL)
    desk.sent(KERNEL, PAGE, raw)
    desk.sent(KERNEL, PAGE, raw.replace("中", "中中").replace('"a"', '"b"'))
    [again] = desk.again(KERNEL, PAGE)
    assert len(again.encode()) < len(raw.encode()) + 100
    assert desk._bytes == len(raw.encode())
    desk.page("c", "execute_request", content={"code": "\ud800"})
    assert desk.again(KERNEL, PAGE)[1].isascii()


def test_the_last_answer_to_a_question_comes_again_until_its_cell_goes_on() -> None:
    desk = Desk()
    desk.kernel("input_request", "cell", "q1")
    desk.page("r1", "input_reply", "stdin", parent_header={"msg_id": "q1"})
    assert desk.comes_again() == [("r1", True)]
    desk.kernel("status", "another cell")
    assert desk.comes_again() == [("r1", True)]
    desk.kernel("input_request", "cell", "q2")
    assert desk.comes_again() == [], "the kernel had it"
    desk.page("r0", "input_reply", "stdin", parent_header={"msg_id": "q1"})
    assert desk.comes_again() == [], "nobody asks that any more"
    desk.page("r2", "input_reply", "stdin", parent_header={"msg_id": "q2"})
    desk.page("r3", "input_reply", "stdin", parent_header={"msg_id": "q2"})
    assert desk.comes_again() == [("r3", True)]


def test_beyond_its_bounds_the_oldest_are_kept_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_requests, "_MOST_REQUESTS", 2)
    desk = Desk()
    for name in "abc":
        desk.page(name, "execute_request")
    assert [name for name, _ in desk.comes_again()] == ["b", "c"]
    monkeypatch.setattr(remote_requests, "_MOST_BYTES", 2000)
    desk.page("large", "execute_request", content={"code": "x" * 1800})
    assert [name for name, _ in desk.comes_again()] == ["large"]
    desk.page("too large", "execute_request", content={"code": "x" * 2000})
    assert (desk.comes_again(), desk._bytes) == ([], 0)


@pytest.mark.parametrize("said", ["", "[]", "{", '{"header": 1}', '{"header": {"msg_id": 1}}', b"\x00\x00\x00\x01"])
def test_what_is_no_message_is_not_kept(said: str | bytes) -> None:
    desk = Desk()
    desk.sent(KERNEL, PAGE, said)
    desk.page("a", "execute_request", metadata={"aliquot_again": {"age": 1, "runs": True}})
    desk.sent(KERNEL, "", json.dumps({"header": {"msg_id": "a", "msg_type": "execute_request"}, "channel": "shell"}))
    assert len(desk) == 0


def test_what_a_notebooks_file_says_of_coming_again_is_not_sent() -> None:
    said = {"header": {"msg_id": "1"}, "metadata": {"cellId": "c", "aliquot_again": {"runs": False}}, "content": {}}
    assert json.loads(unmarked(json.dumps(said)))["metadata"] == {"cellId": "c"}
    for other in ('{"content": {"code": "aliquot_again"}}', "no message of aliquot_again", '{"metadata": 1}'):
        assert unmarked(other) == other


@pytest.mark.parametrize("age", ["1" + 400 * "0", "NaN", "-1e999", "true", '"5"'])
def test_an_age_that_is_none_dates_nothing(age: str) -> None:
    said = f'{{"metadata": {{"aliquot_again": {{"age": {age}, "runs": true}}}}}}'
    assert dated(said, 1000.0) == said


def test_a_message_of_an_odd_kind_is_not_kept() -> None:
    desk = Desk()
    desk.sent(
        KERNEL, PAGE, json.dumps({"channel": "shell", "header": {"msg_id": "1", "msg_type": ["execute_request"]}})
    )
    assert len(desk) == 0
