"""A gateway ends in every possible way, and its users notice only a pause."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.client.client import query

COUNT = """
import time
for number in range({count}):
    print("line", number, flush=True)
    time.sleep({pause})
"""


def counting(count: int, pause: float) -> str:
    return COUNT.format(count=count, pause=pause)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_a_running_cell_its_output_and_variables_survive(
    how: int, a_node: Any, open_tab: Any, eventually: Callable[..., Any]
) -> None:
    gateway = a_node.serve().wait_until_up()
    kernel_id = gateway.start_kernel("python3.gpu-0.25")
    tab = open_tab(gateway, kernel_id)
    assert tab.run("x = 41; import os; print(os.getpid())").isdigit()
    cell = tab.execute(counting(60, 0.05))
    tab.wait_for_text("line 3\n")
    gateway.stop(how)
    after = a_node.succeed(gateway)
    assert after.kernel_ids() == {kernel_id}
    tab.reconnect(after)
    want = "".join(f"line {number}\n" for number in range(60))
    assert tab.text(cell) == want
    assert how == signal.SIGKILL or not tab.doubled, "who may finish leaves nothing unacknowledged"
    assert tab.find(cell, "execute_reply")["content"]["status"] == "ok"
    assert tab.run("print(x + 1)") == "42"
    eventually(lambda: a_node.held() == {kernel_id: 25})
    after.call("DELETE", f"/api/kernels/{kernel_id}")
    eventually(lambda: (a_node.held(), a_node.relays(), a_node.processes()) == ({}, {}, {}))
    assert a_node.records() == set()


def test_an_agent_that_is_killed_with_the_gateway_has_the_same_ledger_afterwards(
    a_node: Any, open_tab: Any, eventually: Callable[..., Any]
) -> None:
    gateway = a_node.serve().wait_until_up()
    kernels = {gateway.start_kernel(name): share for name, share in (("python3.gpu-0.25", 25), ("python3.gpu-0.5", 50))}
    tabs = {kernel_id: open_tab(gateway, kernel_id) for kernel_id in kernels}
    for tab in tabs.values():
        assert tab.run("x = 1; print(x)") == "1"
    waiting = gateway.start_kernel("python3.gpu-0.5")
    assert a_node.held() == kernels
    gateway.stop(signal.SIGKILL)
    a_node.kill_agent()
    a_node.start_agent()
    after = a_node.succeed(gateway)
    eventually(lambda: a_node.held() == kernels)
    assert after.kernel_ids() == {*kernels, waiting}
    gone, *_ = (kernel_id for kernel_id, share in kernels.items() if share == 50)
    after.call("DELETE", f"/api/kernels/{gone}")
    eventually(lambda: a_node.held().get(waiting) == 50)
    (left,) = set(kernels) - {gone}
    assert tabs[left].reconnect(after).run("print(x)") == "1"


def test_a_kernel_without_cuda_keeps_its_reservation_when_the_agent_dies_and_loses_its_record_without_a_gateway(
    a_node: Any, open_tab: Any, eventually: Callable[..., Any]
) -> None:
    gateway = a_node.serve().wait_until_up()
    kernel_id = gateway.start_kernel("python3.gpu-0.25")
    tab = open_tab(gateway, kernel_id)
    pid = int(tab.run("import os; print(os.getpid())"))
    gateway.stop(signal.SIGKILL)
    for _ in range(2):
        a_node.kill_agent()
        shutil.rmtree(a_node.folder / "run" / "kernels" / kernel_id)
        a_node.start_agent()
        eventually(lambda: a_node.held() == {kernel_id: 25})
    # This one's connection is closed at once: when it is gone, the time of orphans has passed.
    query("reserve", runtime_dir=a_node.runtime.path, kernel_id="orphan", owner="eve", hundredths=10)
    eventually(lambda: "orphan" not in a_node.held())
    (kernel,) = query("status", runtime_dir=a_node.runtime.path)["kernels"]
    want_pids = [pid]
    assert (kernel["kernel_id"], kernel["hundredths"], kernel["pids"]) == (kernel_id, 25, want_pids)
    after = a_node.succeed(gateway)
    assert tab.reconnect(after).run("print(os.getpid())") == str(pid)
    after.call("DELETE", f"/api/kernels/{kernel_id}")
    eventually(lambda: (a_node.held(), a_node.relays()) == ({}, {}))


def test_a_kernel_that_ends_while_its_gateway_is_away_holds_nothing_though_its_relay_waits(
    a_node: Any, open_tab: Any, eventually: Callable[..., Any]
) -> None:
    gateway = a_node.serve().wait_until_up()
    kernel_id = gateway.start_kernel("python3.gpu-0.25")
    assert open_tab(gateway, kernel_id).run("print(1)") == "1"
    gateway.stop(signal.SIGKILL)
    relay = a_node.relays()[kernel_id]
    os.kill(relay.kernel.pid, signal.SIGKILL)
    eventually(lambda: a_node.held() == {})
    assert set(a_node.relays()) == {kernel_id}
    a_node.kill_agent()
    a_node.start_agent()
    query("reserve", runtime_dir=a_node.runtime.path, kernel_id="orphan", owner="eve", hundredths=10)
    eventually(lambda: "orphan" not in a_node.held())
    assert a_node.held() == {}
