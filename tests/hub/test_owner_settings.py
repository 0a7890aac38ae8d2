"""`configure(run_kernels_as="owner")`: what it adds, and what it refuses in one sentence."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tornado.web import HTTPError
from traitlets.config import Config

pytest.importorskip("jupyterhub", reason="jupyterhub is not installed")

from jupyter_aliquot.gateway.hub import HubConfigError, HubSettings, accounts as kernel_owners, configure

OWNER = {"gateway_user": "aliquot", "run_kernels_as": "owner"}


@pytest.fixture
def root(accounts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.mark.usefixtures("root")
def test_the_relay_host_of_root_is_a_service_before_the_gateway() -> None:
    c = Config()
    configure(c, **OWNER, account_of={"ada@example.org": "ada"})
    relay, gateway = c.JupyterHub.services
    assert relay["name"] == "aliquot-relay"
    assert "user" not in relay, "it runs as the Hub, which is root"
    assert relay["command"][:3] == [sys.executable, "-m", "jupyter_aliquot.provisioner.relay"]
    assert relay["command"][3:] == [
        "--account=aliquot",
        "--runtime-dir=/run/aliquot",
        f"--end-with-parent={os.getpid()}",
    ]
    assert gateway["user"] == "aliquot"
    assert {
        "--Aliquot.run_kernels_as=owner",
        "--Aliquot.runtime_dir=/run/aliquot",
        "--Aliquot.account_of={'ada@example.org': 'ada'}",
    } <= set(gateway["command"])


@pytest.mark.usefixtures("root")
def test_a_relay_host_that_is_a_service_of_its_own_is_not_started_by_the_hub() -> None:
    c = Config()
    configure(c, **OWNER, start_relay_host=False)
    (gateway,) = c.JupyterHub.services
    assert "--Aliquot.run_kernels_as=owner" in gateway["command"]


@pytest.mark.usefixtures("root")
def test_gateway_and_relay_host_have_the_folders_that_the_environment_names() -> None:
    c = Config()
    folders = {"ALIQUOT_RUNTIME_DIR": "/run/gpu", "ALIQUOT_SPILL_DIR": "/srv/output"}
    configure(c, **OWNER, gateway_environment={**folders, "SECRET": "of the gateway"})
    relay, gateway = c.JupyterHub.services
    assert "--runtime-dir=/run/gpu" in relay["command"]
    assert relay["environment"] == folders
    assert "--Aliquot.runtime_dir=/run/gpu" in gateway["command"]


@pytest.mark.usefixtures("root")
def test_the_gateways_account_can_be_chosen_and_then_no_service_runs_as_root() -> None:
    c = Config()
    configure(c, gateway_user="aliquot", run_kernels_as="gateway")
    assert [service["user"] for service in c.JupyterHub.services] == ["aliquot"]


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    "spawner", ["jupyterhub.spawner.LocalProcessSpawner", "localprocess", "systemdspawner.SystemdSpawner", "systemd"]
)
def test_spawners_that_change_accounts_are_taken(spawner: str) -> None:
    c = Config()
    c.JupyterHub.spawner_class = spawner
    configure(c, **OWNER)
    assert len(c.JupyterHub.services) == 2


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("knob", "value"), [("dynamic_users", True), ("username_template", "jupyter-{USERNAME}"), ("dynamic_users", False)]
)
def test_accounts_that_systemdspawner_makes_up_are_no_owners(knob: str, value: Any) -> None:
    c = Config()
    c.JupyterHub.spawner_class = "systemd"
    c.SystemdSpawner[knob] = value
    wanted = configure(c, gateway_user="aliquot", url="http://10.0.0.7:8890")
    assert wanted.run_kernels_as == ("owner" if value is False else "gateway")


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("spawner", ["simple", "jupyterhub.spawner.SimpleLocalProcessSpawner", "mine.OwnSpawner"])
def test_a_spawner_that_changes_no_account_is_refused(spawner: str) -> None:
    c = Config()
    c.JupyterHub.spawner_class = spawner
    with pytest.raises(HubConfigError, match="without changing the account"):
        configure(c, **OWNER)


@pytest.mark.usefixtures("root")
def test_a_class_is_judged_by_what_it_is_made_of() -> None:
    from jupyterhub.spawner import LocalProcessSpawner, SimpleLocalProcessSpawner

    class Ours(LocalProcessSpawner):  # type: ignore[misc]  # JupyterHub carries no types
        """A spawner of the administrator's."""

    c = Config()
    c.JupyterHub.spawner_class = Ours
    configure(c, **OWNER)
    c = Config()
    c.JupyterHub.spawner_class = SimpleLocalProcessSpawner
    with pytest.raises(HubConfigError, match="without changing the account"):
        configure(c, **OWNER)


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"run_kernels_as": "user"}, "Use 'gateway' or 'owner'"),
        ({"run_kernels_as": "owner"}, "an account of its own"),
        ({"run_kernels_as": "owner", "api_token": "the administrator starts it"}, "aliquot relay --account=… as root"),
        ({**OWNER, "account_of": {"ada@example.org": "root"}}, "number 0"),
        ({**OWNER, "account_of": {"ada@example.org": "aliquot"}}, "number"),
        ({**OWNER, "account_of": {"ada": 7}}, "a table of accounts"),
        ({**OWNER, "account_of": lambda user: user}, "a function has to run in the gateway"),
        ({**OWNER, "run_kernels_as": "gateway", "account_of": {"a": "ada"}}, "is for run_kernels_as='owner'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(HubConfigError, match=words):
        configure(Config(), **settings)


def test_a_hub_that_is_not_root_is_refused(accounts: Path) -> None:
    with pytest.raises(HubConfigError, match="only root can start kernels as their owners, and this Hub runs as 1000"):
        configure(Config(), **OWNER)


def own_spawner_module(folder: Path, base: str) -> str:
    """Return the text of a spawner class of the administrator's, in a module of its own."""
    (folder / f"spawner_of_{base.lower()}.py").write_text(
        f"from jupyterhub.spawner import {base}\n\nclass Ours({base}):\n    pass\n"
    )
    return f"spawner_of_{base.lower()}.Ours"


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("spawner", ["", "localprocess", "systemdspawner.SystemdSpawner", "sudospawner.SudoSpawner"])
def test_kernels_are_their_owners_by_default_where_root_changes_accounts(spawner: str) -> None:
    c = Config()
    if spawner:
        c.JupyterHub.spawner_class = spawner
    wanted = configure(c, gateway_user="aliquot", account_of={"ada@example.org": "ada"})
    assert wanted.run_kernels_as == "owner"
    assert [service["name"] for service in c.JupyterHub.services] == ["aliquot-relay", "aliquot"]
    assert "--Aliquot.run_kernels_as=owner" in c.JupyterHub.services[1]["command"]


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("spawner", ["simple", "docker", "wrapspawner.ProfilesSpawner", "no.such.Spawner"])
def test_a_spawner_that_changes_no_account_leaves_kernels_the_gateways(spawner: str) -> None:
    c = Config()
    c.JupyterHub.spawner_class = spawner
    wanted = configure(c, gateway_user="aliquot", url="http://10.0.0.7:8890")
    assert wanted.run_kernels_as == "gateway"
    assert [service["name"] for service in c.JupyterHub.services] == ["aliquot"]


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(("base", "want"), [("LocalProcessSpawner", "owner"), ("SimpleLocalProcessSpawner", "gateway")])
def test_a_spawner_that_a_text_names_is_judged_by_its_class(
    base: str, want: str, accounts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(accounts)
    c = Config()
    c.JupyterHub.spawner_class = own_spawner_module(accounts, base)
    assert configure(c, gateway_user="aliquot").run_kernels_as == want


@pytest.mark.parametrize(
    ("user_id", "settings"),
    [
        (1000, {"gateway_user": "aliquot"}),
        (0, {"api_token": "the administrator starts it"}),
        (0, {"gateway_options": ["--allow-root"]}),
        (0, {"gateway_user": "aliquot", "gateway_options": ["--Aliquot.run_kernels_as=gateway"]}),
    ],
)
def test_without_root_or_an_account_of_the_gateways_nothing_changes(
    user_id: int, settings: dict[str, Any], accounts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user_id)
    c = Config()
    assert configure(c, **settings).run_kernels_as == "gateway"
    assert [service["name"] for service in c.JupyterHub.services] == ["aliquot"]


@pytest.mark.usefixtures("root")
def test_the_accounts_of_a_table_are_refused_beside_kernels_of_the_gateway() -> None:
    c = Config()
    c.JupyterHub.spawner_class = "simple"
    with pytest.raises(HubConfigError, match="is for run_kernels_as='owner'"):
        configure(c, gateway_user="aliquot", account_of={"a": "ada"})


@pytest.mark.usefixtures("root")
def test_the_log_says_what_is_missing_with_the_command_for_it(
    accounts: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listed = accounts / "kernel-accounts"
    listed.write_text("ada\n")
    listed.chmod(0o666)
    monkeypatch.setattr(kernel_owners, "ACCOUNT_LIST", listed)
    monkeypatch.setattr(kernel_owners, "_PATIENCE_SECONDS", 0.0)
    with caplog.at_level(logging.INFO):
        say(accounts, is_default=True, start_relay_host=False)
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told[0][0] == "INFO"
    assert "as their owners' accounts, as LocalProcessSpawner starts the servers" in told[0][1]
    assert [level for level, _ in told[1:]] == ["WARNING", "WARNING"]
    assert "counts only where root alone can change it" in told[1][1]
    assert f"sudo chown root: {accounts} {listed}" in told[1][1]
    assert f"no relay host listens at {accounts}/relay.sock" in told[2][1]
    assert "sudo systemctl restart aliquot-relay" in told[2][1]


@pytest.mark.usefixtures("root")
def test_the_log_says_how_to_narrow_the_accounts_where_there_is_no_list(
    accounts: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kernel_owners, "ACCOUNT_LIST", Path("/etc/no-such-folder/kernel-accounts"))
    with caplog.at_level(logging.INFO):
        say(accounts, is_default=False)
    (told,) = [record.getMessage() for record in caplog.records]
    assert "echo @students | sudo install -D -m 644 /dev/stdin /etc/no-such-folder/kernel-accounts" in told


def say(folder: Path, *, is_default: bool, start_relay_host: bool = True) -> None:
    settings = HubSettings(
        **OWNER, start_relay_host=start_relay_host, gateway_environment={"ALIQUOT_RUNTIME_DIR": str(folder)}
    )
    kernel_owners.say_accounts(settings, 0, "", is_default=is_default, log=logging.getLogger("hub"))


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("before", "after", "settings", "words"),
    [
        ("", "simple", {}, "chooses SimpleLocalProcessSpawner after Aliquot's configure()"),
        ("", "simple", {"run_kernels_as": "owner"}, "starts servers without changing the account"),
        ("simple", "localprocess", {}, "starts servers as their users' accounts"),
        ("", "localprocess", {}, ""),
        ("simple", "simple", {}, ""),
        ("", "simple", {"run_kernels_as": "gateway"}, ""),
    ],
)
def test_a_spawner_that_is_chosen_after_configure_starts_no_server_where_kernels_accounts_would_be_others(
    before: str, after: str, settings: dict[str, Any], words: str
) -> None:
    from jupyterhub.spawner import LocalProcessSpawner, SimpleLocalProcessSpawner

    c = Config()
    if before:
        c.JupyterHub.spawner_class = before
    configure(c, **{"gateway_user": "aliquot", **settings})
    chosen = {"simple": SimpleLocalProcessSpawner, "localprocess": LocalProcessSpawner}[after]
    spawner = chosen(config=c)
    spawner.user = SimpleNamespace(name="ada", groups=[])
    if not words:
        asyncio.run(spawner._run_apply_user_options({}))
        return
    with pytest.raises(HTTPError) as caught:
        asyncio.run(spawner._run_apply_user_options({}))
    assert words in caught.value.jupyterhub_message
    assert "call configure() last" in caught.value.jupyterhub_message
