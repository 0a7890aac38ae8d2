"""The reasons of kernels' ends, from the runtime's findings and the requests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from jupyter_aliquot.provisioner.terminations import (
    Asked,
    Ending,
    EndingCode,
    ProcessEnd,
    asked_by_rule,
    asked_by_stop,
    asked_by_user,
    container_end,
    ending_record,
    failed_start,
    node_lost,
    read_ending,
    read_ending_record,
    relay_end,
    status_end,
)

NOW = 1_700_000_000.0
GIB = 1 << 30


def told(found: ProcessEnd | None, asked: Asked | None = None) -> tuple[str, str]:
    ending = read_ending(found, asked, NOW)
    return ending.code.value, ending.message


@pytest.mark.parametrize(
    ("found", "want_code", "want_words"),
    [
        (ProcessEnd(exit_code=0), "exited", "exited by itself with code 0 (exit() in a cell?)"),
        (ProcessEnd(exit_code=3), "exited", "exited by itself with code 3"),
        (
            ProcessEnd(exit_code=1, last_words="/home/a b/env/bin/python: No module named ipykernel_launcher"),
            "exited",
            "no ipykernel. Install it: '/home/a b/env/bin/python' -m pip install ipykernel",
        ),
        (ProcessEnd(exit_code=1, last_words="No module named ipykernel"), "exited", "exited by itself with code 1;"),
        (ProcessEnd(signal=signal.SIGSEGV), "crash", "signal 11 (segmentation fault) in native code"),
        (ProcessEnd(signal=signal.SIGKILL), "crash", "killed by signal 9 from outside"),
        (ProcessEnd(signal=signal.SIGTERM), "crash", "signal 15 (SIGTERM) from outside"),
        (ProcessEnd(signal=200), "crash", "signal 200 (unknown) from outside"),
        (ProcessEnd(), "crash", "no process recorded how it ended"),
        (None, "crash", "no process recorded how it ended"),
        (ProcessEnd(exit_code=0, is_orphaned=True), "orphaned", "no gateway came back for it in time"),
        (ProcessEnd(signal=9, is_unreachable=True), "crash", "files of its sockets had been removed"),
    ],
)
def test_a_kernel_that_nobody_ended_is_told_by_how_its_process_went(
    found: ProcessEnd | None, want_code: str, want_words: str
) -> None:
    code, message = told(found)
    assert code == want_code
    assert want_words in message


@pytest.mark.parametrize(
    ("used", "limit", "want_words"),
    [
        (int(4.1 * GIB), 4 * GIB, "the kernel used 4.1 GiB of 4 GiB host memory"),
        (None, 4 * GIB, "the kernel used more than its 4 GiB host memory"),
        (4 * GIB, None, "the kernel used 4 GiB host memory"),
        (None, None, "the kernel used more host memory than it has"),
    ],
)
def test_a_container_out_of_memory_says_what_it_used_of_what(
    used: int | None, limit: int | None, want_words: str
) -> None:
    state = {"OOMKilled": True, "ExitCode": 137, "FinishedAt": "2026-11-21T22:54:56.123456789Z"}
    ending = read_ending(container_end(state, used, limit), None, NOW)
    assert ending.code is EndingCode.OOM
    assert ending.message.startswith(want_words)
    assert (ending.exit_code, ending.signal) == (None, 9)
    assert ending.at == pytest.approx(1795301696.123, abs=0.01)


def test_a_container_that_never_ended_has_no_time_of_it_and_an_exit_code_stays_one() -> None:
    end = container_end({"ExitCode": 7, "FinishedAt": "0001-01-01T00:00:00Z"})
    assert (end.exit_code, end.signal, end.at) == (7, None, None)
    assert container_end({"ExitCode": 139}).signal == signal.SIGSEGV
    assert container_end({"ExitCode": 255}).exit_code == 255


def test_who_asked_comes_before_how_the_process_went() -> None:
    killed = status_end(-9, at=5.0, last_words="Traceback")
    assert read_ending(killed, asked_by_user("alice", "alice"), NOW) == Ending(
        EndingCode.USER, "the kernel was ended by its owner alice", 5.0, None, 9, "alice"
    )
    assert told(killed, asked_by_user("ada", "alice"))[1] == "the kernel was ended by the administrator ada"
    assert told(killed, asked_by_rule(EndingCode.CULLED, "after 60 min idle")) == (
        "culled",
        "the kernel was ended after 60 min idle",
    )
    assert told(killed, asked_by_stop())[0] == "stopped"


def test_last_words_are_the_last_lines_without_what_a_terminal_would_obey() -> None:
    said = "one\ntwo\n\n\x1b[31mthree\x1b[0m\n  four\x07 \nfive\n"
    assert told(status_end(-6, last_words=said))[1].endswith("; its last words: three / four\ufffd / five")
    long = read_ending(status_end(-6, last_words="x" * 10_000), None, NOW).message
    assert len(long) < 500
    assert long.endswith("x")


def test_what_a_relay_wrote_of_a_real_process_is_read_as_it_was() -> None:
    crash = subprocess.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"], check=False)
    written = json.dumps({"pid": 1, "exit_code": None, "signal": -crash.returncode, "at": 7.5, "last_words": "oh"})
    ending = read_ending(relay_end(json.loads(written)), None, NOW)
    assert (ending.code, ending.signal, ending.at) == (EndingCode.CRASH, signal.SIGSEGV, 7.5)
    assert ending.message.endswith("last words: oh")
    assert relay_end({}) == ProcessEnd()
    assert relay_end({"reason": "orphaned", "signal": 15}).is_orphaned
    assert relay_end({"reason": "unreachable", "signal": 9}).is_unreachable
    assert status_end(os.waitstatus_to_exitcode(3 << 8)).exit_code == 3


def test_kernels_that_never_ran_or_lost_their_machine_say_so() -> None:
    assert failed_start("no such program", NOW).message == "the kernel could not be started: no such program"
    assert failed_start("withdrawn", NOW, is_withdrawn=True).code is EndingCode.WITHDRAWN
    assert node_lost("its machine was restarted", NOW).code is EndingCode.NODE_LOST


@given(
    st.builds(
        Ending,
        st.sampled_from(EndingCode),
        st.text(),
        st.floats(0, 1e12),
        st.none() | st.integers(0, 255),
        st.none() | st.integers(1, 64),
        st.text(),
    )
)
def test_an_ending_survives_its_record(ending: Ending) -> None:
    assert read_ending_record(json.loads(json.dumps(ending_record(ending)))) == ending


@pytest.mark.parametrize("change", [{"code": "bored"}, {"at": "noon"}, {"code": None}, {"exit_code": "x"}])
def test_a_record_that_is_none_is_refused(change: dict[str, object]) -> None:
    record = ending_record(replace(read_ending(None, None, NOW)))
    with pytest.raises(ValueError, match=r".+"):
        read_ending_record({**record, **change})
    with pytest.raises(ValueError, match="does not describe an ending"):
        read_ending_record({})
