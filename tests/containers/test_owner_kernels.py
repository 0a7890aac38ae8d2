"""Kernels in containers that run as their owner's account, on each engine, for two people.

The accounts are those of the gateway's mount namespace alone: the machine keeps its own.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from made_accounts import UIDS, MadeAccounts
from namespaced import can_enter

if TYPE_CHECKING:
    from tests.containers.container_engines import WHOLE_IMAGE, Engine
    from tests.containers.gateway_node import ContainerNode, parts
else:
    from container_engines import WHOLE_IMAGE, Engine
    from gateway_node import ContainerNode, parts

# Gives the gateway the made accounts, then starts it with the words that follow.
PROGRAM = """
import runpy, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from namespaced import enter
enter(Path({files!r}))
sys.argv.insert(1, "serve")
runpy.run_module("jupyter_aliquot.gateway.cli.app", run_name="__main__", alter_sys=True)
"""
CONFIG = """
c.AliquotProvisioner.relay = True
c.ImageCatalogue.images = {images!r}
c.KernelContainers.engine = {engine!r}
c.KernelContainers.cdi_dirs = [{cdi!r}]
c.SharedFolders.roots = [{homes!r}]
c.Aliquot.account_of = {{"ada.lovelace": "ada"}}
c.AliquotIdentityProvider.users = {users!r}
"""
TEAMS = {"ada.lovelace": ["students"], "bob": [], "homeless": [], "door": [], "stranger": []}
TOKENS = {name: f"the token of {name}" for name in TEAMS}


class OwnersNode(ContainerNode):
    """A machine with made accounts, whose homes lie outside /tmp: a container has that as its own."""

    def __init__(self, folder: Path, engine: Engine, place: Path) -> None:
        super().__init__(folder, engine)
        self.accounts = MadeAccounts(place)
        image = {"name": "own", "image": WHOLE_IMAGE, "pull": "never", "user": "owner"}
        images = [image, {**image, "name": "students", "teams": ["students"]}]
        users = {name: {"token": TOKENS[name], "teams": teams} for name, teams in TEAMS.items()}
        self.config.write_text(
            CONFIG.format(
                images=images,
                engine=engine.url,
                cdi=str(engine.cdi_dir),
                homes=str(self.accounts.homes),
                users=users,
            )
        )

    def gateway(self) -> Any:
        tests, files = str(Path(__file__).parents[1]), str(self.accounts.homes.parent / "etc")
        program = PROGRAM.format(tests=tests, files=files)
        gateway = self.serve(f"--config={self.config}", program=program)
        gateway.token = TOKENS["bob"]
        return gateway.wait_until_up()


@pytest.fixture
def a_node_of_accounts(an_engine: Engine) -> Iterator[OwnersNode]:
    if not can_enter():
        pytest.skip("a mount namespace of its own needs root")
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    place = Path(tempfile.mkdtemp(prefix="aq-", dir="/srv"))
    place.chmod(0o711)
    node = OwnersNode(folder, an_engine, place)
    yield node
    node.close()
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(place)


WHO = "import os, getpass; print(os.getuid(), os.getgid(), 3901 in os.getgroups(), getpass.getuser(), os.getcwd())"


def start(gateway: Any, user: str, name: str = "own", folder: str = "") -> str:
    env = {"KERNEL_WORKING_DIR": folder} if folder else {}
    kernel_id: str = gateway.call("POST", "/api/kernels", {"name": name, "env": env}, TOKENS[user])["id"]
    return kernel_id


def tab_of(open_tab: Callable[..., Any], gateway: Any, user: str, kernel_id: str) -> Any:
    gateway.token = TOKENS[user]
    return open_tab(gateway, kernel_id)


def refusal(gateway: Any, user: str, name: str = "own") -> tuple[int, str]:
    with pytest.raises(parts.Refusal) as caught:
        start(gateway, user, name)
    return caught.value.status, json.loads(str(caught.value).partition(": ")[2])["message"]


def test_kernels_are_their_owners_and_neither_reads_the_others_home(
    a_node_of_accounts: OwnersNode, open_tab: Callable[..., Any]
) -> None:
    homes = a_node_of_accounts.accounts.homes
    for name in ("ada", "bob"):
        (homes / name / "data.csv").write_text(f"of {name}")
        (homes / name / "data.csv").chmod(0o644)
    project = a_node_of_accounts.accounts.make_folder(UIDS["ada"], homes / "ada" / "project")
    gateway = a_node_of_accounts.gateway()

    adas = tab_of(open_tab, gateway, "ada.lovelace", start(gateway, "ada.lovelace", "own.gpu-0.25", str(project)))
    assert adas.run(WHO) == f"{UIDS['ada']} {UIDS['ada']} True ada {project}"
    assert adas.run(f"print(open('{homes}/ada/data.csv').read(), os.path.expanduser('~'))") == f"of ada {homes}/ada"
    adas.run("open('made', 'w').write('x')")
    assert (project / "made").stat().st_uid == UIDS["ada"]

    bobs = tab_of(open_tab, gateway, "bob", start(gateway, "bob"))
    assert bobs.run(WHO) == f"{UIDS['bob']} {UIDS['bob']} False bob {homes}/bob"
    look = f"import os; print(sorted(os.listdir('{homes}')), os.path.exists('{homes}/ada/data.csv'))"
    assert bobs.run(look) == "['bob'] False"
    assert bobs.run("print(sum(name.isdigit() for name in os.listdir('/proc')) < 10)") == "True", "its own processes"


def test_a_kernel_whose_owner_or_home_cannot_be_is_refused_with_a_sentence(a_node_of_accounts: OwnersNode) -> None:
    homes = a_node_of_accounts.accounts.homes
    gateway = a_node_of_accounts.gateway()
    code, said = refusal(gateway, "stranger")
    assert (code, "this machine has no such account" in said) == (403, True), said
    code, said = refusal(gateway, "door")
    assert (code, "its shell is /usr/sbin/nologin" in said) == (403, True), said
    code, said = refusal(gateway, "homeless")
    assert (code, f"{homes}/homeless' cannot be opened" in said) == (409, True), said
    os.chown(homes / "bob", 0, 0)
    code, said = refusal(gateway, "bob")
    assert (code, f"chown bob {homes}/bob" in said) == (409, True), said
    assert (a_node_of_accounts.boxes(), a_node_of_accounts.held()) == ([], {})


def test_an_account_that_is_removed_while_its_kernel_runs_is_told_at_the_restart(
    a_node_of_accounts: OwnersNode, open_tab: Callable[..., Any]
) -> None:
    gateway = a_node_of_accounts.gateway()
    kernel_id = start(gateway, "bob")
    tab = tab_of(open_tab, gateway, "bob", kernel_id)
    a_node_of_accounts.accounts.write("ada")
    assert tab.run("import os; print(os.getuid())") == str(UIDS["bob"]), "a kernel that runs goes on"
    with pytest.raises(parts.Refusal) as caught:
        gateway.call("POST", f"/api/kernels/{kernel_id}/restart")
    assert "this machine has no such account" in str(caught.value)
    parts.wait_until(lambda: a_node_of_accounts.boxes() == [])


def test_an_image_of_a_team_is_its_members_alone(a_node_of_accounts: OwnersNode) -> None:
    gateway = a_node_of_accounts.gateway()
    code, _ = refusal(gateway, "bob", "students")
    assert code == 404, "as any unknown name"
    kernel_id = start(gateway, "ada.lovelace", "students")
    assert a_node_of_accounts.box(kernel_id).attrs["Config"]["User"] == f"{UIDS['ada']}:{UIDS['ada']}"
