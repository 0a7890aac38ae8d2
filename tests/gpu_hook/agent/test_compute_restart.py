"""Production and its peers, while a new agent does not have all of them back."""

from __future__ import annotations

import signal
import struct
from typing import Any

from jupyter_aliquot.gpu_hook.protocol.codec import AgentPage, Gate


def gate_of(hook: Any) -> Gate:
    return Gate(struct.unpack_from("=I", hook.agent_page, AgentPage.GATE)[0])


def test_who_is_back_before_production_waits_for_it(a_node: Any, a_holder: Any) -> None:
    a_holder.reserve("p", 50)
    a_holder.reserve("h", 25, workload_class="opportunistic")
    production = a_node.a_hook_process("10", "reconnect", kernel_id="p")
    assert production.stdout.readline() == "10\n"
    production.send_signal(signal.SIGSTOP)  # its hook comes later than others
    a_node.end(signal.SIGKILL)
    a_node.start()
    guest = a_node.a_hook("h")
    guest.hello()
    assert gate_of(guest) is Gate.CLOSED
    production.send_signal(signal.SIGCONT)
    assert production.stdout.readline() == "back\n"
    a_node.until(lambda: gate_of(guest) is not Gate.CLOSED)
    assert gate_of(guest) is Gate.PACED


def test_production_that_does_not_come_back_is_waited_for_while_it_lives(a_node: Any, a_holder: Any) -> None:
    a_holder.reserve("p", 50)
    a_holder.reserve("h", 25, workload_class="opportunistic")
    production = a_node.a_hook_process("10", "reconnect", kernel_id="p")
    assert production.stdout.readline() == "10\n"
    production.send_signal(signal.SIGSTOP)
    for _ in range(2):  # agents that end before it is back also know of it
        a_node.end(signal.SIGKILL)
        a_node.start()
    guest = a_node.a_hook("h")
    guest.hello()
    assert gate_of(guest) is Gate.CLOSED
    production.kill()
    a_node.until(lambda: gate_of(guest) is Gate.OPEN)
