"""`configure(run_kernels_as="owner")`: what it adds, and what it refuses in one sentence."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

pytest.importorskip("jupyterhub", reason="jupyterhub is not installed")

from jupyter_aliquot.gateway.hub import HubConfigError, configure

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
def test_without_it_no_service_runs_as_root() -> None:
    c = Config()
    configure(c, gateway_user="aliquot")
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
        ({"gateway_user": "aliquot", "account_of": {"a": "ada"}}, "is for run_kernels_as='owner'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(HubConfigError, match=words):
        configure(Config(), **settings)


def test_a_hub_that_is_not_root_is_refused(accounts: Path) -> None:
    with pytest.raises(HubConfigError, match="only root can start kernels as their owners, and this Hub runs as 1000"):
        configure(Config(), **OWNER)
