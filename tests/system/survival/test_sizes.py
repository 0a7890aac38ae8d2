"""Changed sizes, and waiting requests, over the end of a gateway and of its agent."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from jupyter_aliquot.gpu_hook.client.client import query


def resize(gateway: Any, kernel_id: str, gpus: float) -> Any:
    return gateway.call("PATCH", f"/aliquot/api/v1/kernels/{kernel_id}", {"gpus": gpus})


def report(gateway: Any, kernel_id: str) -> Any:
    return gateway.call("GET", f"/aliquot/api/v1/kernels/{kernel_id}")


def names(gateway: Any) -> dict[str, str]:
    """Return the name of each kernel in Jupyter's own list."""
    return {kernel["id"]: kernel["name"] for kernel in gateway.call("GET", "/api/kernels")}


def test_a_killed_gateway_loses_neither_sizes_nor_wishes(
    a_node: Any, open_tab: Any, eventually: Callable[..., Any]
) -> None:
    gateway = a_node.serve().wait_until_up()
    grown, other = gateway.start_kernel("python3.gpu-0.25"), gateway.start_kernel("python3.gpu-0.5")
    tab = open_tab(gateway, grown)
    assert tab.run("x = 41; print(x)") == "41"
    assert open_tab(gateway, other).run("print(1)") == "1"
    assert resize(gateway, grown, 0.5)["gpus"] == 0.5
    waiting = resize(gateway, other, 0.75)["resize"]
    assert (waiting["state"], waiting["gpus"]) == ("queued", 0.75)
    gateway.stop(signal.SIGKILL)
    a_node.kill_agent()
    a_node.start_agent()
    after = a_node.succeed(gateway)
    eventually(lambda: report(after, grown)["gpus"] == 0.5)  # the agent reports it, at the first look
    assert names(after)[grown] == "python3.gpu-0.5"
    again = eventually(lambda: report(after, other)["resize"])
    assert (again["gpus"], again["since"]) == (0.75, waiting["since"])
    eventually(lambda: a_node.held() == {grown: 50, other: 50})
    assert tab.reconnect(after).run("print(x + 1)") == "42"
    assert resize(after, grown, 0.25)["gpus"] == 0.25
    eventually(lambda: a_node.held() == {grown: 25, other: 75})
    eventually(lambda: report(after, other)["resize"] is None)
    assert names(after) == {grown: "python3.gpu-0.25", other: "python3.gpu-0.75"}


def test_what_was_resized_while_no_gateway_ran_is_what_the_next_one_holds(
    a_node: Any, open_tab: Any, eventually: Callable[..., Any]
) -> None:
    """The gateway was killed after the agent's change of a size and before its own record."""
    gateway = a_node.serve().wait_until_up()
    kernel_id = gateway.start_kernel("python3.gpu-0.25")
    tab = open_tab(gateway, kernel_id)
    assert tab.run("print(1)") == "1"
    gateway.stop(signal.SIGKILL)
    query("resize", runtime_dir=a_node.runtime.path, kernel_id=kernel_id, hundredths=60, memory_limit=None)
    after = a_node.succeed(gateway)
    eventually(lambda: report(after, kernel_id)["gpus"] == 0.6)
    assert a_node.held() == {kernel_id: 60}
    assert names(after) == {kernel_id: "python3.gpu-0.6"}
    after.call("POST", f"/api/kernels/{kernel_id}/restart", {})
    assert tab.reconnect(after).run("print(2)") == "2"
    assert a_node.held() == {kernel_id: 60}
