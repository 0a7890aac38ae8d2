"""The two files of the page on The Littlest JupyterHub, read as its Hub and the gateway read them."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from guide_blocks import blocks_of

pytest.importorskip("jupyterhub", reason="jupyterhub is not installed")

from traitlets.config.loader import PyFileConfigLoader

from jupyter_aliquot.gateway.config import Aliquot
from jupyter_aliquot.gateway.kernels.account_users import AccountUsers
from jupyter_aliquot.gateway.kernels.owner_accounts import OwnerAccounts
from jupyter_aliquot.provisioner.errors import AccountError
from jupyter_aliquot.provisioner.kernel_accounts import check_kernel_account

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "the-littlest-jupyterhub.md"
# The shape of its own configuration: a spawner that is made of SystemdSpawner, the culler, and files of a folder.
OF_THE_HUB = """
class SystemdSpawner: pass
class UserCreatingSpawner(SystemdSpawner): pass
c = get_config()
c.JupyterHub.spawner_class = UserCreatingSpawner
c.JupyterHub.hub_port = 15001
c.JupyterHub.services.append({"name": "cull-idle", "command": ["cull"]})
c.JupyterHub.load_roles = [{"name": "cull-idle", "scopes": ["list:users"], "services": ["cull-idle"]}]
c.Spawner.environment = {"LAB": "yes"}
load_subconfig("jupyterhub_config.d/aliquot.py")
"""
LONG = "ada.lovelace.of.the.analytical.engine"
SHORTENED = "jupyter-ada.lovelace.of.th-a3d86"


def read(path: Path) -> Any:
    return PyFileConfigLoader(path.name, str(path.parent)).load_config()


@pytest.fixture
def gateways_file(tmp_path: Path) -> Aliquot:
    path = tmp_path / "tljh.py"
    path.write_text(blocks_of(GUIDE)[0])
    return Aliquot(config=read(path))


@pytest.fixture
def its_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"jupyter-ada": 3001, SHORTENED: 3002}
    entries = {name: pwd.struct_passwd((name, "x", uid, uid, "", "/", "/bin/bash")) for name, uid in names.items()}
    by_uid = {entry.pw_uid: entry for entry in entries.values()}
    monkeypatch.setattr(pwd, "getpwnam", entries.__getitem__)
    monkeypatch.setattr(pwd, "getpwuid", by_uid.__getitem__)


def test_its_hub_starts_the_gateway_alone_and_keeps_what_its_own_configuration_has(
    accounts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (tmp_path / "jupyterhub_config.d").mkdir()
    (tmp_path / "jupyterhub_config.d" / "aliquot.py").write_text(blocks_of(GUIDE)[1])
    (tmp_path / "jupyterhub_config.py").write_text(OF_THE_HUB)
    c = read(tmp_path / "jupyterhub_config.py")
    services = {entry["name"]: entry for entry in c.JupyterHub.services.get_value([])}
    assert list(services) == ["cull-idle", "aliquot"]
    gateway = services["aliquot"]
    assert {"--Aliquot.run_kernels_as=owner", "--config=/etc/aliquot/tljh.py"} <= set(gateway["command"])
    assert gateway["environment"]["JUPYTER_PATH"] == "/opt/tljh/aliquot/share/jupyter"
    assert not [word for word in gateway["command"] if "account_of" in word], "the gateway's own file has it"
    assert {"LAB", "JUPYTER_GATEWAY_URL"} <= set(c.Spawner.environment)
    assert {"cull-idle", "user"} <= {role["name"] for role in c.JupyterHub.load_roles}


def test_a_users_account_is_the_one_that_it_makes(gateways_file: Aliquot, its_accounts: None) -> None:
    accounts = OwnerAccounts(gateways_file.account_of)
    assert [accounts.of(user).uid for user in ("ada", LONG)] == [3001, 3002]
    with pytest.raises(AccountError, match="no such account"):
        accounts.of("never.logged.in")


def test_an_accounts_user_is_the_one_of_the_hub(
    gateways_file: Aliquot, its_accounts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jupyter_aliquot.gateway.kernels.account_users.check_kernel_account", lambda *_: None)
    users = AccountUsers(gateways_file.account_of, gateways_file.user_of, Path("/none"))
    assert users.of(3001) == "ada"
    with pytest.raises(AccountError, match="Requested"):
        users.of(3002)


def test_kernels_are_not_run_as_its_administrators(
    gateways_file: Aliquot, its_accounts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = frozenset({"jupyterhub-users", "jupyterhub-admins"})
    monkeypatch.setattr("jupyter_aliquot.provisioner.kernel_accounts.account_groups", lambda account: groups)
    account = OwnerAccounts(gateways_file.account_of).of("ada")
    with pytest.raises(AccountError, match="'jupyterhub-admins', whose members can become root"):
        check_kernel_account(account)
