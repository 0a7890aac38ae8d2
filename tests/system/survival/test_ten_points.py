"""The gateway is killed at each of ten points of a kernel's life.

Each kernel that it answered as started is found again.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest
from ten_points import ENDS, RESTARTS, STARTS, Point, cases

# `aliquot serve`, which dies at a point.
PROGRAM = """
import sys
from jupyter_aliquot.gateway.serverapp.app import GatewayServerApp
{code}
GatewayServerApp.launch_instance(argv=sys.argv[1:])
"""


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


@pytest.mark.parametrize("point", cases(STARTS, ["kernel spawned, not bound"]))
def test_a_start_that_was_answered_is_finished(
    point: Point, a_node: Any, open_tab: Any, settled: Any, eventually: Callable[..., Any]
) -> None:
    gateway = a_node.serve(program=PROGRAM.format(code=point.code)).wait_until_up()
    kernel_id = gateway.start_kernel("python3.gpu-0.25")
    killed(gateway)
    after = a_node.succeed(gateway)
    assert after.kernel_ids() == {kernel_id}
    assert open_tab(after, kernel_id).run("print(6 * 7)") == "42"
    settled(after, kernel_id)
    eventually(lambda: bound_pids(a_node, kernel_id) == [a_node.relays()[kernel_id].kernel.pid])
    after.call("DELETE", f"/api/kernels/{kernel_id}")
    settled(after)


@pytest.mark.parametrize("point", cases(RESTARTS, ["asked to restart, still running"]))
def test_a_restart_that_was_asked_for_leaves_a_kernel_that_works(
    point: Point, a_node: Any, open_tab: Any, settled: Any
) -> None:
    gateway = a_node.serve(program=PROGRAM.format(code=point.code)).wait_until_up()
    kernel_id = gateway.start_kernel("python3.gpu-0.25")
    tab = open_tab(gateway, kernel_id)
    assert tab.run("x = 1; print(x)") == "1"
    with pytest.raises(OSError):  # noqa: PT011 (it dies over it)
        gateway.call("POST", f"/api/kernels/{kernel_id}/restart")
    killed(gateway)
    after = a_node.succeed(gateway)
    assert tab.reconnect(after).run("print(6 * 7)") == "42"
    settled(after, kernel_id)


@pytest.mark.parametrize("point", cases(ENDS, ["asked to end, still running"]))
def test_an_end_that_was_asked_for_is_finished(point: Point, a_node: Any, open_tab: Any, settled: Any) -> None:
    gateway = a_node.serve(program=PROGRAM.format(code=point.code)).wait_until_up()
    kernel_id = gateway.start_kernel("python3.gpu-0.25")
    assert open_tab(gateway, kernel_id).run("print(1)") == "1"
    with pytest.raises(OSError):  # noqa: PT011 (it dies over it)
        gateway.call("DELETE", f"/api/kernels/{kernel_id}")
    killed(gateway)
    after = a_node.succeed(gateway)
    settled(after)
    assert after.ended(kernel_id)["code"] == "user"
