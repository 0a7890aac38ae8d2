"""A user's server in a container by the real DockerSpawner, with the guide's configuration for it."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest
from hub_kernels import run_cell
from hub_process import PASSWORD, hub_problem
from hub_visitor import HubUser

if TYPE_CHECKING:
    from tests.containers.container_engines import Engine
    from tests.containers.hub_in_container import HubInContainer
else:
    from container_engines import Engine
    from hub_in_container import HubInContainer


@pytest.mark.soak(alone="starts a Hub in a container")
def test_a_servers_container_holds_no_gpu_and_its_kernels_have_the_size_of_the_spawn_page(a_podman: Engine) -> None:
    if problem := hub_problem():
        pytest.skip(problem)
    if importlib.util.find_spec("dockerspawner") is None:
        pytest.skip("dockerspawner is not installed")
    with HubInContainer(a_podman) as hub:
        alice = HubUser(hub.url, "alice", PASSWORD)
        _, page = alice.post("hub/spawn", gpu="1")
        assert "alice may have 0.5" in page
        assert hub.server_box("alice") is None
        hub.wait_for_server("alice", lambda: alice.post("hub/spawn", gpu="0.25"))

        box = hub.server_box("alice")
        environment = dict(line.partition("=")[::2] for line in box.attrs["Config"]["Env"])
        assert environment["KERNEL_GPU"] == "0.25"
        assert environment["JUPYTER_GATEWAY_URL"] == "http://jupyterhub:8890/services/aliquot"
        assert environment["JUPYTERHUB_API_URL"] == "http://jupyterhub:8081/hub/api"
        held = box.attrs["HostConfig"]
        assert not held.get("Devices") and not held.get("DeviceRequests")  # noqa: PT018 (one claim: no device)

        token = hub.ask("hub/api/users/alice/tokens", "POST", {})["token"]
        specs = hub.ask("user/alice/api/kernelspecs", token=token)["kernelspecs"]
        assert "python3.gpu-0.25" in specs
        made = hub.ask("user/alice/api/kernels", "POST", {"name": "python3"}, token=token)
        assert made["name"] == "python3.gpu-0.25"
        (held_by,) = hub.ask("services/aliquot/aliquot/api/v1/status", token=token)["kernels"]
        assert (held_by["id"], held_by["gpus"]) == (made["id"], 0.25), "the server itself holds none"
        server = f"{hub.url}/user/alice"
        assert run_cell(server, token, made["id"], "kept = 6 * 7; print(kept)") == "42\n"

        hub.stop_server("alice")
        assert [one["id"] for one in hub.ask("services/aliquot/api/kernels", token=token)] == [made["id"]]
        hub.wait_for_server("alice", lambda: hub.ask("hub/api/users/alice/server", "POST", token=token))
        assert [one["id"] for one in hub.ask("user/alice/api/kernels", token=token)] == [made["id"]]
        assert run_cell(server, token, made["id"], "print(kept)") == "42\n"
