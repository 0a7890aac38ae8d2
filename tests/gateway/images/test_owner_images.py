"""Images whose kernels run as their owner's account: the plan of the container."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.containers import planner
from jupyter_aliquot.gateway.containers.images import ImageCatalogue
from jupyter_aliquot.gateway.containers.planner import ContainerPlanner, ContainerStart
from jupyter_aliquot.gateway.folders import account_home
from jupyter_aliquot.gateway.folders.registry import Folders
from jupyter_aliquot.gateway.folders.shared_folder import SharedFolders
from jupyter_aliquot.provisioner.accounts import Account, find_account
from jupyter_aliquot.provisioner.containers.limits import LimitRules, NodeTotals
from jupyter_aliquot.provisioner.containers.plan import ContainerPlan
from jupyter_aliquot.provisioner.errors import AccountError
from jupyter_aliquot.provisioner.resources import Bytes

OWNERS: dict[str, Any] = {"name": "own", "image": "registry.example/ml/own:1", "user": "owner"}
COMMON: dict[str, Any] = {"name": "common", "image": "registry.example/ml/own:1", "user": "1000:1000"}
# The account's number is the one that runs the tests: it may enter its home.
UID = os.geteuid()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # A container has /tmp as its own, and the tests' folder lies there.
    monkeypatch.setattr(account_home, "check_target", lambda target, private: None)
    home = Path(os.path.realpath(tmp_path)) / "ada"
    (home / "project").mkdir(parents=True)
    return home


@pytest.fixture
def plan(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ContainerPlan | None]:
    monkeypatch.setattr(planner.os, "getgrouplist", lambda name, gid: [3901, gid, 3900])

    def account(owner: str) -> Account:
        return Account("ada", UID, os.getegid(), f"{home}/", "/bin/sh") if owner == "ada" else find_account(owner)

    def make(name: str, owner: str = "ada", **start: Any) -> ContainerPlan | None:
        knobs = {"roots": [str(home.parent)], "home": f"{home.parent}/{{user}}", "home_target": "/home/user"}
        settings = SharedFolders(config=Config({"SharedFolders": knobs})).read(())
        folders = Folders(settings, (), None, logging.getLogger(__name__))
        catalogue = ImageCatalogue(config=Config({"ImageCatalogue": {"images": [OWNERS, COMMON]}}))
        totals = NodeTotals(Bytes(1 << 34), 4, 1)
        made = ContainerPlanner(catalogue, LimitRules(), lambda: totals, folders, lambda n: User(n, "user"), account)
        made.check_owner(name, owner)
        return asyncio.run(made.plan(ContainerStart(name, owner, **start)))

    return make


def test_a_kernel_has_its_owners_numbers_groups_home_and_name(
    home: Path, plan: Callable[..., ContainerPlan | None]
) -> None:
    made = plan("own", folder=f"{home}/project", session=f"{home}/project/n.ipynb", env=(("USER", "root"),))
    assert made is not None
    assert (made.user, made.userns) == (f"{UID}:{os.getegid()}", "host")
    assert set(made.groups) == {3900, 3901} - {os.getegid()}
    assert [(one.source, one.target, one.read_only) for one in made.mounts] == [(str(home), str(home), False)]
    assert (made.home, made.workdir) == (str(home), f"{home}/project")
    env = dict(made.env)
    assert (env["USER"], env["LOGNAME"], env["JPY_SESSION_NAME"]) == ("ada", "ada", f"{home}/project/n.ipynb")


def test_an_image_with_numbers_of_its_own_has_the_common_home(plan: Callable[..., ContainerPlan | None]) -> None:
    made = plan("common")
    assert made is not None
    assert (made.user, made.userns, made.groups, made.home) == ("1000:1000", "", (), "/home/user")
    assert "USER" not in dict(made.env)


@pytest.mark.parametrize("is_asked_first", [True, False])
def test_an_account_that_roots_list_leaves_out_is_refused_at_the_request_and_at_each_start(
    is_asked_first: bool, plan: Callable[..., ContainerPlan | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner.os, "geteuid", lambda: UID + 1)
    listed = {"bob"}

    def check(account: Account) -> None:
        if account.name not in listed:
            raise AccountError(f"the list has no {account.name}")

    monkeypatch.setattr(planner, "check_kernel_account", check)
    if not is_asked_first:
        monkeypatch.setattr(ContainerPlanner, "check_owner", lambda *_: None)
    with pytest.raises(AccountError, match="the list has no ada"):
        plan("own")
    plan("common")
    listed.add("ada")
    assert plan("own") is not None


@pytest.mark.parametrize("owner", ["no-such-account", "root", "service/nightly", ""])
def test_an_owner_without_an_account_is_refused_before_the_queue(
    plan: Callable[..., ContainerPlan | None], owner: str
) -> None:
    with pytest.raises(AccountError, match="Requested to run a kernel as"):
        plan("own", owner=owner)
