"""ActivityPages on their way from the agent: their use under load, across forks and agents."""

from __future__ import annotations

import random
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import ActivityPage, ActivityPageKind, ActivityPageNotice

MIB = 1 << 20
HERE = Path(__file__).parent
GRANT = ("10" * 16, 64 * MIB), ("20" * 16, 64 * MIB)
PEER, GONE, OWN = ActivityPageKind.PEER, ActivityPageKind.GONE, ActivityPageKind.OWN
OPTIONS = {
    "": {},
    "address,undefined": {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1"},
    "thread": {"TSAN_OPTIONS": f"halt_on_error=1 exitcode=66 suppressions={HERE / 'thread.suppressions'}"},
}


class Worker:
    """The program activity_pages.c: ``worker("work 0 100 200")`` returns its answer."""

    def __init__(self, program: Path, env: dict[str, str]) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        env = {name: value for name, value in env.items() if name != "LD_LIBRARY_PATH"}
        self._process: Any = subprocess.Popen([str(program)], env=env, text=True, bufsize=1, **pipes)
        self.pid = self._process.pid

    def __call__(self, command: str) -> str:
        self._process.stdin.write(command + "\n")
        answer = self._process.stdout.readline()
        assert answer, self._process.communicate()[1]
        return str(answer.strip())

    def end(self) -> tuple[int, str]:
        """Return its exit status, and its complaints."""
        _, complaints = self._process.communicate(timeout=90)
        return self._process.returncode, complaints

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@pytest.fixture
def make_worker(a_null_node: Any, build_program: Callable[..., Path]) -> Iterator[Callable[..., Worker]]:
    made: list[Worker] = []

    def make(sanitizer: str = "") -> Worker:
        program = build_program("activity_pages.c", sanitizer)
        made.append(Worker(program, {**a_null_node.hooked_env, **OPTIONS[sanitizer]}))
        return made[-1]

    yield make
    for worker in made:
        worker.close()


def refusals(node: Any) -> int:
    return int(node.log.read_text().count("event=activity_page_refused")) if node.log.exists() else 0


def unexpected(node: Any) -> int:
    return int(node.log.read_text().count("event=unexpected_message"))


def test_a_process_shows_its_work_on_the_activity_page_that_it_was_handed(
    a_null_node: Any, make_worker: Callable[..., Worker], activity_files: Any
) -> None:
    agent, worker = a_null_node.grant(*GRANT), make_worker()
    connection = agent.process(worker.pid)
    assert worker("work 1 1000 2000") == "done"
    with activity_files.ActivityFile() as activity:
        activity_files.hand_own(connection, activity)
        agent.wait_for(lambda: activity.is_mapped)
        assert activity.intervals(1) == [(1000, 2000)]
        worker("work 1 500000 600000")
        worker("active 0 1")
        assert activity.intervals(1) == [(1000, 2000), (500000, 600000)]
        assert (activity.is_active(0), activity.is_active(1)) == (1, 0)
        assert struct.unpack_from("=i", activity.map, ActivityPage.PID)[0] == worker.pid
    assert worker.end() == (0, "")


def test_a_child_writes_on_no_activity_page_of_its_parents(
    a_null_node: Any, make_worker: Callable[..., Worker], activity_files: Any
) -> None:
    agent, worker = a_null_node.grant(*GRANT), make_worker()
    connection = agent.process(worker.pid)
    with activity_files.ActivityFile() as activity, activity_files.ActivityFile(has_magic=True) as other:
        other.show(1, 5)
        activity_files.send(connection, ActivityPageNotice(PEER, 0, 0, 0), other.reader)
        activity_files.hand_own(connection, activity)
        agent.wait_for(lambda: activity.is_mapped)
        assert worker("look 0") == "1 1 0"
        before = activity.map[:]
        assert worker("fork 0") == "0"  # nor does it know its parent's peers
        assert activity.map[:] == before
        assert worker("look 0") == "1 1 0"
        worker("work 0 100 200")
        assert activity.intervals() == [(100, 200)]
    assert worker.end() == (0, "")


def test_the_next_agent_learns_what_was_shown_and_says_who_the_peers_are(
    a_null_node: Any, make_worker: Callable[..., Worker], activity_files: Any
) -> None:
    agent, worker = a_null_node.grant(*GRANT), make_worker()
    connection = agent.process(worker.pid)
    with (
        activity_files.ActivityFile() as activity,
        activity_files.ActivityFile() as later,
        activity_files.ActivityFile() as other,
    ):
        other.show(1, 5)
        activity_files.send(connection, ActivityPageNotice(PEER, 31, 1, 0), other.reader)
        activity_files.hand_own(connection, activity)
        agent.wait_for(lambda: activity.is_mapped)
        worker("work 0 1000 2000")
        agent.stop()
        assert worker("look 1") == "1 1 0"  # without a notice, the activity page is the truth
        worker("work 0 900000 950000")
        agent.start()
        connection = agent.process(worker.pid)
        activity_files.hand_own(connection, later)
        agent.wait_for(lambda: later.is_mapped)
        assert later.intervals() == [(1000, 2000), (900000, 950000)]
        assert worker("look 1") == "0 0 0"
    assert worker.end() == (0, "")


def test_notices_with_garbage_are_refused_and_leave_no_descriptor(
    a_null_node: Any, make_worker: Callable[..., Worker], activity_files: Any
) -> None:
    agent, worker = a_null_node.grant(*GRANT), make_worker()
    connection = agent.process(worker.pid)

    def open_files() -> int:
        return len(list(Path(f"/proc/{worker.pid}/fd").iterdir()))

    with activity_files.ActivityFile() as activity, activity_files.ActivityFile(seals=0) as unsealed:
        before = open_files()
        fields = (OWN, 0, 0, 0), (PEER, 32, 0, 0), (PEER, 0, 16, 0), (PEER, 0, 0, 99), (7, 0, 0, 0)
        notices = [protocol.pack(ActivityPageNotice(OWN))[:16] + struct.pack("=IIII", *one) for one in fields]
        packets: list[tuple[bytes, list[int]]] = [(notices[0], [])]
        packets += [(notice, [activity.reader]) for notice in notices]  # its own activity page for reading only, too
        packets += [
            (notices[0], [unsealed.descriptor]),
            (protocol.pack(ActivityPageNotice(GONE, 3)), [activity.descriptor]),
        ]
        for packet, descriptors in packets:
            activity_files.send_packet(connection, packet, *descriptors)
        agent.wait_for(lambda: refusals(a_null_node) == len(packets))
        activity_files.send_packet(connection, notices[0] + bytes(8), activity.descriptor)
        agent.wait_for(lambda: unexpected(a_null_node) + a_null_node.log.read_text().count("agent_lost") > 0)
        assert worker("look 0") == "0 0 0"
        assert not activity.is_mapped
        agent.wait_for(lambda: open_files() <= before)
    assert worker.end() == (0, "")


@pytest.mark.parametrize(
    "sanitizer",
    [pytest.param("address,undefined", marks=pytest.mark.soak(alone="a minute under a sanitizer")), "thread"],
)
def test_peers_that_come_and_go_under_load_are_clean(
    sanitizer: str, a_null_node: Any, make_worker: Callable[..., Worker], activity_files: Any
) -> None:
    agent, worker = a_null_node.grant(*GRANT), make_worker(sanitizer)
    connection = agent.process(worker.pid)
    chance = random.Random(2)
    with activity_files.ActivityFile() as one, activity_files.ActivityFile() as other:
        assert worker("run") == "runs"
        for turn in range(200):
            number = chance.randrange(protocol.MAX_PEERS)
            others = one if turn % 2 else other
            others.map[64:] = chance.randbytes(protocol.ACTIVITY_PAGE_BYTES - 64)
            notice = ActivityPageNotice(PEER, number, chance.randrange(2), chance.randrange(16))
            activity_files.send(connection, notice, others.reader)
            if turn % 3 == 0:
                activity_files.send(connection, ActivityPageNotice(GONE, number))
            if turn % 20 == 0:
                with activity_files.ActivityFile() as activity:
                    activity_files.hand_own(connection, activity)
                    agent.wait_for(lambda activity=activity: activity.is_mapped)
        agent.stop()
        agent.start()
        agent.process(worker.pid)
        assert int(worker("stop")) > 1000
    assert worker.end() == (0, "")
    assert refusals(a_null_node) == 0
