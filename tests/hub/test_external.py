"""A gateway that the administrator starts, by docs/how-to/jupyterhub.md.

Its Hub knows it and does not start it.
"""

from __future__ import annotations

import signal
import urllib.error

import pytest
from hub_gateway import TOKEN, start_gateway
from hub_process import HubProcess, hub_problem, until

LIMITS = {"alice": 0.5}


@pytest.mark.soak(alone="starts one more Hub")
def test_a_gateway_that_the_administrator_starts_serves_the_hubs_users() -> None:
    if problem := hub_problem():
        pytest.skip(problem)
    hub = HubProcess(with_lab=False, arguments={"api_token": TOKEN, "user_limits": LIMITS})
    gateway = start_gateway(hub, limits=LIMITS)
    try:
        with hub:
            hub.start_server("alice", gpu="0.25")
            token = hub.token_of("alice")
            made = hub.server("alice", "api/kernels", "POST", {"name": "python3"}, token=token)
            assert made["name"] == "python3.gpu-0.25"

            def refusal() -> str:
                with pytest.raises(urllib.error.HTTPError) as caught:
                    hub.server("alice", "api/kernels", "POST", {"name": "python3.gpu-0.5"}, token=token)
                assert caught.value.code == 403
                return caught.value.read().decode()

            assert until(lambda: "alice holds 0.25" in refusal(), 60), "once its grant has come"
            gateway.send_signal(signal.SIGTERM)
            gateway.wait(120)
    finally:
        gateway.kill()
        gateway.wait()
