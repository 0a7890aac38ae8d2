"""A gateway that an administrator starts, by docs/how-to/jupyterhub.md.

Its Hub knows it and does not start it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

from hub_process import HubProcess

from jupyter_aliquot.gateway.hub import HubSettings

TOKEN = "a-long-random-text-of-a-test"
OPTIONS = (
    "--Aliquot.keep_kernels=never",
    "--Aliquot.driver=softgpu",
    "--Aliquot.agent_options=--overcommit",
    "--Aliquot.agent_options=1",
    "--Aliquot.softgpu_memory=16GiB",  # the default follows the machine's memory
    "--allow-root",
    "--Aliquot.allow_root_kernels=True",
)


def start_gateway(
    hub: HubProcess,
    *options: str,
    limits: Mapping[str, float],
    scheme: str = "http",
    api_url: str = "",
    environment: Mapping[str, str] | None = None,
    name: str = "aliquot",
    port: int = 0,
) -> subprocess.Popen[bytes]:
    """Start the gateway, which asks the Hub about each request's token. The caller ends it.

    One with another name and port than the Hub's own gateway has a folder of its own, too.
    """
    home = hub.home if name == "aliquot" else hub.home / name
    home.mkdir(exist_ok=True)
    told = {
        "JUPYTERHUB_API_TOKEN": TOKEN,
        "JUPYTERHUB_API_URL": api_url or f"http://127.0.0.1:{hub.hub_port}/hub/api",
        "JUPYTERHUB_SERVICE_NAME": name,
        "JUPYTERHUB_SERVICE_PREFIX": f"/services/{name}/",
        "JUPYTERHUB_SERVICE_URL": f"{scheme}://127.0.0.1:{port or hub.gateway_port}",
    }
    folders = {
        "ALIQUOT_RUNTIME_DIR": f"{home}/run",
        "JUPYTER_CONFIG_DIR": f"{home}/gateway",
        "JUPYTER_DATA_DIR": f"{home}/gateway-data",
        "JUPYTER_RUNTIME_DIR": f"{home}/gateway-run",
    }
    settings = HubSettings(name=name, api_token=TOKEN, user_limits=limits, gateway_options=[*OPTIONS, *options])
    with (home / "gateway.log").open("wb") as log:
        return subprocess.Popen(
            settings.command(),
            cwd=home,
            env={**os.environ, **told, **folders, **(environment or {})},
            stdout=log,
            stderr=log,
        )
