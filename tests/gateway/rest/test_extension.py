"""The gateway in servers with settings that it does not expect."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from jupyter_server.auth import IdentityProvider, User as JupyterUser
from jupyter_server.gateway.gateway_client import GatewayClient
from jupyter_server.serverapp import ServerApp
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from traitlets.config import Config

from jupyter_aliquot.gateway.auth.identity import AliquotIdentityProvider
from jupyter_aliquot.gateway.config import Aliquot
from jupyter_aliquot.gateway.extension import AliquotExtension
from jupyter_aliquot.gateway.kernels.manager import AliquotKernelManager
from jupyter_aliquot.gateway.node.launcher import agent_arguments
from jupyter_aliquot.gateway.serverapp.config_warnings import gateway_mode
from jupyter_aliquot.provisioner.provisioner import AliquotProvisioner

from .conftest import Ask
from .fake_agent import FakeAgent
from .test_contract import until


class HubIdentityProvider(IdentityProvider):
    """An identity provider that names its users itself, as JupyterHub's does."""

    async def get_user(self, handler: Any) -> JupyterUser:
        handler._token_authenticated = True
        return JupyterUser("hub-user")


@pytest.fixture
def users() -> dict[str, dict[str, str]]:
    """Return no users: a server of one user."""
    return {}


@pytest.fixture
def as_me(ask: Ask, jp_auth_header: dict[str, str]) -> Any:
    async def as_me(method: str, *path: str, **more: Any) -> Any:
        return await ask("", method, *path, headers=dict(jp_auth_header), **more)

    return as_me


async def test_a_server_of_one_user_shows_them_everything(as_me: Any, a_server: ServerApp) -> None:
    assert isinstance(a_server.identity_provider, AliquotIdentityProvider)
    started = await as_me("POST", "api/kernels", body={"name": "python3"})
    assert started.status == 201
    assert [kernel["id"] for kernel in (await as_me("GET", "api/kernels")).json] == [started.json["id"]]
    assert (await as_me("GET", "api/contents")).status == 200
    assert (await as_me("GET", "aliquot/api/v1/metrics")).status == 200
    assert (await as_me("GET", "aliquot/api/v1/status")).json["user"]["role"] == "admin"


@pytest.fixture
def no_folder(runtime_dir: Path, a_server: ServerApp) -> Iterator[Path]:
    """Put a file where the runtime folder should be."""
    runtime_dir.rmdir()
    runtime_dir.write_text("not a folder")
    yield runtime_dir
    runtime_dir.unlink()
    runtime_dir.mkdir()


async def test_an_agent_that_cannot_start_is_explained_and_plain_kernels_run(no_folder: Path, as_me: Any) -> None:
    report = (await as_me("GET", "aliquot/api/v1/status")).json
    assert report["node"]["agent"] == "unavailable"
    assert "is no folder" in report["node"]["message"]
    assert (await as_me("POST", "api/kernels", body={"name": "python3"})).status == 201


async def test_kernelspecs_that_name_no_provisioner_get_ours(as_me: Any, a_server: ServerApp) -> None:
    started = await as_me("POST", "api/kernels", body={"name": "python3"})
    assert type(a_server.kernel_manager.get_kernel(started.json["id"]).provisioner) is AliquotProvisioner


class TestWithAnotherDefaultProvisioner:
    @pytest.fixture
    def jp_server_config(self, jp_server_config: Config) -> Config:
        jp_server_config.KernelProvisionerFactory.default_provisioner_name = "local-provisioner"
        return jp_server_config

    async def test_it_is_left_alone(self, as_me: Any, a_server: ServerApp) -> None:
        started = await as_me("POST", "api/kernels", body={"name": "python3"})
        assert type(a_server.kernel_manager.get_kernel(started.json["id"]).provisioner) is LocalProvisioner


class TestWithAnAgentThatRunsAlready:
    @pytest.fixture
    def jp_server_config(self, jp_server_config: Config) -> Config:
        jp_server_config.Aliquot.agent_options = ["--overcommit", "3"]
        jp_server_config.Aliquot.start_agent = True
        return jp_server_config

    async def test_options_that_differ_are_told_in_status_and_log(
        self, capfd: pytest.CaptureFixture[str], an_agent: FakeAgent, a_server: ServerApp, as_me: Any
    ) -> None:
        an_agent.options = {"--overcommit": "1"}
        await an_agent.start()
        want = "has --overcommit 1, and this server asks for --overcommit 3"

        async def message() -> str:
            return str((await as_me("GET", "aliquot/api/v1/status")).json["node"]["message"])

        await until(message, lambda told: want in told)
        assert capfd.readouterr().err.count(want) == 1


class TestWithAnAgentOfAnotherService:
    @pytest.fixture
    def jp_server_config(self, jp_server_config: Config) -> Config:
        assert jp_server_config.Aliquot.start_agent is False
        jp_server_config.Aliquot.driver = "nvidia"
        return jp_server_config

    async def test_a_software_gpu_in_the_place_of_a_real_one_is_told(
        self, an_agent: FakeAgent, a_server: ServerApp, as_me: Any
    ) -> None:
        an_agent.options = {"--driver": "softgpu"}
        await an_agent.start()
        want = "The node agent that runs has --driver softgpu, and this server asks for --driver nvidia."

        async def message() -> str:
            return str((await as_me("GET", "aliquot/api/v1/status")).json["node"]["message"])

        await until(message, lambda told: want in told)


async def test_the_configuration_is_read_once_and_the_manager_is_made_with_its_services(a_server: ServerApp) -> None:
    [extension] = a_server.extension_manager.extension_apps["jupyter_aliquot.gateway"]
    assert isinstance(extension, AliquotExtension)
    assert a_server.kernel_spec_manager.settings is extension.configuration
    assert a_server.kernel_manager.services is extension.kernel_services()
    assert a_server.kernel_manager.services.admission is not None


class TestWithAnotherKernelManager:
    @pytest.fixture
    def jp_server_config(self, jp_server_config: Config) -> Config:
        jp_server_config.ServerApp.kernel_manager_class = AsyncMappingKernelManager
        return jp_server_config

    async def test_the_status_says_so_and_the_server_works(self, as_me: Any, a_server: ServerApp) -> None:
        assert not isinstance(a_server.kernel_manager, AliquotKernelManager)
        report = (await as_me("GET", "aliquot/api/v1/status")).json
        assert "Remove c.ServerApp.kernel_manager_class" in report["node"]["message"]
        assert (await as_me("POST", "api/kernels", body={"name": "python3"})).status == 201
        assert (await as_me("GET", "api/kernelspecs/python3.gpu-0.25")).status == 200


class TestWithAnotherIdentityProvider:
    @pytest.fixture
    def jp_server_config(self, jp_server_config: Config) -> Config:
        jp_server_config.ServerApp.identity_provider_class = HubIdentityProvider
        return jp_server_config

    async def test_its_users_own_their_kernels(self, as_me: Any, a_server: ServerApp) -> None:
        started = await as_me("POST", "api/kernels", body={"name": "python3"})
        assert started.status == 201
        assert a_server.kernel_manager.owner_of(started.json["id"]) == "hub-user"
        user = (await as_me("GET", "aliquot/api/v1/status")).json["user"]
        assert (user["name"], user["role"]) == ("hub-user", "admin")

    async def test_the_log_warns_that_they_are_all_administrators(
        self, jp_server_config: Config, jp_configurable_serverapp: Any, capfd: pytest.CaptureFixture[str]
    ) -> None:
        jp_configurable_serverapp(config=jp_server_config)
        [warning] = [line for line in capfd.readouterr().err.splitlines() if "tells no roles" in line]
        assert "[W" in warning
        assert "HubIdentityProvider" in warning


@pytest.mark.parametrize("step", ["identity", "signals"])
async def test_a_start_that_fails_leaves_no_request_waiting(
    a_server: ServerApp, as_me: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Fail one step of the start: waiting requests go on.

    Requests wait from the start of the server's loop until the gateway has found its kernels, or
    has failed to.
    """

    async def fail() -> None:
        raise RuntimeError("asked for")

    def fail_now(server: ServerApp) -> None:
        raise RuntimeError("asked for")

    [extension] = a_server.extension_manager.extension_apps["jupyter_aliquot.gateway"]
    await extension.stop_extension()
    if step == "identity":
        monkeypatch.setattr(a_server.identity_provider, "start", fail)
    else:
        monkeypatch.setattr(extension._own.policy, "watch", fail_now)
    extension._recovered.clear()
    with pytest.raises(RuntimeError, match="asked for"):
        await extension._start_jupyter_server_extension(a_server)
    assert extension._recovered.is_set()
    assert (await asyncio.wait_for(as_me("GET", "api/kernelspecs"), 10)).status == 200


@pytest.mark.parametrize(
    ("section", "knob", "value", "want"),
    [
        ("Aliquot", "presets", ["0.333"], "c.Aliquot.presets: Requested '0.333', but"),
        ("AliquotIdentityProvider", "users", {"alice": {}}, "exactly one of token and token_hash"),
    ],
)
def test_a_wrong_configuration_ends_the_server_at_its_start(
    section: str,
    knob: str,
    value: Any,
    want: str,
    jp_server_config: Config,
    jp_configurable_serverapp: Any,
    capfd: pytest.CaptureFixture[str],
) -> None:
    jp_server_config[section][knob] = value
    with pytest.raises(SystemExit):
        jp_configurable_serverapp(config=jp_server_config)
    assert want in capfd.readouterr().err


def test_a_started_agent_gets_the_configured_options_and_no_others() -> None:
    assert agent_arguments(Aliquot()) == ["--driver", "auto"]
    knobs = Aliquot(
        driver="softgpu", softgpu_devices=2, softgpu_memory="1GiB", softgpu_sm_count=4, softgpu_link_gbps=2.5
    )
    want = (
        "--driver softgpu --softgpu-devices 2 --softgpu-memory 1073741824 --softgpu-sm-count 4 --softgpu-link-gbps 2.5"
    )
    assert agent_arguments(knobs) == want.split()


def test_gateway_mode_is_said() -> None:
    assert gateway_mode("") == ()
    assert "http://gateway:1" in gateway_mode("http://gateway:1")[0]


class TestInGatewayMode:
    @pytest.fixture
    def jp_server_config(self, jp_server_config: Config) -> Iterator[Config]:
        jp_server_config.GatewayClient.url = "http://127.0.0.1:9"
        jp_server_config.Aliquot.start_agent = True
        # Jupyter keeps one client for the whole process, and other tests' servers are not in
        # gateway mode.
        GatewayClient.clear_instance()
        yield jp_server_config
        GatewayClient.clear_instance()

    async def test_no_agent_is_started_here_and_the_status_says_where_kernels_are(
        self, as_me: Any, runtime_dir: Path
    ) -> None:
        answer = await as_me("GET", "aliquot/api/v1/status")
        assert answer.status == 503
        assert answer.json["message"].startswith("the gateway at http://127.0.0.1:9 does not answer")
        assert os.listdir(runtime_dir) == []
