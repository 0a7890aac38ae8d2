"""The next life of a gateway is another version: of itself, its records, and the relay protocol."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

# `aliquot serve` as a later version might be.
PROGRAM = """
import sys
from jupyter_aliquot import gateway
from jupyter_aliquot.provisioner.relay.client import control as client, link
gateway.__version__ = "99.0"
client.VERSIONS = link.VERSIONS = {versions}
from jupyter_aliquot.gateway.serverapp.app import GatewayServerApp
GatewayServerApp.launch_instance(argv=sys.argv[1:])
"""


def later(*versions: int) -> str:
    return PROGRAM.format(versions=versions)


def test_a_later_version_takes_over_and_so_does_the_earlier_one_after_it(a_node: Any, open_tab: Any) -> None:
    gateway = a_node.serve().wait_until_up()
    kernel_id = gateway.start_kernel("python3.gpu-0.25")
    tab = open_tab(gateway, kernel_id)
    cell = tab.execute("import time\nfor number in range(60): print('line', number, flush=True); time.sleep(0.05)")
    tab.wait_for_text("line 3\n")
    gateway.stop(signal.SIGTERM)
    after = a_node.succeed(gateway, program=later(3, 2))
    assert after.call("GET", "/aliquot/api/v1/status")["version"] == "99.0"
    tab.reconnect(after).wait_for_text("line 20\n")
    after.stop(signal.SIGTERM)
    assert tab.reconnect(a_node.succeed(after)).text(cell) == "".join(f"line {number}\n" for number in range(60))


def test_a_version_that_relays_do_not_speak_ends_no_kernel_and_says_why(
    a_node: Any, open_tab: Any, eventually: Callable[..., Any]
) -> None:
    gateway = a_node.serve().wait_until_up()
    kernel_id = gateway.start_kernel()
    tab = open_tab(gateway, kernel_id)
    assert tab.run("x = 5; print(x)") == "5"
    gateway.stop(signal.SIGTERM)
    stranger = a_node.succeed(gateway, program=later(7))
    assert stranger.kernel_ids() == {kernel_id}
    eventually(lambda: "closed reason=" in stranger.log.read_text())
    stranger.stop(signal.SIGTERM)
    after = a_node.succeed(stranger)
    assert tab.reconnect(after).run("print(x)") == "5"


def test_records_with_more_in_them_are_read(a_machine: Any, open_tab: Any) -> None:
    gateway = a_machine.serve().wait_until_up()
    kernel_id = gateway.start_kernel()
    tab = open_tab(gateway, kernel_id)
    assert tab.run("x = 5; print(x)") == "5"
    gateway.stop(signal.SIGKILL)
    state = a_machine.folder / "data" / "aliquot" / "gateways" / "test"
    path = state / "kernels" / f"{kernel_id}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "a_field_of_later": [1]}))
    after = a_machine.succeed(gateway)
    assert tab.reconnect(after).run("print(x)") == "5"
