"""A killed gateway's unfinished work on two kernels, and kernels that the next cannot adopt."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ALICE, ADA = "a-token-of-alice", "a-token-of-ada"
# `aliquot serve`, which kills itself when a plain kernel runs whose start was to replace another.
DYING = """
import os, signal, sys
from jupyter_aliquot.gateway.serverapp.app import GatewayServerApp
from jupyter_aliquot.gateway.kernels.replacement import ReplacementTracker

{method}
GatewayServerApp.launch_instance(argv=sys.argv[1:])
"""
BEFORE_THE_END = """
from jupyter_server import CallContext
def dying(self, replaced):
    if replaced or CallContext.get("aliquot_replaced_kernel"):
        os.kill(os.getpid(), signal.SIGKILL)
ReplacementTracker.replace_now = dying
"""
# After its session has the new kernel.
AFTER_THE_SESSION = """
from jupyter_aliquot.gateway.kernels.sessions import OwnedSessionManager
real = OwnedSessionManager.update_session
async def dying(self, session_id, **kwargs):
    await real(self, session_id, **kwargs)
    if kwargs.get("kernel_id"):
        os.kill(os.getpid(), signal.SIGKILL)
OwnedSessionManager.update_session = dying
"""
FAILING = """
import sys
from jupyter_aliquot.gateway.serverapp.app import GatewayServerApp
from jupyter_aliquot.gateway.kernels.kernel import ManagedKernel

async def adopt(self, *_):
    raise OSError("no room for its files")

ManagedKernel.adopt = adopt
GatewayServerApp.launch_instance(argv=sys.argv[1:])
"""


def killed(gateway: Any) -> None:
    assert gateway.process.wait(90) == -signal.SIGKILL, gateway.log.read_text()[-3000:]


def notebook(gateway: Any) -> Any:
    body = {"path": "a.ipynb", "name": "a.ipynb", "type": "notebook", "kernel": {"name": "python3"}}
    return gateway.call("POST", "/api/sessions", body)


def test_a_kernel_whose_replacement_ran_when_the_gateway_died_is_ended_by_the_next_one(
    a_machine: Any, eventually: Callable[..., Any]
) -> None:
    gateway = a_machine.serve(program=DYING.format(method=BEFORE_THE_END)).wait_until_up()
    old = gateway.start_kernel()
    with pytest.raises(OSError):  # noqa: PT011 (it dies over it)
        gateway.call("POST", "/api/kernels", {"name": "python3", "env": {"KERNEL_REPLACES": old}})
    killed(gateway)
    (new,) = set(a_machine.relays()) - {old}
    after = a_machine.succeed(gateway)
    eventually(lambda: after.kernel_ids() == {new} == set(a_machine.relays()) == set(a_machine.processes()))
    assert after.ended(old)["message"].startswith("the kernel was ended by its owner")


def test_a_notebook_keeps_the_kernel_that_it_was_last_told_of(a_machine: Any, eventually: Callable[..., Any]) -> None:
    """The table of sessions decides: the kernel that the page comes back to exists."""
    gateway = a_machine.serve(program=DYING.format(method=AFTER_THE_SESSION)).wait_until_up()
    session = notebook(gateway)
    old = session["kernel"]["id"]
    with pytest.raises(OSError):  # noqa: PT011 (it dies over it)
        gateway.call("PATCH", f"/api/sessions/{session['id']}", {"kernel": {"name": "python3"}})
    killed(gateway)
    (new,) = set(a_machine.relays()) - {old}
    second = a_machine.succeed(gateway, program=DYING.format(method=BEFORE_THE_END))
    eventually(lambda: second.kernel_ids() == {new} == set(a_machine.relays()))
    [bound] = second.call("GET", "/api/sessions")
    assert bound["kernel"]["id"] == new
    with pytest.raises(OSError):  # noqa: PT011 (it dies over it)
        second.call("PATCH", f"/api/sessions/{session['id']}", {"kernel": {"name": "python3"}})
    killed(second)
    (last,) = set(a_machine.relays()) - {new}
    third = a_machine.succeed(second)
    assert third.kernel_ids() == {new, last}, "who was told of no other kernel goes on with his own"
    third.call("DELETE", f"/api/kernels/{last}")
    assert third.call("GET", "/api/sessions")[0]["kernel"]["id"] == new


def test_a_kernel_that_cannot_be_taken_over_counts_for_nobody_and_is_found_by_the_gateway_after_that(
    a_machine: Any, open_tab: Any
) -> None:
    users = {"alice": {"token": ALICE}, "ada": {"token": ADA, "role": "admin"}}
    knobs = {"AliquotIdentityProvider": {"users": users}, "Limits": {"kernels_per_user": 1}}
    config = Path(a_machine.folder) / "gateway.json"
    config.write_text(json.dumps(knobs))

    def serve(port: int = 0, program: str = "") -> Any:
        gateway = a_machine.serve(f"--config={config}", port=port, program=program)
        gateway.token = ADA
        return gateway.wait_until_up()

    gateway = serve()
    kernel_id = gateway.start_kernel("python3", ALICE)
    tab = open_tab(gateway, kernel_id)
    assert tab.run("x = 41; print(x)") == "41"
    gateway.stop(signal.SIGKILL)
    second = serve(gateway.port, FAILING)
    assert second.kernel_ids() == set(), second.log.read_text()[-3000:]
    beside = second.start_kernel("python3", ALICE)
    second.call("DELETE", f"/api/kernels/{beside}", token=ALICE)
    second.stop(signal.SIGKILL)
    third = serve(gateway.port)
    assert third.kernel_ids() == {kernel_id}
    assert tab.reconnect(third).run("print(x + 1)") == "42"
