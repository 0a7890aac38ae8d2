"""Kernels whose user's server has gone: some end, some stay.

A real Hub reports which users have a server.
"""

from __future__ import annotations

from typing import Any

import pytest
from hub_process import HubProcess, until

HUB = {
    "with_lab": False,
    "arguments": {"minutes_without_server": 0.5},
    # The gateway announces the end almost as soon as it misses the server: there is half a minute
    # to come back.
    "options": ("--Culling.warning_seconds=29",),
}
SECONDS = 240.0


def report(hub: HubProcess, kernel_id: str, token: str) -> Any:
    (found,) = [one for one in hub.gateway("aliquot/api/v1/status", token=token)["kernels"] if one["id"] == kernel_id]
    return found


@pytest.mark.soak(alone="waits for minutes of a policy")
def test_a_kernel_ends_after_its_users_server_and_one_whose_server_came_back_stays(a_hub: HubProcess) -> None:
    def has_told(name: str) -> bool:
        return report(a_hub, kernels[name], tokens[name])["scheduled_termination"] is not None

    tokens = {name: a_hub.token_of(name) for name in ("alice", "bob", "carol")} | {"service": a_hub.token}
    kernels: dict[str, str] = {}
    for name, token in tokens.items():
        ask = a_hub.gateway
        if name in ("alice", "bob"):
            a_hub.start_server(name)
            ask = lambda *request, token, name=name: a_hub.server(name, *request, token=token)  # noqa: E731
        kernels[name] = ask("api/kernels", "POST", {"name": "python3.gpu-0.1"}, token=token)["id"]

    a_hub.stop_server("bob")
    until(lambda: has_told("bob"), SECONDS)
    a_hub.start_server("bob")
    until(lambda: not has_told("bob"), SECONDS)

    a_hub.stop_server("alice")
    until(lambda: has_told("alice"), SECONDS)
    ended = until(lambda: report(a_hub, kernels["alice"], tokens["alice"])["termination"], SECONDS)
    assert "its user's server had gone" in ended["message"]
    # Long enough that all other kernels without a server would have ended.
    for name in ("bob", "carol", "service"):
        assert report(a_hub, kernels[name], tokens[name])["state"] == "on_gpu"
        assert not has_told(name)
