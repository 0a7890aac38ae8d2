"""The home of an account as a mount: where it may lie, and whether the account may enter it."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.folders import account_home
from jupyter_aliquot.gateway.folders.account_home import check_enters, home_mount
from jupyter_aliquot.gateway.folders.registry import Folders
from jupyter_aliquot.gateway.folders.shared_folder import SharedFolders
from jupyter_aliquot.provisioner.accounts import Account
from jupyter_aliquot.provisioner.errors import FolderError, RequestError

# Numbers that the machine need not know; without root there is one account to try.
IS_ROOT = os.geteuid() == 0
ADAS, BOBS, TEAM = (43001, 43002, 43900) if IS_ROOT else (os.geteuid(), os.geteuid(), os.getegid())


@pytest.fixture
def homes() -> Iterator[Path]:
    """A folder that every account may pass, with the homes of ada (0700), and of bob, which no account enters."""
    # Not in /tmp, which a container has as its own. Another account may not pass to the checkout.
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/srv" if IS_ROOT else Path(__file__).parents[3] / "build"))
    folder.chmod(0o755)
    for name, uid in (("ada", ADAS), ("bob", BOBS)):
        (folder / name).mkdir(mode=0o700)
        os.chown(folder / name, uid, -1)
    (folder / "bob").chmod(0)
    yield folder
    (folder / "bob").chmod(0o700)
    shutil.rmtree(folder)


def account(homes: Path, name: str = "ada", home: str = "") -> Account:
    uid = {"ada": ADAS, "bob": BOBS}[name]
    return Account(name, uid, os.getegid() if not IS_ROOT else uid, home or str(homes / name), "/bin/sh")


def test_a_home_is_mounted_at_its_own_path_for_writing(homes: Path) -> None:
    mount = home_mount(account(homes), (), [str(homes)], ())
    assert (mount.source, mount.target, mount.read_only) == (str(homes / "ada"), str(homes / "ada"), False)
    assert mount.identity is not None
    assert mount.identity.inode == (homes / "ada").stat().st_ino


def test_a_home_that_its_account_cannot_enter_is_refused_with_what_to_do(homes: Path) -> None:
    want = f"number {BOBS}.*cannot enter it. Ask an administrator .* chown bob {homes}/bob"
    with pytest.raises(FolderError, match=want):
        home_mount(account(homes, "bob"), (), [str(homes)], ())


@pytest.mark.skipif(not IS_ROOT, reason="only root can try as another account")
def test_a_home_of_another_account_is_entered_by_a_group_alone(homes: Path) -> None:
    os.chown(homes / "bob", BOBS, TEAM)
    (homes / "bob").chmod(0o770)
    theirs = account(homes, "ada", str(homes / "bob"))
    check_enters(theirs, [TEAM], theirs.home)
    with pytest.raises(FolderError, match="cannot enter it"):
        check_enters(theirs, [], theirs.home)


@pytest.mark.parametrize(
    ("home", "roots", "want"),
    [
        ("{homes}/ada", [], r"none of the configured roots \(none\).*c.SharedFolders.roots"),
        ("{homes}/ada", ["/srv/homes"], r"roots \('/srv/homes'\)"),
        ("/root", ["/"], "the system has a folder there"),
        ("/", ["/"], "the system has a folder there"),
        ("/var/lib/ada", ["/var"], "the system has a folder there"),
        ("/tmp/ada", ["/tmp"], "the system has a folder there"),
        ("home/ada", ["/"], "not a plain absolute path"),
        ("", ["/"], "not a plain absolute path"),
        ("/home/ada:x", ["/home"], "not a plain absolute path"),
    ],
)
def test_a_home_where_nothing_is_shared_is_refused(homes: Path, home: str, roots: list[str], want: str) -> None:
    theirs = Account("ada", ADAS, ADAS, home.format(homes=homes), "/bin/sh")
    with pytest.raises(RequestError, match=want):
        home_mount(theirs, (), roots, ())


def test_aliquots_own_folders_are_no_home(homes: Path) -> None:
    with pytest.raises(RequestError, match="Aliquot's own folder"):
        home_mount(account(homes), (), [str(homes)], (str(homes / "ada" / "state"),))


@pytest.mark.parametrize("kind", ["missing", "link", "file"])
def test_a_home_that_is_no_folder_is_refused(homes: Path, kind: str) -> None:
    place = homes / "eve"
    if kind == "link":
        place.symlink_to(homes / "ada")
    elif kind == "file":
        place.write_text("")
    with pytest.raises(FolderError, match="cannot be opened"):
        home_mount(account(homes, home=str(place)), (), [str(homes)], ())


def test_a_home_whose_file_server_is_away_ends_the_start(homes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_home, "_SECONDS", 0.2)
    monkeypatch.setattr(account_home, "_ENTER", "exec sleep 600")
    with pytest.raises(FolderError, match="does not answer within"):
        check_enters(account(homes), (), str(homes / "ada"))


def a_list(homes: Path, *folders: dict[str, Any]) -> Folders:
    knobs = {"roots": [str(homes)], "home": f"{homes}/{{user}}", "folders": list(folders)}
    settings = SharedFolders(config=Config({"SharedFolders": knobs})).read(())
    return Folders(settings, (), None, logging.getLogger(__name__))


def test_an_owners_kernel_has_its_home_and_what_is_shared_and_not_the_common_home(homes: Path) -> None:
    (homes / "sets").mkdir()
    shared = {"name": "sets", "source": f"{homes}/sets", "target": "/data/sets", "users": ["*"]}
    mounts = a_list(homes, shared).mounts_of_account(User("ada", "user"), account(homes), ())
    assert [mount.target for mount in mounts] == [f"{homes}/ada", "/data/sets"]


def test_a_shared_folder_over_the_home_is_refused(homes: Path) -> None:
    (homes / "sets").mkdir()
    shared = {"name": "sets", "source": f"{homes}/sets", "target": f"{homes}/ada/sets", "users": ["*"]}
    with pytest.raises(RequestError, match="none holds the other"):
        a_list(homes, shared).mounts_of_account(User("ada", "user"), account(homes), ())
