"""configure() adds to a Hub's configuration, removes nothing, and refuses conflicts."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("jupyterhub", reason="jupyterhub is not installed")
from guide_blocks import HUB_GUIDE, blocks_of
from jupyterhub import orm, roles
from traitlets.config import Config

from jupyter_aliquot.gateway.hub import HubConfigError, HubSettings, configure
from jupyter_aliquot.gateway.hub.scopes import ADMIN_SCOPE

KUBE = {"url": "http://aliquot-gateway:8890", "api_token": "a long random text"}
ACCESS = "access:services!service=aliquot"


def a_spawner(base_url: str = "/hub/", **more: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"hub": SimpleNamespace(base_url=base_url), "api_token": "a-token-of-the-server", **more})


def role(c: Config, name: str) -> dict[str, Any]:
    (found,) = [role for role in c.JupyterHub.load_roles if role["name"] == name]
    return found


def service(c: Config) -> dict[str, Any]:
    (found,) = [service for service in c.JupyterHub.services if service["name"] == "aliquot"]
    return found


def test_one_line_adds_the_service_its_scopes_and_what_a_server_needs() -> None:
    c = Config()
    c.Authenticator.admin_users = {"ada"}
    configure(c)
    assert service(c)["command"][1:5] == ["-m", "jupyter_aliquot.gateway.cli.app", "serve", "--hub"]
    assert role(c, "user") == {"name": "user", "scopes": ["self", ACCESS]}
    assert role(c, "aliquot-admin") == {"name": "aliquot-admin", "scopes": [ADMIN_SCOPE], "users": ["ada"]}
    assert ADMIN_SCOPE in c.JupyterHub.custom_scopes
    assert c.Spawner.server_token_scopes == ["users:activity!user", "access:servers!server", ACCESS, ADMIN_SCOPE]
    environment = c.Spawner.environment
    assert environment["JUPYTER_GATEWAY_URL"](a_spawner()) == "http://127.0.0.1:8890/services/aliquot"
    assert environment["JUPYTER_GATEWAY_URL"](a_spawner("/at/hub/")) == "http://127.0.0.1:8890/at/services/aliquot"
    assert environment["ALIQUOT_GATEWAY_ACCOUNT"] == str(os.geteuid())
    assert c.Spawner.args == ["--Aliquot.keep_kernels=always"]


@pytest.fixture
def a_stored_spawner() -> Iterator[Any]:
    """A spawner of alice's with the Hub's own database, where the Hub has just made its server's token."""
    engine = orm.new_session_factory("sqlite://")
    db = engine()
    roles.create_role(db, {"name": "user", "scopes": ["self", ACCESS]})
    roles.create_role(db, {"name": "token", "scopes": ["inherit"]})
    alice = orm.User(name="alice")
    db.add(alice)
    db.add(orm.OAuthClient(identifier="jupyterhub"))
    db.commit()
    roles.grant_role(db, alice, "user")
    made = alice.new_api_token(scopes=["users:activity!user", "access:servers!user", ACCESS])
    yield a_spawner(user=alice, db=db, name="", api_token=made)
    db.close()


def test_the_token_for_the_gateway_opens_the_gateway_alone(a_stored_spawner: Any) -> None:
    spawner, c = a_stored_spawner, Config()
    configure(c)
    make = c.Spawner.environment["JUPYTER_GATEWAY_AUTH_TOKEN"]
    token = make(spawner)
    assert make(spawner) == token, "a spawner may ask for its environment again"
    stored = orm.APIToken.find(spawner.db, token)
    assert (stored.user.name, stored.scopes, stored.client_id) == ("alice", [ACCESS], "jupyterhub")
    spawner.api_token = spawner.user.new_api_token(scopes=[ACCESS])
    assert make(spawner) != token
    assert orm.APIToken.find(spawner.db, token) is None, "one token a server"


def test_the_token_for_the_gateway_goes_when_the_server_stops_for_good(a_stored_spawner: Any) -> None:
    spawner, c, stopped = a_stored_spawner, Config(), []
    c.Spawner.post_stop_hook = stopped.append
    configure(c)
    token = c.Spawner.environment["JUPYTER_GATEWAY_AUTH_TOKEN"](spawner)
    for will_resume, is_there in ((True, True), (False, False)):
        spawner.will_resume = will_resume
        c.Spawner.post_stop_hook(spawner)
        assert (orm.APIToken.find(spawner.db, token) is not None) == is_there
    assert stopped == [spawner, spawner], "the administrator's own hook goes on"


def test_caps_are_written_once_and_handed_to_the_gateway() -> None:
    c = Config()
    limits = {"alice": 1.0, "ada": None}
    configure(c, user_limit_gpus=0.5, user_limits=limits, team_limits={"vision": 2}, gateway_options=["--x=1"])
    command = service(c)["command"]
    assert {"--Aliquot.user_limit_gpus=0.5", "--Aliquot.user_limits={'alice': 1.0, 'ada': None}"} <= set(command)
    assert "--Aliquot.gateway_name=aliquot" in command, "whichever folder the Hub is started in"
    assert f"--end-with-parent={os.getpid()}" in command, "the Hub reads its configuration itself"
    assert "--Aliquot.keep_kernels=always" in command, "a Hub that restarts ends nobody's kernels"
    assert {"--Aliquot.team_limits={'vision': 2}", "--Aliquot.largest_gpus=8", "--x=1"} <= set(command)
    assert [word for word in command if "presets" in word] == [
        f"--Aliquot.presets={size}" for size in ("0.25", "0.5", "1", "0.25-low")
    ]


def test_the_administrators_own_option_for_the_gateway_counts() -> None:
    c = Config()
    configure(c, gateway_options=["--Aliquot.keep_kernels=never", "--Aliquot.presets=2"])
    command = service(c)["command"]
    assert [word for word in command if "keep_kernels" in word] == ["--Aliquot.keep_kernels=never"]
    assert [word for word in command if "presets" in word] == ["--Aliquot.presets=2"]


def test_a_gateway_that_the_administrator_starts_is_given_its_token_and_no_command() -> None:
    c = Config()
    wanted = configure(c, api_token="a-long-random-text", url="http://10.0.0.7:8890")
    assert service(c) == {
        "name": "aliquot",
        "url": "http://10.0.0.7:8890",
        "display": False,
        "api_token": "a-long-random-text",
        "oauth_client_allowed_scopes": [ADMIN_SCOPE],
    }
    assert "--hub" in wanted.command()


def test_a_hub_that_runs_as_root_starts_no_gateway_as_root(accounts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for wrong in ({}, {"gateway_user": "root"}):
        with pytest.raises(HubConfigError, match="gateway_user='aliquot'"):
            configure(Config(), **wrong)
    c = Config()
    configure(c, gateway_user="aliquot")
    assert (service(c)["user"], service(c)["cwd"]) == ("aliquot", str(accounts)), "kernels begin in its home"
    assert c.Spawner.environment["ALIQUOT_GATEWAY_ACCOUNT"] == str(accounts.stat().st_uid)
    configure(Config(), gateway_options=["--allow-root"])
    configure(Config(), api_token="the administrator starts it")


@pytest.mark.usefixtures("accounts")
def test_the_gateways_account_has_to_exist_and_to_have_a_home() -> None:
    with pytest.raises(HubConfigError, match=r"no such account. Make it \(useradd --system --create-home no-such\)"):
        configure(Config(), gateway_user="no-such")
    with pytest.raises(HubConfigError, match="its home /nowhere is not a folder of this account"):
        configure(Config(), gateway_user="homeless")


def test_a_limit_for_a_name_that_the_hub_writes_otherwise_is_told() -> None:
    with pytest.warns(UserWarning, match="JupyterHub writes names in lower case"):
        configure(Config(), user_limits={"Ada": 1})


@pytest.mark.parametrize("block", blocks_of(HUB_GUIDE), ids=lambda block: block.splitlines()[-1][:40])
def test_each_block_of_the_guide_can_be_pasted(block: str, accounts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, name in enumerate(("ALIQUOT_API_TOKEN", "GPU_1_TOKEN", "GPU_2_TOKEN")):
        monkeypatch.setenv(name, f"token {number} of the administrator's")
    if "run_kernels_as" in block:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
    c = Config()
    exec(block, {"c": c, "configure": configure})
    names = {one["name"] for one in c.JupyterHub.services}
    assert names >= ({"gpu-1", "gpu-2"} if "gateways=" in block else {"aliquot"})
    assert "JUPYTER_GATEWAY_URL" in c.Spawner.environment


def test_every_argument_is_in_the_how_to() -> None:
    text = HUB_GUIDE.read_text()
    assert not [field.name for field in dataclasses.fields(HubSettings) if f"`{field.name}`" not in text]


def test_what_an_administrator_has_set_stays() -> None:
    c = Config()
    c.JupyterHub.services = [{"name": "culler", "command": ["cull"]}]
    c.JupyterHub.load_roles = [{"name": "user", "scopes": ["self", "shares!user"]}, {"name": "culler", "scopes": []}]
    c.JupyterHub.custom_scopes = {"custom:mine:all": {"description": "of another"}}
    c.Spawner.environment = {"LANG": "de_DE.UTF-8"}
    c.Spawner.args = ["--ServerApp.max_body_size=1"]
    c.Spawner.server_token_scopes = ["users:activity!user"]
    configure(c)
    assert [one["name"] for one in c.JupyterHub.services] == ["culler", "aliquot"]
    assert role(c, "user")["scopes"] == ["self", "shares!user", ACCESS]
    assert role(c, "culler") == {"name": "culler", "scopes": []}
    assert set(c.JupyterHub.custom_scopes) == {"custom:mine:all", ADMIN_SCOPE}
    assert c.Spawner.environment["LANG"] == "de_DE.UTF-8"
    assert c.Spawner.args == ["--ServerApp.max_body_size=1", "--Aliquot.keep_kernels=always"]
    assert c.Spawner.server_token_scopes == ["users:activity!user", ACCESS, ADMIN_SCOPE]


def test_what_was_appended_and_not_assigned_stays_too() -> None:
    c = Config()
    c.JupyterHub.services.append({"name": "culler"})
    c.JupyterHub.load_roles.append({"name": "culler", "scopes": ["read:users"]})
    c.Spawner.environment.update({"LANG": "C.UTF-8"})
    c.Authenticator.admin_users.add("ada")
    c.Spawner.server_token_scopes.append("shares!user")
    configure(c)
    assert c.Spawner.server_token_scopes == ["shares!user", ACCESS, ADMIN_SCOPE]
    assert [one["name"] for one in c.JupyterHub.services.get_value([])] == ["culler", "aliquot"]
    assert role(c, "culler")["scopes"] == ["read:users"]
    assert role(c, "aliquot-admin")["users"] == ["ada"]
    assert set(c.Spawner.environment.get_value({})) > {"LANG", "JUPYTER_GATEWAY_URL"}


def test_scopes_for_all_users_that_stand_beside_the_roles_are_added_to() -> None:
    c = Config()
    c.JupyterHub.extra_user_scopes = ["shares!user"]
    configure(c)
    assert c.JupyterHub.extra_user_scopes == ["shares!user", ACCESS]
    assert "user" not in [one["name"] for one in c.JupyterHub.load_roles]


def test_a_section_of_the_spawners_own_class_is_added_to_as_well() -> None:
    c = Config()
    c.DockerSpawner.environment = {"LANG": "C.UTF-8"}
    c.DockerSpawner.args = ["--debug"]
    configure(c, sizes=())
    assert "JUPYTER_GATEWAY_URL" in c.DockerSpawner.environment
    assert "JUPYTER_GATEWAY_URL" in c.Spawner.environment
    assert c.DockerSpawner.args == ["--debug", "--Aliquot.keep_kernels=always"]


def test_a_function_for_the_scopes_of_a_servers_token_is_asked_first() -> None:
    async def scopes(spawner: Any) -> list[str]:
        return ["users:activity!user", "shares!user"]

    c = Config()
    c.Spawner.server_token_scopes = scopes
    configure(c)
    want = ["users:activity!user", "shares!user", ACCESS, ADMIN_SCOPE]
    assert asyncio.run(c.Spawner.server_token_scopes(a_spawner())) == want


@pytest.mark.parametrize(
    ("before", "arguments", "message"),
    [
        ("c.JupyterHub.services = [{'name': 'aliquot'}]", {}, "has a service 'aliquot' already"),
        ("c.Spawner.environment = {'JUPYTER_GATEWAY_URL': 'http://x'}", {}, "'JUPYTER_GATEWAY_URL' already"),
        ("c.Spawner.environment = {'KERNEL_GPU': '1'}", {}, "which the spawn page chooses"),
        ("c.Spawner.args = 'x'", {}, "cannot be extended. Use a list"),
        ("c.JupyterHub.spawner_class = 'docker'", {}, "is the container itself"),
        ("c.JupyterHub.spawner_class = 'docker'", {"url": "http://0.0.0.0:8890"}, "not to connect to"),
        ("", {"sizes": ["0.25", "nine"]}, "'nine' is no number of GPUs"),
        ("", {"sizes": ["16"]}, "more than the 8 GPUs"),
        ("", {"sizes": "0.25"}, "Use a list of strings"),
        ("", {"sizes": [0.25]}, "Use a list of strings"),
        ("", {"default_size": "0.3"}, "is not one of none, 0.25"),
        ("", {"api_token": None}, "type NoneType is not valid. Use a string"),
        ("", {"api_token": "a long random text", "gateway_user": "aliquot"}, "that you start yourself"),
        ("", {"api_token": "short"}, "no token of fewer than 8 characters"),
        ("", {"gateway_environment": {"A": 1}}, "strings as values"),
        ("", {"user_limits": ["alice"]}, "Use a table by name"),
        ("", {"user_limit": 1}, "no such argument. Use one of sizes, .* user_limit_gpus"),
        ("c.Spawner.environment = 'x'", {}, "type str is not valid. Use a table"),
        ("", {"user_limits": {"alice": "1"}}, r"user_limits\['alice'\].*Use a number of GPUs"),
        ("", {"team_limits": {"vision": 0.123}}, "in steps of 0.01"),
        ("", {"url": "127.0.0.1:8890"}, "Use an address such as"),
        ("", {"url": "http://127.0.0.1"}, "has no port"),
        ("", {"url": "http://127.0.0.1:88900"}, "Use an address such as"),
        ("", {"url": "http://127.0.0.1:8890/services/aliquot"}, "Use an address such as"),
        ("", {"keep_kernels": "sometimes"}, "Use one of always, auto, never"),
        (
            "c.JupyterHub.spawner_class = 'kubespawner.KubeSpawner'",
            KUBE | {"keep_kernels": "never"},
            "c.KubeSpawner.cmd =",
        ),
        (
            "c.JupyterHub.internal_ssl = True",
            {"url": "https://127.0.0.1:8890"},
            "an http:// address that does not leave",
        ),
        ("", {"minutes_without_server": -1}, "0 or more"),
        ("", {"name": "a/b"}, "lower-case letters"),
    ],
)
def test_what_cannot_be_is_told_when_the_hub_starts(before: str, arguments: dict[str, Any], message: str) -> None:
    c = Config()
    exec(before, {"c": c})
    with pytest.raises(HubConfigError, match=message):
        configure(c, **arguments)


def test_a_hub_ends_with_that_one_sentence_and_no_traceback(tmp_path: Path) -> None:
    config = tmp_path / "jupyterhub_config.py"
    config.write_text("from jupyter_aliquot.gateway.hub import configure\nconfigure(c, user_limit_gpus=-1)\n")
    command = [sys.executable, "-m", "jupyterhub", "--config", str(config)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "user_limit_gpus" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_kernels_without_a_server_are_ended_by_a_gateway_that_may_ask_who_has_one() -> None:
    c = Config()
    configure(c, minutes_without_server=90)
    assert "--Culling.server_gone_seconds=5400" in service(c)["command"]
    want = {
        "name": "aliquot-gateway",
        "scopes": ["list:users", "read:servers", "list:services"],
        "services": ["aliquot"],
    }
    assert role(c, "aliquot-gateway") == want
    assert role(c, "aliquot-users") == {"name": "aliquot-users", "scopes": ["list:users"], "services": ["aliquot"]}
    without = Config()
    configure(without)
    names = [one["name"] for one in without.JupyterHub.load_roles]
    assert ("aliquot-gateway" in names, "aliquot-users" in names) == (False, True)


def test_without_sizes_the_spawn_page_stays_as_it_is() -> None:
    c = Config()
    configure(c, sizes=())
    assert "options_form" not in c.Spawner
    assert "options_from_form" not in c.Spawner
    assert not any("presets" in word for word in service(c)["command"])


def test_the_hubs_process_is_given_no_jupyter_server() -> None:
    """The import would cost the Hub its memory, and its event loop the time."""
    code = "import sys, jupyter_aliquot.gateway.hub; print(sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "aliquot" in loaded
    assert not [name for name in ("jupyter_server", "jupyter_client", "zmq", "docker") if f"'{name}'" in loaded]
