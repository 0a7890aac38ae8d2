"""Activity and ends as pure rules: open requests, orphans, and the steps to an end."""

from __future__ import annotations

import json
import signal
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st
from jupyter_client.session import Session

from jupyter_aliquot.provisioner.relay.server.activity_tracker import ActivityTracker, RunningCell
from jupyter_aliquot.provisioner.relay.server.shutdown_policy import (
    ASK,
    ORPHANED,
    STEPS,
    Company,
    EndingSteps,
    is_unjoinable,
    orphaned_at,
    unreachable_at,
)
from jupyter_aliquot.provisioner.relay.wire.messages import (
    HEADER,
    Request,
    Signer,
    find_delimiter,
    named_cell,
    read_question,
    read_request,
)

KEY = "a-key"


def test_a_cell_on_a_subshell_that_ends_leaves_the_other_open() -> None:
    tracker = ActivityTracker(0.0)
    tracker.opened(Request("main", "execute_request", lane="shell "), 1.0)
    tracker.opened(Request("sub", "execute_request", lane="shell sub"), 2.0)
    tracker.closed("sub", 3.0)
    assert tracker.snapshot() == {"open": 1, "work": 1, "since": 1.0, "last": 3.0, "input": None}
    tracker.closed("main", 9.0)
    assert tracker.snapshot() == {"open": 0, "work": 0, "since": None, "last": 9.0, "input": None}


@pytest.mark.parametrize("kind", ["complete_request", "inspect_request", "kernel_info_request", "comm_info_request"])
def test_what_runs_no_code_of_the_user_is_open_but_no_work(kind: str) -> None:
    tracker = ActivityTracker(0.0)
    assert tracker.opened(Request("x", kind), 5.0)
    assert tracker.snapshot() == {"open": 1, "work": 0, "since": None, "last": 0.0, "input": None}


@pytest.mark.parametrize("kind", ["execute_request", "comm_open", "comm_msg", "comm_close"])
def test_cells_and_comms_are_work(kind: str) -> None:
    tracker = ActivityTracker(0.0)
    tracker.opened(Request("x", kind), 5.0)
    assert tracker.snapshot() == {"open": 1, "work": 1, "since": 5.0, "last": 5.0, "input": None}


def test_what_is_printed_late_for_a_request_that_is_no_work_is_no_activity() -> None:
    tracker = ActivityTracker(0.0)
    for kind, reads_state, want_last in (("comm_info_request", False, 0.0), ("comm_open", True, 0.0)):
        tracker.opened(Request(kind, kind, reads_state=reads_state), 1.0)
        tracker.closed(kind, 2.0)
        tracker.saw_output(2.2, b'{"msg_id": "%s"}' % kind.encode())
        tracker.saw_output(2.3, b"{}")
        assert tracker.last == want_last
    tracker.saw_output(2.3, b'{"msg_id": "a thread of an old cell"}')
    assert tracker.last == 2.3
    tracker.opened(Request("cell", "execute_request"), 3.0)
    tracker.closed("cell", 4.0)
    tracker.saw_output(4.2, b'{"msg_id": "cell"}')
    assert tracker.last == 4.2
    for now, late in ((60.0, b'{"msg_id": "comm_open"}'), (61.0, b"{}")):
        tracker.saw_output(now, late)
        assert tracker.last == now, "it goes on by itself"


def test_a_kernel_that_finishes_nothing_bounds_what_is_known_of_its_requests() -> None:
    tracker = ActivityTracker(0.0)
    for number in range(3000):
        tracker.opened(Request(f"cell {number}", "execute_request", lane="shell "), 1.0, b"x" * 30_000, "a")
    assert len(tracker.known_cells) <= 64 + 1000
    kept = tracker.open
    assert 1000 < kept <= (32 << 20) // 30_000
    assert tracker.work == kept
    assert not tracker.closed("cell 0", 2.0), "the oldest are forgotten"
    assert tracker.closed("cell 2999", 2.0)
    for number in range(3000):
        tracker.closed(f"cell {number}", 3.0)
    assert tracker.snapshot()["work"] == tracker.open == 0
    huge = Request("huge", "execute_request")
    assert tracker.opened(huge, 4.0, b"x" * (40 << 20)), "one is known whatever it takes"
    assert tracker.open == 1


def test_the_end_of_the_kernel_ends_all_that_was_open() -> None:
    tracker = ActivityTracker(0.0)
    tracker.opened(Request("x", "execute_request"), 1.0)
    assert tracker.clear(2.0)
    assert not tracker.clear(3.0)
    assert not tracker.closed("x", 4.0)
    assert tracker.snapshot() == {"open": 0, "work": 0, "since": None, "last": 2.0, "input": None}


def test_what_a_kernel_ignores_is_over_when_it_finished_something_later() -> None:
    tracker = ActivityTracker(0.0)
    tracker.opened(Request("ignored", "comm_msg", lane="shell"), 1.0)
    tracker.opened(Request("elsewhere", "execute_request", lane="shell sub"), 1.0)
    tracker.opened(Request("cell", "execute_request", lane="shell"), 2.0)
    tracker.opened(Request("queued", "execute_request", lane="shell"), 3.0)
    tracker.began("cell", 3.0)
    tracker.closed("cell", 4.0)
    assert tracker.work == 2, "the one elsewhere and the one that comes next"
    tracker.began("elsewhere", 4.0)
    tracker.began("queued", 4.0)
    tracker.opened(Request("short", "kernel_info_request", lane="shell"), 5.0)
    tracker.closed("short", 6.0)
    assert tracker.work == 2, "a kernel that works on several at once says so"


def test_input_is_waited_for_when_nothing_else_runs() -> None:
    tracker = ActivityTracker(0.0)
    for msg_id, lane in (("main", "shell "), ("queued", "shell "), ("sub", "shell sub")):
        tracker.opened(Request(msg_id, "execute_request", lane=lane), 1.0)
    tracker.began("main", 1.0)
    assert tracker.asked("main", 2.0)
    assert not tracker.asked("main", 3.0), "it waits already"
    assert not tracker.asked("unknown", 3.0)
    assert tracker.snapshot()["input"] == 2.0, "what is behind it does not run"
    assert tracker.began("sub", 4.0), "a subshell does: that is news"
    assert tracker.snapshot()["input"] is None
    assert tracker.closed("sub", 5.0)
    assert tracker.snapshot()["input"] == 2.0
    assert tracker.answered()
    assert not tracker.answered()
    assert tracker.snapshot()["input"] is None


def test_a_question_ends_with_its_cell_and_with_the_kernel() -> None:
    tracker = ActivityTracker(0.0)
    for end in (lambda: tracker.closed("cell", 3.0), lambda: tracker.clear(3.0)):
        tracker.opened(Request("cell", "execute_request"), 1.0)
        tracker.began("cell", 1.0)
        tracker.asked("cell", 2.0)
        assert tracker.is_asking
        end()
        assert not tracker.is_asking


def test_cells_that_run_and_show_what_is_written_are_known_with_their_headers() -> None:
    tracker = ActivityTracker(0.0)
    tracker.opened(Request("shown", "execute_request"), 1.0, b"header")
    tracker.opened(Request("silent", "execute_request", lane="sub"), 1.0)
    tracker.opened(Request("queued", "execute_request"), 1.0, b"other")
    tracker.began("shown", 2.0)
    tracker.began("silent", 2.0)
    assert tracker.cells == [RunningCell("shown", 2.0, b"header")]
    tracker.asked("shown", 3.0)
    assert tracker.cells == []


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.sampled_from(["execute_request", "comm_msg", "other"]))))
def test_counts_are_those_of_the_requests_that_are_open(steps: list[tuple[bool, int, str]]) -> None:
    tracker = ActivityTracker(0.0)
    model: dict[str, str] = {}
    for now, (opens, number, kind) in enumerate(steps):
        if opens:
            assert tracker.opened(Request(str(number), kind), now) == (str(number) not in model)
            tracker.began(str(number), now)
            model.setdefault(str(number), kind)
        else:
            assert tracker.closed(str(number), now) == (model.pop(str(number), None) is not None)
        assert tracker.open == len(model)
        assert tracker.work == sum(kind != "other" for kind in model.values())
        assert (tracker.snapshot()["since"] is None) == (tracker.work == 0)


@pytest.mark.parametrize(
    ("company", "want_at"),
    [
        (Company(True, 0, 0, left_at=10.0, quiet_at=4.0), 110.0),
        (Company(True, 0, 0, left_at=10.0, quiet_at=40.0), 140.0),
        (Company(True, 1, 0, left_at=10.0, quiet_at=4.0), None),
        (Company(True, 0, 1, left_at=10.0, quiet_at=4.0), None),
        (Company(False, 0, 0, left_at=10.0, quiet_at=4.0), None),
    ],
)
def test_an_orphan_has_a_gateway_that_is_gone_and_nothing_open(company: Company, want_at: float | None) -> None:
    assert orphaned_at(company, 100.0) == want_at


def test_an_end_is_walked_step_by_step_and_given_up_at_last() -> None:
    steps = EndingSteps(ORPHANED, 100.0)
    assert steps.due(100.0) == [ASK]
    assert steps.due(114.9) == []
    assert steps.due(122.0) == [signal.SIGTERM, signal.SIGKILL]
    assert not steps.is_hopeless(122.0)
    assert steps.is_hopeless(125.0)


@pytest.mark.parametrize("reason", STEPS)
def test_every_end_comes_to_sigkill(reason: str) -> None:
    assert STEPS[reason][-1][1] == signal.SIGKILL


def test_our_messages_verify_with_jupyters_session_and_its_with_ours() -> None:
    session, signer = Session(key=KEY.encode()), Signer(KEY, "hmac-sha256", "relay")
    ours = session.deserialize(signer.message("stream", {"text": "é"}, b'{"msg_id": "p"}')[1:])
    assert (ours["msg_type"], ours["parent_header"], ours["content"]) == ("stream", {"msg_id": "p"}, {"text": "é"})
    theirs = session.serialize(session.msg("execute_request", {"code": "1"}))
    assert find_delimiter([b"identity", *theirs]) == 1
    assert signer.is_signed(theirs)
    assert not signer.is_signed([*theirs[:-1], b'{"code": "2"}'])
    assert not signer.is_signed(theirs[:3])
    assert Signer("", "hmac-sha256", "").is_signed([*theirs[:1], b"", *theirs[2:]])


@pytest.mark.parametrize("scheme", ["sha256", "hmac-", "hmac-nothing", ""])
def test_a_scheme_that_is_no_hmac_is_refused(scheme: str) -> None:
    with pytest.raises(ValueError, match="hmac-sha256"):
        Signer(KEY, scheme, "")


@pytest.mark.parametrize("header", [{}, {"msg_id": 1, "msg_type": "x"}, {"msg_id": "", "msg_type": "x"}])
def test_a_header_without_id_or_type_is_no_request(header: dict[str, object]) -> None:
    assert read_request(header) is None


def test_dates_are_read_as_clients_write_them() -> None:
    for date in ("2026-01-02T03:04:05.500000Z", "2026-01-02T03:04:05.500000+00:00", "2026-01-02T03:04:05.500000"):
        request = read_request({"msg_id": "x", "msg_type": "y", "date": date})
        assert request is not None
        assert request.sent == 1767323045.5, date
    assert read_request({"msg_id": "x", "msg_type": "y", "date": 3}, "shell") == Request("x", "y", None, "shell ")


@pytest.mark.parametrize("open_cells", [0, 1])
@pytest.mark.parametrize("has_gateway", [True, False])
def test_a_kernel_that_no_gateway_could_find_ends_soon_at_work_or_not(open_cells: int, has_gateway: bool) -> None:
    company = Company(has_gateway=has_gateway, links=0, open=open_cells, left_at=5.0, quiet_at=99.0)
    assert unreachable_at(company, lost_at=7.0) == 37.0
    assert unreachable_at(replace(company, left_at=50.0), lost_at=7.0) == 80.0
    assert unreachable_at(company, lost_at=None) is None
    assert unreachable_at(replace(company, links=1), lost_at=7.0) is None


def test_a_kernel_that_was_joined_once_is_looked_for_as_long_as_it_may_be_ending() -> None:
    assert not is_unjoinable(True, looking_since=7.0, now=11.9)
    assert is_unjoinable(True, looking_since=7.0, now=12.0)
    assert not is_unjoinable(False, looking_since=7.0, now=99.0)


def test_a_gateway_that_comes_is_told_of_open_cells_their_questions_and_the_last_that_ended() -> None:
    tracker = ActivityTracker(0.0)
    for number in range(70):
        tracker.opened(Request(f"ended-{number}", "execute_request"), float(number), cell_id=f"cell-{number}")
        tracker.closed(f"ended-{number}", number + 0.5)
    tracker.opened(Request("asks", "execute_request"), 80.0, cell_id="")
    tracker.opened(Request("info", "kernel_info_request"), 81.0)
    question = {"prompt": "name? ", "password": False}
    tracker.asked("asks", 82.0, question)
    *ended, asks = tracker.known_cells
    assert [cell["msg_id"] for cell in ended] == [f"ended-{number}" for number in range(6, 70)]
    assert ended[0] == {"msg_id": "ended-6", "cell_id": "cell-6", "began": 6.0, "is_open": False, "input": None}
    assert asks == {"msg_id": "asks", "cell_id": None, "began": 80.0, "is_open": True, "input": question}
    tracker.answered()
    assert tracker.known_cells[-1]["input"] is None
    tracker.clear(90.0)
    assert tracker.known_cells == []


def test_however_many_cells_wait_and_whatever_their_names_a_link_is_told_so_much_as_a_record_holds() -> None:
    tracker = ActivityTracker(now=0.0)
    tracker.opened(Request("x" * 1_000_000, "execute_request"), 1.0, cell_id="long")
    for number in range(3000):
        tracker.opened(Request(f"cell-{number}", "execute_request"), 1.0, cell_id=f"name-{number}")
    assert [cell["msg_id"] for cell in tracker.known_cells] == [f"cell-{number}" for number in range(1000)]
    assert (tracker.open, tracker.work) == (3001, 3001), "they count all the same"


def test_the_name_of_a_cell_and_its_question_are_read_with_care() -> None:
    signer = Signer("key", "hmac-sha256", "s")
    message = signer.message("execute_request", {"prompt": "x" * 5000, "password": 1})
    assert named_cell(message) == ""
    names = {b'{"cellId": "c-1"}': "c-1", b'{"cellId": 7}': "", b"cellId": "", b'{"cellId": "%s"}' % (b"c" * 300): ""}
    assert {metadata: named_cell([*message[:4], metadata, message[5]]) for metadata in names} == names
    name = json.loads(message[HEADER])["msg_id"]
    assert read_question(message) == {"prompt": "x" * 4096, "password": True, "id": name}
    for header in (b"{}", b'{"msg_id": 7}', b'{"msg_id": "%s"}' % (b"i" * 300)):
        nameless = [*message[:HEADER], header, *message[HEADER + 1 :]]
        assert read_question(nameless) == {"prompt": "x" * 4096, "password": True}
