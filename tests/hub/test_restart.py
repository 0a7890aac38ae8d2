"""A Hub that restarts, and its gateway with it.

Kernels go on, and their users' next servers find them.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hub_kernels import run_cell
from hub_process import HubProcess


def gateway_pid(hub: HubProcess) -> int:
    """Return the pid of the gateway that has the state folder; the system shows no other."""
    (lock,) = hub.home.glob("gateway-data/aliquot/gateways/aliquot/lock")
    return int(lock.read_text().split()[0])


HUB = {"with_lab": False, "options": ("--Aliquot.keep_kernels=always",)}


@pytest.mark.soak(alone="starts a whole Hub twice")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_kernels_outlive_their_hub_and_its_gateway(number: int, a_hub: HubProcess, tmp_path: Path) -> None:
    a_hub.start_server("alice", gpu="0.25")
    token = a_hub.token_of("alice")
    kernel = a_hub.server("alice", "api/kernels", "POST", {"name": "python3"}, token=token)
    server = f"{a_hub.url}/user/alice"
    run_cell(server, token, kernel["id"], "kept = 6 * 7")
    gateway = gateway_pid(a_hub)
    a_hub.restart(number, tmp_path)
    assert gateway_pid(a_hub) != gateway, "the new Hub has a gateway of its own, with its own settings"
    if number == signal.SIGTERM:
        a_hub.start_server("alice")
    else:
        a_hub.wait_for_server("alice")
    assert [one["id"] for one in a_hub.server("alice", "api/kernels", token=token)] == [kernel["id"]]
    assert run_cell(server, token, kernel["id"], "print(kept)") == "42\n"
    a_hub.server("alice", f"api/kernels/{kernel['id']}", "DELETE", token=token)
    a_hub.stop_server("alice")
