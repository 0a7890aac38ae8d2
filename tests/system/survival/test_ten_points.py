"""The gateway is killed at each of ten points of a kernel's life.

Each kernel that it answered as started is found again.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

# `aliquot serve`, whose process kills itself right before the nth call of a named method.
PROGRAM = """
import os, signal, sys
from jupyter_aliquot.gateway.serverapp.app import GatewayServerApp
from {module} import {owner} as owner

real, calls = owner.{method}, []

def dying(self, *args, **kwargs):
    matches = {condition}
    calls.extend([1] if matches else [])
    if matches and len(calls) == {call}:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, *args, **kwargs)

owner.{method} = dying
GatewayServerApp.launch_instance(argv=sys.argv[1:])
"""


@dataclass(frozen=True)
class Point:
    """The call before which the gateway dies; ``condition`` is about ``args`` and ``kwargs``."""

    module: str
    owner: str
    method: str
    condition: str = "True"
    call: int = 1

    @property
    def program(self) -> str:
        return PROGRAM.format(**vars(self))


KERNEL, RECORDS = "jupyter_aliquot.gateway.kernels.kernel", "jupyter_aliquot.gateway.state.records"
PROVISIONER = "jupyter_aliquot.provisioner.provisioner"
STARTS = {
    "granted, not launched": Point(KERNEL, "ManagedKernel", "_async_pre_start_kernel"),
    "relay started, kernel not spawned": Point(PROVISIONER, "AliquotProvisioner", "launch_kernel"),
    "kernel spawned, not bound": Point(PROVISIONER, "AliquotProvisioner", "_bind"),
    "bound, not noted as running": Point(KERNEL, "ManagedKernel", "note", "args[0].value == 'running'"),
    "just bound, ready not set": Point(KERNEL, "ManagedKernel", "_async_post_start_kernel"),
}
RESTARTS = {
    "asked to restart, still running": Point(KERNEL, "ManagedKernel", "stop_restarter"),
    "ended for its restart, not started": Point(PROVISIONER, "AliquotProvisioner", "launch_kernel", call=2),
}
ENDS = {
    "asked to end, still running": Point(KERNEL, "ManagedKernel", "withdraw"),
    "process ended, relay not": Point(PROVISIONER, "AliquotProvisioner", "_let_go"),
    "ended, record not removed": Point(RECORDS, "KernelRecords", "remove"),
}


@pytest.fixture
def settled(a_node: Any, eventually: Callable[..., Any]) -> Callable[..., None]:
    """Return a check that only these kernels run, and that agent and gateway agree on them."""

    def check(gateway: Any, *kernel_ids: str) -> None:
        want = set(kernel_ids)

        def found() -> tuple[Any, ...]:
            held = {
                kernel["id"] for kernel in gateway.call("GET", "/aliquot/api/v1/status")["kernels"] if is_held(kernel)
            }
            return set(a_node.held()), held, set(a_node.relays()), set(a_node.processes()), a_node.records()

        eventually(lambda: found() == (want,) * 5)
        assert gateway.kernel_ids() == want

    return check


def is_held(kernel: dict[str, Any]) -> bool:
    return kernel["state"] not in ("queued", "ended")


def bound_pids(node: Any, kernel_id: str) -> list[int]:
    """Return the kernel's processes at the agent.

    The gateway may not have reported any.
    """
    journal = json.loads((node.runtime.kernels / kernel_id / "grant.json").read_text())
    return [process["pid"] for process in journal["bound"]]


def killed(gateway: Any) -> None:
    assert gateway.process.wait(90) == -signal.SIGKILL, gateway.log.read_text()[-3000:]


@pytest.mark.parametrize("point", STARTS.values(), ids=STARTS)
def test_a_start_that_was_answered_is_finished(
    point: Point, a_node: Any, open_tab: Any, settled: Any, eventually: Callable[..., Any]
) -> None:
    gateway = a_node.serve(program=point.program).wait_until_up()
    kernel_id = gateway.start_kernel("python3.gpu-0.25")
    killed(gateway)
    after = a_node.succeed(gateway)
    assert after.kernel_ids() == {kernel_id}
    assert open_tab(after, kernel_id).run("print(6 * 7)") == "42"
    settled(after, kernel_id)
    eventually(lambda: bound_pids(a_node, kernel_id) == [a_node.relays()[kernel_id].kernel.pid])
    after.call("DELETE", f"/api/kernels/{kernel_id}")
    settled(after)


@pytest.mark.parametrize("point", RESTARTS.values(), ids=RESTARTS)
def test_a_restart_that_was_asked_for_leaves_a_kernel_that_works(
    point: Point, a_node: Any, open_tab: Any, settled: Any
) -> None:
    gateway = a_node.serve(program=point.program).wait_until_up()
    kernel_id = gateway.start_kernel("python3.gpu-0.25")
    tab = open_tab(gateway, kernel_id)
    assert tab.run("x = 1; print(x)") == "1"
    with pytest.raises(OSError):  # noqa: PT011 (it dies over it)
        gateway.call("POST", f"/api/kernels/{kernel_id}/restart")
    killed(gateway)
    after = a_node.succeed(gateway)
    assert tab.reconnect(after).run("print(6 * 7)") == "42"
    settled(after, kernel_id)


@pytest.mark.parametrize("point", ENDS.values(), ids=ENDS)
def test_an_end_that_was_asked_for_is_finished(point: Point, a_node: Any, open_tab: Any, settled: Any) -> None:
    gateway = a_node.serve(program=point.program).wait_until_up()
    kernel_id = gateway.start_kernel("python3.gpu-0.25")
    assert open_tab(gateway, kernel_id).run("print(1)") == "1"
    with pytest.raises(OSError):  # noqa: PT011 (it dies over it)
        gateway.call("DELETE", f"/api/kernels/{kernel_id}")
    killed(gateway)
    after = a_node.succeed(gateway)
    settled(after)
    assert after.ended(kernel_id)["code"] == "user"
