"""A kernel that sends or opens too much costs the agent little, and others are served."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from jupyter_aliquot.gpu_hook.agent.base.descriptors import OF_A_SESSION, Descriptors
from jupyter_aliquot.gpu_hook.agent.kernels.credit_queues import MOST_OF_A_KERNEL, MOST_OF_A_PROCESS, KernelCreditQueues
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts, Ledger
from jupyter_aliquot.gpu_hook.agent.sessions.acceptor import MESSAGES_A_SECOND, MESSAGES_AT_ONCE
from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import Credit, MalformedError, MessageType, RefusalReason

MIB = 1 << 20
# Processes that each join, borrow and leave the agent at this path, and live on until standard input ends.
_LEAVERS = """
import os, socket, sys
from jupyter_aliquot.gpu_hook import protocol
from jupyter_aliquot.gpu_hook.protocol.codec import Credit, Hello, MessageType, Role
for _ in range(int(sys.argv[2])):
    done = os.pipe()
    if os.fork() == 0:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as agent:
                agent.connect(sys.argv[1])
                agent.send(protocol.pack(Hello(Role.PROCESS, os.getpid(), 0, "x", ())))
                agent.recv(4096)
                agent.send(protocol.pack(Credit(MessageType.CREDIT_REQUEST, 0, 512, 1, 1)))
                agent.recv(4096)
            os.write(done[1], b"1")
            sys.stdin.buffer.raw.read(1)
        finally:
            os._exit(0)
    os.close(done[1])
    os.read(done[0], 1)
    os.close(done[0])
print("left", flush=True)
sys.stdin.buffer.raw.read(1)
"""


class TestRequestsThatWait:
    def play(self, scenario: Callable[[KernelCreditQueues], None]) -> None:
        """Run a scenario with a kernel's queues, which answer nothing for now."""

        async def run() -> None:
            scenario(self.make_queues())

        asyncio.run(run())

    def make_queues(self) -> KernelCreditQueues:
        ledger = Ledger()
        ledger.set_devices([DeviceFacts("GPU-a", 0, "a", 1024 * MIB)])
        ledger.reserve("k", [Part("GPU-a", 0, 50, 512 * MIB)])
        answers = (lambda *_: True, lambda: None, lambda process, device, amount: self.made_room.append(amount))
        queues = KernelCreditQueues(ledger, "k", (0, protocol.HOST_MEMORY), self.sessions, 0.2, *answers)
        queues.hold()
        return queues

    def test_a_process_asks_for_room_for_contexts_a_few_times_a_minute(self) -> None:
        async def run() -> None:
            queues = self.make_queues()
            queues.resume()
            for sequence in range(50):
                ask = protocol.Credit(MessageType.CREDIT_REQUEST, 0, 1 << 40, sequence, protocol.Request.CONTEXT)
                queues.take(self.sessions[1], ask)
            queues.left(1)
            queues.take(self.sessions[1], ask)

        asyncio.run(run())
        assert self.made_room == [1024 * MIB] * 5, "twice the usual at most, and again for the next process"

    @pytest.fixture(autouse=True)
    def _make_sessions(self) -> None:
        self.answers: Counter[int] = Counter()
        self.made_room: list[int] = []
        self.sessions: Any = {
            number: SimpleNamespace(number=number, send=lambda _, own=number: self.answers.update([own]))
            for number in range(1, 10)
        }

    def ask(self, queues: KernelCreditQueues, number: int, device: int = 0) -> None:
        queues.take(self.sessions[number], Credit(MessageType.CREDIT_REQUEST, device, 1, 1))

    def test_those_of_a_process_are_bounded_over_all_its_devices(self) -> None:
        def scenario(queues: KernelCreditQueues) -> None:
            for turn in range(MOST_OF_A_PROCESS):
                self.ask(queues, 1, (0, protocol.HOST_MEMORY)[turn % 2])
            with pytest.raises(MalformedError, match="1024 requests of this process and 1024 of its kernel wait"):
                self.ask(queues, 1)
            self.ask(queues, 2)

        self.play(scenario)

    def test_processes_together_are_bounded_and_each_has_a_few(self) -> None:
        def scenario(queues: KernelCreditQueues) -> None:
            for number in range(1, 5):
                for _ in range(MOST_OF_A_KERNEL // 4):
                    self.ask(queues, number)
            for _ in range(16):
                self.ask(queues, 5)
            with pytest.raises(MalformedError, match="16 requests of this process and 4112 of its kernel wait"):
                self.ask(queues, 5)

        self.play(scenario)

    def test_what_is_answered_or_left_counts_no_longer(self) -> None:
        def scenario(queues: KernelCreditQueues) -> None:
            for _ in range(MOST_OF_A_PROCESS):
                self.ask(queues, 1)
                self.ask(queues, 2)
            queues.left(2)
            queues.resume()
            assert self.answers == {1: MOST_OF_A_PROCESS}
            queues.hold()
            for number in (1, 2):
                for _ in range(MOST_OF_A_PROCESS):
                    self.ask(queues, number)

        self.play(scenario)


class TestReading:
    def test_messages_of_one_kernel_are_read_at_the_rate_and_all_are_answered(self, a_node: Any, a_holder: Any) -> None:
        a_holder.reserve()
        hooks = [a_node.a_hook() for _ in range(2)]
        for hook in hooks:
            hook.hello()
        start, sent = time.monotonic(), 0
        while sent < 2 * MESSAGES_AT_ONCE + MESSAGES_A_SECOND:
            for hook in hooks:
                for _ in range(50):
                    hook.ask(0)
            for hook in hooks:
                for _ in range(50):
                    answer = hook.receive()
                    assert isinstance(answer, Credit)
            sent += 100
        assert time.monotonic() - start > (sent - MESSAGES_AT_ONCE) / MESSAGES_A_SECOND * 0.9


class TestDescriptors:
    @given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 16)), max_size=200))
    def test_one_kernel_has_at_most_half_and_the_next_finds_some(self, wishes: list[tuple[str, int]]) -> None:
        descriptors = Descriptors(1024)
        for kernel_id, count in wishes:
            descriptors.take(kernel_id, count)
        assert sum(descriptors.held(kernel_id) for kernel_id in "abc") <= descriptors.limit
        assert all(descriptors.held(kernel_id) <= descriptors.limit // 2 for kernel_id in "abc")
        assert descriptors.take("another", 4 * OF_A_SESSION)

    def test_what_is_given_back_is_there_again(self) -> None:
        descriptors = Descriptors(64)
        while descriptors.take("k", 8):
            pass
        want = descriptors.held("k")
        descriptors.give_back("k", want)
        assert descriptors.held("k") == 0
        assert descriptors.take("k", want)

    def test_one_kernels_processes_leave_descriptors_for_those_of_others(
        self, an_idle_node: Any, open_holder: Any
    ) -> None:
        plain = an_idle_node.command
        an_idle_node.command = lambda *rest: ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", *plain(*rest)]
        an_idle_node.start()
        holder = open_holder()
        holder.reserve("greedy", 10)
        holder.reserve("modest", 10)
        table = f"/proc/{an_idle_node.process.pid}/fd"
        before, joined = len(os.listdir(table)), 0
        while isinstance(answer := an_idle_node.a_hook("greedy").hello(), protocol.Welcome):
            joined += 1
        assert isinstance(answer, protocol.Refuse)
        assert answer.reason is RefusalReason.FULL
        assert "raise the agent's limit of open files" in answer.text
        assert len(os.listdir(table)) - before <= joined * OF_A_SESSION + 1
        assert joined >= 8
        for _ in range(4):
            assert an_idle_node.a_hook("modest").hello() == protocol.Welcome(1)
        assert "Too many open files" not in an_idle_node.log()
        for hook in an_idle_node.hooks:
            hook.close()
        an_idle_node.until(lambda: len(os.listdir(table)) <= before)
        assert isinstance(an_idle_node.a_hook("greedy").hello(), protocol.Welcome)

    def test_processes_that_left_and_live_cost_their_kernel_descriptors_too(
        self, an_idle_node: Any, open_holder: Any
    ) -> None:
        plain = an_idle_node.command
        an_idle_node.command = lambda *rest: ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", *plain(*rest)]
        an_idle_node.start()
        holder = open_holder()
        holder.reserve("greedy", 10)
        holder.reserve("modest", 10)
        table = f"/proc/{an_idle_node.process.pid}/fd"
        before = len(os.listdir(table))
        path = an_idle_node.folder / "kernels" / "greedy" / protocol.SOCKET_NAME
        command = [sys.executable, "-c", _LEAVERS, str(path), "150"]
        leavers = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        an_idle_node.helpers.append(leavers)
        assert leavers.stdout is not None
        assert leavers.stdout.readline() == "left\n"
        assert len(os.listdir(table)) - before <= 256 // 2
        for _ in range(4):
            assert an_idle_node.a_hook("modest").hello() == protocol.Welcome(1)
        leavers.communicate("", timeout=60)
        an_idle_node.until(lambda: len(os.listdir(table)) <= before + 4 * OF_A_SESSION)
