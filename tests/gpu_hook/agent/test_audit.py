"""The audit's judgement, look by look.

The clock is the test's; the processes in /proc are real.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.agent.base.process_facts import Families, read_facts
from jupyter_aliquot.gpu_hook.agent.devices.audit import (
    NOT_REGISTERED,
    PAST_ITS_CHARGE,
    Audit,
    Auditor,
    Holding,
    KernelProcesses,
)
from jupyter_aliquot.gpu_hook.agent.devices.devices import DeviceReading
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts

MIB = 1 << 20
GPU = DeviceFacts("GPU-a0", 0, "Fake", 1 << 30)
WAIT = [sys.executable, "-c", "import sys; sys.stdin.read()"]
ME = os.getpid()


@pytest.fixture
def a_child() -> Iterator[subprocess.Popen[bytes]]:
    """Start a child with an empty environment, in a session of its own."""
    with subprocess.Popen(WAIT, env={}, stdin=subprocess.PIPE, start_new_session=True) as process:
        yield process


def reading(**processes: int | None) -> DeviceReading:
    return DeviceReading(GPU, processes={int(pid[1:]): used for pid, used in processes.items()})


def kernel(*members: int, kernel_id: str = "k", **other: Any) -> KernelProcesses:
    known = frozenset(members)
    nobody: frozenset[int] = frozenset()
    fields: dict[str, Any] = {"members": known, "registered": known, "awaited": nobody, "departed": nobody}
    return KernelProcesses(kernel_id=kernel_id, folder=f"/run/{kernel_id}", **{"holdings": {}, **fields, **other})


def holds(charged: int, most: int | None = None) -> dict[tuple[int, str], Holding]:
    """Return the holding that this process's hook reports."""
    return {(ME, GPU.uuid): Holding(charged, charged if most is None else most)}


def settled(slack: int = 0) -> Audit:
    """Return an audit of an agent that has run for a while."""
    audit = Audit(slack)
    audit.look((), (), 0.0)
    return audit


def pids(audit: Audit, kernel_id: str = "k") -> list[tuple[int, str]]:
    return [(finding.pid, finding.why) for finding in audit.findings.unhooked.get(kernel_id, ())]


def test_a_child_that_no_hook_registered_is_found_at_the_first_look(a_child: Any) -> None:
    audit = settled()
    audit.look([reading(**{f"p{a_child.pid}": 7 * MIB})], [kernel(ME)], 10.0)
    (found,) = audit.findings.unhooked["k"]
    assert (found.pid, found.used_bytes, found.index, found.why) == (a_child.pid, 7 * MIB, 0, NOT_REGISTERED)
    assert found.name.startswith("python")
    assert audit.findings.foreign == ()
    audit.look([reading()], [kernel(ME)], 11.0)
    assert audit.findings.unhooked == {}


def test_the_kernels_own_process_is_found_when_its_hook_is_missing() -> None:
    audit = settled()
    audit.look([reading(**{f"p{ME}": 1})], [kernel(ME, registered=frozenset())], 10.0)
    assert pids(audit) == [(ME, NOT_REGISTERED)]


def test_a_restarted_agent_calls_no_process_foreign_before_its_kernel_had_time_to_come_back(a_child: Any) -> None:
    audit, seen = Audit(0), reading(**{f"p{a_child.pid}": MIB})
    for now in (0.0, 1.0, 1.9):
        audit.look([seen], [], now)
        assert audit.findings.foreign == (), now
    audit.look([seen], [kernel(a_child.pid)], 2.5)
    assert audit.findings.foreign == (), "its kernel came back"
    audit.look([seen], [], 3.5)
    assert [found.pid for found in audit.findings.foreign] == [a_child.pid]


def test_a_process_of_no_kernel_is_foreign(a_child: Any) -> None:
    audit = settled()
    audit.look([reading(**{f"p{a_child.pid}": None})], [kernel(2**22 + 5)], 10.0)
    assert audit.findings.unhooked == {}
    assert [(found.pid, found.used_bytes) for found in audit.findings.foreign] == [(a_child.pid, None)]


def test_a_process_that_ended_since_the_look_is_nobody(a_child: Any) -> None:
    a_child.kill()
    a_child.wait()
    audit = settled()
    audit.look([reading(**{f"p{a_child.pid}": 1})], [kernel(ME)], 10.0)
    assert audit.findings.unhooked == {}
    assert audit.findings.foreign == ()


def test_a_process_that_is_awaited_back_is_not_reported(a_child: Any) -> None:
    audit = settled()
    audit.look([reading(**{f"p{a_child.pid}": 1})], [kernel(ME, awaited=frozenset({a_child.pid}))], 10.0)
    assert audit.findings.unhooked == {}


def test_a_new_agent_lets_the_hooks_come_back_first(a_child: Any) -> None:
    audit = Audit(0)
    seen = [reading(**{f"p{a_child.pid}": 1})]
    audit.look(seen, [kernel(ME)], 100.0)
    assert audit.findings.unhooked == {}
    audit.look(seen, [kernel(ME)], 102.0)
    assert pids(audit) == [(a_child.pid, NOT_REGISTERED)]


def test_what_a_context_takes_is_shown_and_no_escape_within_the_slack() -> None:
    audit = settled(slack=300 * MIB)
    holdings = holds(100 * MIB)
    for now in (10.0, 11.0, 12.0):
        audit.look([reading(**{f"p{ME}": 400 * MIB})], [kernel(ME, holdings=holdings)], now)
    assert audit.findings.contexts == {("k", GPU.uuid): 300 * MIB}
    assert audit.findings.unhooked == {}


def test_memory_past_the_charge_and_the_slack_is_reported_when_a_second_look_confirms_it() -> None:
    audit = settled(slack=300 * MIB)
    holdings = holds(100 * MIB)
    seen = [reading(**{f"p{ME}": 400 * MIB + 1})]
    audit.look(seen, [kernel(ME, holdings=holdings)], 10.0)
    assert pids(audit) == []
    audit.look(seen, [kernel(ME, holdings=holdings)], 10.1)
    assert pids(audit) == []
    audit.look(seen, [kernel(ME, holdings=holdings)], 11.0)
    assert pids(audit) == [(ME, PAST_ITS_CHARGE)]
    audit.look([reading(**{f"p{ME}": 400 * MIB})], [kernel(ME, holdings=holdings)], 12.0)
    assert pids(audit) == []


def test_a_charge_that_the_look_just_missed_is_forgotten() -> None:
    audit = settled(slack=0)
    audit.look([reading(**{f"p{ME}": 9})], [kernel(ME)], 10.0)
    audit.look([reading(**{f"p{ME}": 9})], [kernel(ME, holdings=holds(9))], 11.0)
    audit.look([reading(**{f"p{ME}": 9})], [kernel(ME)], 12.0)
    assert pids(audit) == []


def test_what_a_process_freed_since_the_driver_was_asked_is_no_escape() -> None:
    """Otherwise the audit would suspect a process that frees gigabytes many times a second."""
    audit = settled(slack=0)
    for now in (10.0, 11.0, 12.0):
        audit.look([reading(**{f"p{ME}": 9})], [kernel(ME, holdings=holds(1, most=9))], now)
    assert pids(audit) == []
    assert audit.findings.contexts == {("k", GPU.uuid): 8}


def test_a_process_that_just_departed_has_a_moment_to_end_and_no_more() -> None:
    """Otherwise a process that connects and departs at each look would never be found."""
    audit = settled()
    going = kernel(ME, registered=frozenset(), departed=frozenset({ME}))
    audit.look([reading(**{f"p{ME}": 9})], [going], 10.0)
    audit.look([reading(**{f"p{ME}": 9})], [going], 10.5)
    assert pids(audit) == []
    audit.look([reading(**{f"p{ME}": 9})], [going], 11.0)
    assert pids(audit) == [(ME, NOT_REGISTERED)]


class SlowAudit(Audit):
    """Waits in its look until it may go on."""

    def __init__(self) -> None:
        super().__init__(0)
        self.may_go_on = threading.Event()
        self.looks: list[float] = []

    def look(self, readings: Any, kernels: Any, now: float) -> None:
        self.looks.append(now)
        assert self.may_go_on.wait(10)


def test_a_slow_look_keeps_neither_the_loop_nor_the_next_looks_waiting(caplog: pytest.LogCaptureFixture) -> None:
    slow = SlowAudit()

    async def audit() -> None:
        auditor = Auditor(slow)
        for now in (0.0, 1.0, 20.0, 21.0):
            auditor.look((), (), now)
        slow.may_go_on.set()
        while len(slow.looks) < 2:
            await asyncio.sleep(0)
            auditor.look((), (), 22.0)

    asyncio.run(audit())
    assert slow.looks == [0.0, 22.0]
    assert [record.getMessage().split()[0] for record in caplog.records] == ["event=audit_slow"]


def test_a_fault_of_a_look_is_logged_and_the_next_one_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def audit() -> None:
        auditor = Auditor(Audit(0))
        while not caplog.records:
            auditor.look([None], (), 0.0)  # type: ignore[list-item]
            await asyncio.sleep(0)
        while auditor.findings.contexts == {}:
            auditor.look([reading(**{f"p{ME}": 9})], [kernel(ME)], 1.0)
            await asyncio.sleep(0)

    asyncio.run(audit())
    assert caplog.records[0].getMessage() == "event=audit_failed"
    assert caplog.records[0].exc_info is not None


def test_it_is_logged_once(a_child: Any, caplog: pytest.LogCaptureFixture) -> None:
    audit = settled()
    for now in (10.0, 11.0):
        audit.look([reading(**{f"p{a_child.pid}": 5})], [kernel(ME)], now)
    (line,) = [record.getMessage() for record in caplog.records if "unhooked_process" in record.getMessage()]
    assert f"kernel=k pid={a_child.pid} " in line


ORPHAN = """
import os, sys
pid = os.fork()
if pid:
    sys.exit()
os.write(1, f"{os.getpid()}\\n".encode())
sys.stdin.read()
"""


def test_an_orphan_is_known_by_its_session() -> None:
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {ORPHAN!r}], env={{}})\nsys.stdin.read()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as leader:
        assert leader.stdout is not None
        orphan = int(leader.stdout.readline())
        facts = read_facts(orphan)
        assert facts is not None
        assert facts.session == leader.pid
        families = Families({leader.pid: "k"}, {})
        assert families.kernel_of(orphan) == "k"
        assert families.kernel_of(ME) is None
        leader.communicate(b"")


def test_a_process_is_known_by_the_environment_it_was_started_with() -> None:
    env = {"ALIQUOT_KERNEL_DIR": "/run/k", "LD_LIBRARY_PATH": ""}
    with subprocess.Popen(WAIT, env=env, stdin=subprocess.PIPE, start_new_session=True) as process:
        while not Path(f"/proc/{process.pid}/environ").read_bytes():
            pass  # exec is under way: it has no environment yet
        assert Families({}, {"/run/k": "k"}).kernel_of(process.pid) == "k"
        assert Families({}, {"/run/other": "o"}).kernel_of(process.pid) is None


@pytest.mark.parametrize(
    ("own", "member", "other", "want"),
    [
        pytest.param("0::/a\n", "0::/k\n", "0::/o\n", "k", id="a cgroup of one kernel tells"),
        pytest.param("0::/k\n", "0::/k\n", "0::/o\n", None, id="the agent's own says nothing"),
        pytest.param("0::/a\n", "0::/k\n", "0::/k\n", None, id="one that kernels share says nothing"),
    ],
)
def test_a_cgroup_tells_only_where_it_is_one_kernels_own(
    tmp_path: Any, own: str, member: str, other: str, want: str | None
) -> None:
    for pid, cgroup in ((ME, own), (101, member), (102, other), (103, "0::/k\n")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(cgroup)
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a) b) S 1 {pid} {pid} 0\n")
    assert Families({101: "k", 102: "o"}, {}, tmp_path).kernel_of(103) == want


def test_a_name_that_would_break_a_line_is_made_plain(tmp_path: Any) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text(f"7 (a\nb) c) R 1 2 3 0 -1 0 {'0 ' * 13}\n")
    facts = read_facts(7, tmp_path)
    assert facts is not None
    assert (facts.name, facts.parent, facts.group, facts.session) == ("a?b) c", 1, 2, 3)


def test_what_a_process_freed_since_the_look_is_learned_as_no_context() -> None:
    audit, key = settled(), ("k", GPU.uuid)
    audit.look([reading(**{f"p{ME}": 9 * MIB})], [kernel(ME, holdings=holds(2 * MIB, most=8 * MIB))], 10.0)
    assert audit.findings.contexts == {key: 7 * MIB}, "as far as the hook says now"
    assert (audit.findings.least_contexts, audit.findings.context_pids) == ({key: MIB}, {key: frozenset({ME})})
