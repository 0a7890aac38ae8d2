"""A gateway that the administrator starts, by the words of docs/how-to/jupyterhub.md; its Hub only knows it."""

from __future__ import annotations

import os
import signal
import subprocess
import urllib.error

import pytest
from aliquot.gateway.hub import HubSettings
from hub_process import HubProcess, hub_problem

TOKEN = "a long random text of a test"
OPTIONS = ["--Aliquot.keep_kernels=never", "--Aliquot.driver=softgpu", "--allow-root"]


def a_gateway_of(hub: HubProcess) -> subprocess.Popen[bytes]:
    home = hub.home
    told = {
        "JUPYTERHUB_API_TOKEN": TOKEN,
        "JUPYTERHUB_API_URL": f"http://127.0.0.1:{hub.hub_port}/hub/api",
        "JUPYTERHUB_SERVICE_NAME": "aliquot",
        "JUPYTERHUB_SERVICE_PREFIX": "/services/aliquot/",
        "JUPYTERHUB_SERVICE_URL": f"http://127.0.0.1:{hub.gateway_port}",
    }
    folders = {
        "ALIQUOT_RUNTIME_DIR": f"{home}/run",
        "JUPYTER_CONFIG_DIR": f"{home}/gateway",
        "JUPYTER_DATA_DIR": f"{home}/gateway-data",
        "JUPYTER_RUNTIME_DIR": f"{home}/gateway-run",
    }
    settings = HubSettings(api_token=TOKEN, user_limits={"alice": 0.5}, gateway_options=OPTIONS)
    with (home / "gateway.log").open("wb") as log:
        return subprocess.Popen(
            settings.command(), cwd=home, env={**os.environ, **told, **folders}, stdout=log, stderr=log
        )


@pytest.mark.soak
@pytest.mark.skipif("ALIQUOT_SOAK" not in os.environ, reason="starts one more Hub: make soak")
def test_a_gateway_that_the_administrator_starts_serves_the_hubs_users() -> None:
    if problem := hub_problem():
        pytest.skip(problem)
    hub = HubProcess(with_lab=False, arguments={"api_token": TOKEN, "user_limits": {"alice": 0.5}})
    gateway = a_gateway_of(hub)
    try:
        with hub:
            hub.start_server("alice", gpu="0.25")
            token = hub.token_of("alice")
            made = hub.server("alice", "api/kernels", "POST", {"name": "python3"}, token=token)
            assert made["name"] == "python3.gpu-0.25"
            with pytest.raises(urllib.error.HTTPError) as caught:
                hub.server("alice", "api/kernels", "POST", {"name": "python3.gpu-0.5"}, token=token)
            assert caught.value.code == 403
            assert "alice holds 0.25" in caught.value.read().decode()
            gateway.send_signal(signal.SIGTERM)
            gateway.wait(120)
    finally:
        gateway.kill()
        gateway.wait()
