"""Hooks at the agent's socket: pages, permissions, and the ends of lying or dying hooks."""

from __future__ import annotations

import array
import fcntl
import mmap
import os
import random
import signal
import socket
import time
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import (
    AgentPage,
    Credit,
    HelloDevice,
    HookPage,
    MessageType,
    RefusalReason,
    Role,
)

UUID = protocol.device_uuid_bytes("GPU-00000000-0000-0000-0000-0000000000a0")
MIB = 1 << 20
QUOTA = 512 * MIB


@pytest.fixture(autouse=True)
def _a_kernel(a_holder: Any) -> None:
    assert a_holder.reserve()["ok"]


class TestPages:
    def test_the_agents_page_tells_the_grant(self, a_node: Any) -> None:
        hook = a_node.a_hook()
        assert hook.hello() == protocol.Welcome(1)
        assert hook.read(AgentPage.QUOTA) == QUOTA
        assert hook.agent_page[AgentPage.DEVICES : AgentPage.DEVICES + 16] == UUID
        assert int.from_bytes(hook.agent_page[:4], "little") == protocol.PAGE_MAGIC
        assert hook.agent_page[AgentPage.DEVICES + AgentPage.SHARE_HUNDREDTHS] == 50

    def test_pages_cannot_be_resized(self, a_node: Any) -> None:
        hook = a_node.a_hook()
        hook.hello()
        for descriptor in hook.descriptors:
            seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
            assert seals & (fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL) == 7 & ~8
            with pytest.raises(OSError, match=r"."):
                os.ftruncate(descriptor, 0)

    def test_the_agents_page_cannot_be_written_even_when_reopened(self, a_node: Any) -> None:
        hook = a_node.a_hook()
        hook.hello()
        with pytest.raises(PermissionError):
            mmap.mmap(hook.descriptors[0], protocol.PAGE_BYTES)
        with pytest.raises(OSError, match=r"."):
            os.write(hook.descriptors[0], b"x")
        writable = os.open(f"/proc/self/fd/{hook.descriptors[0]}", os.O_RDWR)
        try:
            with pytest.raises(PermissionError):
                mmap.mmap(writable, protocol.PAGE_BYTES)
            with pytest.raises(PermissionError):
                os.pwrite(writable, b"x", 0)
        finally:
            os.close(writable)

    def test_each_process_learns_what_the_others_charged(self, a_node: Any) -> None:
        first, second = a_node.a_hook(), a_node.a_hook()
        for hook in (first, second):
            hook.hello()
            hook.borrow(100 * MIB)
        first.write(HookPage.CHARGED, 70 * MIB)
        second.write(HookPage.CHARGED, 30 * MIB)
        a_node.until(lambda: second.read(AgentPage.CHARGED_ELSEWHERE) == 70 * MIB)
        a_node.until(lambda: first.read(AgentPage.CHARGED_ELSEWHERE) == 30 * MIB)
        assert first.read(AgentPage.CHARGED) == 100 * MIB

    def test_a_lying_page_is_bounded_by_what_was_lent(self, a_node: Any) -> None:
        hook = a_node.a_hook()
        hook.hello()
        hook.borrow(100 * MIB)
        for word in (HookPage.CHARGED, HookPage.PEAK, HookPage.REFUSALS):
            hook.write(word, 2**64 - 1)
        device = a_node.device()
        assert (device["charged_bytes"], device["peak_bytes"]) == (100 * MIB, 100 * MIB)

    def test_the_record_of_an_ended_process_stays(self, a_node: Any) -> None:
        hook = a_node.a_hook()
        hook.hello()
        hook.borrow(100 * MIB)
        hook.write(HookPage.PEAK, 90 * MIB)
        hook.write(HookPage.REFUSALS, 3)
        hook.close()
        a_node.until(lambda: a_node.device()["lent_bytes"] == 0)
        device = a_node.device()
        assert (device["charged_bytes"], device["peak_bytes"], device["refusals"]) == (0, 90 * MIB, 3)


class TestCredit:
    def test_credit_ends_at_the_quota_by_the_byte(self, a_node: Any) -> None:
        hook = a_node.a_hook()
        hook.hello()
        assert hook.borrow(QUOTA - 1) == QUOTA - 1
        assert hook.borrow(2) == 0
        assert hook.borrow(1) == 1
        assert hook.borrow(2**64 - 1) == 0

    def test_an_idle_process_lends_its_credit_to_another(self, a_node: Any) -> None:
        idle, busy = a_node.a_hook(), a_node.a_hook()
        idle.hello()
        busy.hello()
        idle.borrow(312 * MIB)
        for _ in range(5):  # on a busy machine the bytes may come back after the deadline
            assert idle.borrow(88 * MIB) == 88 * MIB
            sequence = busy.ask(200 * MIB)
            recall = idle.receive()
            assert isinstance(recall, Credit)
            want = MessageType.CREDIT_RECALL, 88 * MIB, 200
            assert (recall.type, recall.bytes, recall.deadline_milliseconds) == want
            idle.give_back(recall.bytes, sequence=recall.sequence)
            answer = busy.receive()
            if answer != Credit(MessageType.CREDIT_GRANT, 0, 0, sequence):
                break
        assert answer == Credit(MessageType.CREDIT_GRANT, 0, 200 * MIB, sequence)

    def test_a_silent_process_is_not_waited_for_long(self, a_node: Any) -> None:
        silent, busy = a_node.a_hook(), a_node.a_hook()
        silent.hello()
        busy.hello()
        silent.borrow(400 * MIB)
        began = time.monotonic()
        assert busy.borrow(200 * MIB) == 0
        assert time.monotonic() - began >= 1.9, "a process that is late is waited for"
        again = busy.ask(200 * MIB)
        answer = busy.receive()
        assert (answer.type, answer.sequence, answer.bytes) == (MessageType.CREDIT_GRANT, again, 0), "but once"
        assert a_node.device()["lent_bytes"] == 400 * MIB

    def test_four_processes_at_once_never_exceed_the_quota(self, a_node: Any) -> None:
        processes = [a_node.a_hook_process("0") for _ in range(4)]
        for process in processes:
            assert process.stdout.readline() == "0\n"
        granted = 0
        for _ in range(12):
            for process in processes:
                process.stdin.write(f"borrow {24 * MIB}\n")
                process.stdin.flush()
            granted += sum(int(process.stdout.readline()) for process in processes)
            assert granted <= QUOTA
            assert a_node.device()["lent_bytes"] == granted
        assert granted == QUOTA // (24 * MIB) * 24 * MIB


class TestEnds:
    def test_sigkill_returns_a_process_bytes(self, a_node: Any) -> None:
        process = a_node.a_hook_process(str(QUOTA))
        assert process.stdout.readline() == f"{QUOTA}\n"
        assert a_node.kernel()["pids"] == [process.pid]
        process.kill()
        a_node.until(lambda: a_node.device()["lent_bytes"] == 0)
        assert a_node.kernel()["pids"] == []

    def test_a_child_that_inherited_the_socket_keeps_nothing_alive(self, a_node: Any) -> None:
        ours, childs = os.pipe()
        pid = os.fork()
        if pid == 0:
            hook = a_node.a_hook()
            hook.hello()
            hook.borrow(QUOTA)
            if os.fork() == 0:
                os.write(childs, str(os.getpid()).encode())
                signal.pause()
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
        grandchild = int(os.read(ours, 32))
        try:
            a_node.until(lambda: a_node.device()["lent_bytes"] == 0)
        finally:
            os.kill(grandchild, signal.SIGKILL)
            os.close(ours)
            os.close(childs)

    def test_a_process_that_floods_us_without_reading_is_dropped(self, a_node: Any) -> None:
        hook = a_node.a_hook()
        hook.hello()
        with pytest.raises(OSError, match=r"."):
            self.flood(hook)
        a_node.until(lambda: a_node.device()["lent_bytes"] == 0)

    def flood(self, hook: Any) -> None:
        for _ in range(100_000):
            hook.ask(1)


def malformed() -> list[Any]:
    good = protocol.pack(Credit(MessageType.CREDIT_REQUEST, 0, 1, 1))
    header = protocol.HEADER
    return [
        pytest.param(b"x", id="shorter than a header"),
        pytest.param(b"\0" * 16 + good[16:], id="no magic"),
        pytest.param(
            header.pack(protocol.MESSAGE_MAGIC, protocol.VERSION, 99, 32, 0) + good[16:], id="an unknown type"
        ),
        pytest.param(good[:-1], id="a byte short"),
        pytest.param(good + b"\0", id="a byte long"),
        pytest.param(protocol.pack(protocol.Welcome(1)), id="a message of the agent"),
        pytest.param(protocol.pack(Credit(MessageType.CREDIT_GRANT, 0, 1, 1)), id="a grant to itself"),
        pytest.param(protocol.pack(Credit(MessageType.CREDIT_REQUEST, 1, 1, 1)), id="a device it does not have"),
        pytest.param(protocol.pack(Credit(MessageType.CREDIT_RETURN, 0, 1, 1)), id="bytes it was never lent"),
        pytest.param(protocol.pack(Credit(MessageType.CREDIT_RETURN, 0, 2**64 - 1, 1)), id="negative bytes"),
        pytest.param(protocol.pack(protocol.Hello(Role.PROCESS, 1, 1, "again")), id="a second HELLO"),
    ]


class TestGarbage:
    @pytest.mark.parametrize("datagram", malformed())
    def test_malformed_messages_are_refused_with_a_reason(self, a_node: Any, datagram: bytes) -> None:
        hook = a_node.a_hook()
        hook.hello()
        hook.send(datagram)
        refusal = hook.receive()
        assert isinstance(refusal, protocol.Refuse)
        assert refusal.reason is RefusalReason.MESSAGE
        assert refusal.text
        assert hook.receive() is None

    @pytest.mark.parametrize("role", [Role.OBSERVER, Role.CHECK])
    def test_who_has_no_memory_has_no_say_about_residency(self, a_node: Any, role: Role) -> None:
        hook = a_node.a_hook()
        hook.hello(role=role)
        hook.send(protocol.Wake(1))
        refusal = hook.receive()
        assert isinstance(refusal, protocol.Refuse)
        assert refusal.reason is RefusalReason.MESSAGE

    def test_silent_connections_are_bounded(self, a_node: Any) -> None:
        silent = [a_node.a_hook() for _ in range(64)]
        refusal = a_node.a_hook().receive()
        assert isinstance(refusal, protocol.Refuse)
        assert refusal.reason == RefusalReason.FULL
        silent[0].close()
        a_node.until(lambda: isinstance(a_node.a_hook().hello(), protocol.Welcome))

    def test_credit_before_hello_is_refused(self, a_node: Any) -> None:
        hook = a_node.a_hook()
        hook.ask(1)
        assert isinstance(hook.receive(), protocol.Refuse)

    def test_an_observer_gets_no_credit(self, a_node: Any) -> None:
        hook = a_node.a_hook()
        assert hook.hello(role=Role.OBSERVER) == protocol.Welcome(1)
        hook.ask(1)
        assert isinstance(hook.receive(), protocol.Refuse)

    @pytest.mark.parametrize(
        "table",
        [
            pytest.param((HelloDevice(b"?" * 16, 1, 1),), id="another device"),
            pytest.param((HelloDevice(UUID, 2 << 30, 1),), id="more than the device has"),
            pytest.param((HelloDevice(UUID, 1, 1), HelloDevice(UUID, 1, 1)), id="a device twice"),
            pytest.param((HelloDevice(UUID, 2**63, 2**63),), id="an overflow"),
        ],
    )
    def test_a_table_that_cannot_be_is_refused(self, a_node: Any, table: tuple[HelloDevice, ...]) -> None:
        assert isinstance(a_node.a_hook().hello(table), protocol.Refuse)
        assert a_node.device()["lent_bytes"] == 0

    def test_two_thousand_random_messages_leave_the_agent_well(self, a_node: Any) -> None:
        chance = random.Random(7)
        good = [
            protocol.pack(protocol.Hello(Role.PROCESS, 1, 1, "x")),
            protocol.pack(Credit(MessageType.CREDIT_REQUEST, 0, 3, 1)),
            protocol.pack(Credit(MessageType.CREDIT_RETURN, 0, 3, 1)),
            protocol.pack(protocol.SelfCheckResult(protocol.SelfCheck.ALL, "")),
        ]
        sent = 0
        while sent < 2000:
            hook = a_node.a_hook()
            if chance.random() < 0.7:
                hook.hello()
            try:
                for _ in range(chance.randrange(1, 40)):
                    hook.send(mutated(chance, chance.choice(good)))
                    sent += 1
            except OSError:
                pass  # the agent refused it
            hook.close()
        a_node.until(lambda: a_node.device()["lent_bytes"] == 0)
        assert "Traceback" not in a_node.log()

    def test_descriptors_that_nobody_asked_for_are_closed(self, a_node: Any) -> None:
        table = f"/proc/{a_node.process.pid}/fd"
        hook = a_node.a_hook()
        hook.hello()
        hook.borrow(1)
        want = len(os.listdir(table))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]).tobytes())]
        for _ in range(20):
            hook.socket.sendmsg([protocol.pack(Credit(MessageType.CREDIT_REQUEST, 0, 1, 1))], rights)
            hook.receive()
        assert len(os.listdir(table)) == want


def mutated(chance: random.Random, datagram: bytes) -> bytes:
    data = bytearray(datagram)
    for _ in range(chance.randrange(3)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data[: chance.randrange(1, len(data) + 1)] if chance.random() < 0.2 else data)


class TestSelfCheck:
    def test_a_self_check_that_passed_is_shown(self, a_node: Any) -> None:
        hook = a_node.a_hook()
        hook.hello(role=Role.CHECK)
        hook.send(protocol.SelfCheckResult(protocol.SelfCheck.ALL, ""))
        a_node.until(lambda: a_node.kernel()["interception"] == "holds")

    def test_a_self_check_that_failed_says_why(self, a_node: Any) -> None:
        hook = a_node.a_hook()
        hook.hello(role=Role.CHECK)
        hook.send(protocol.SelfCheckResult(protocol.SelfCheck.QUERY, "two drivers are mapped\n"))
        a_node.until(lambda: a_node.kernel()["interception"] == "failed: two drivers are mapped?")

    def test_a_self_check_that_waits_for_no_answer_is_shown(self, a_node: Any) -> None:
        hook = a_node.a_hook()
        hook.socket.shutdown(socket.SHUT_RD)
        hook.send(protocol.Hello(Role.CHECK, os.getpid(), 1, "fake", ()))
        a_node.until(lambda: "role=CHECK" in a_node.log())  # before the check, as on a machine that is busy
        hook.send(protocol.SelfCheckResult(protocol.SelfCheck.ALL, ""))
        hook.close()
        a_node.until(lambda: a_node.kernel()["interception"] == "holds")

    @pytest.mark.parametrize(("role", "times"), [(Role.PROCESS, 1), (Role.OBSERVER, 1), (Role.CHECK, 2)])
    def test_it_comes_once_and_from_the_kernels_start(self, a_node: Any, role: Role, times: int) -> None:
        """Repeated, it would make the agent write its journal without end, and others wait."""
        hook = a_node.a_hook()
        assert hook.hello(role=role) == protocol.Welcome(1)
        for _ in range(times):
            hook.send(protocol.SelfCheckResult(protocol.SelfCheck.ALL, ""))
        assert isinstance(hook.receive(), protocol.Refuse)
        assert a_node.kernel()["interception"] == ("holds" if role is Role.CHECK else "unknown")
