"""The list of shared folders: their users, the saved list, and the mounts of a kernel."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from traitlets import TraitError
from traitlets.config import Config

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.folders.registry import Folders, working_folder
from jupyter_aliquot.gateway.folders.shared_folder import (
    FolderSettings,
    SharedFolder,
    SharedFolders,
    folder_table,
    read_folder,
)
from jupyter_aliquot.provisioner.errors import FolderError, RequestError, StateError, TakenError

LOG = logging.getLogger(__name__)
ALICE = User("alice", "user", frozenset({"vision"}))
BOB = User("bob", "user")
ADA = User("ada", "admin")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Make homes of alice and bob, two folders to share, and a place for the gateway's state."""
    host = Path(os.path.realpath(tmp_path)) / "host"
    for name in ("homes/alice", "homes/bob", "data/sets", "data/vision", "state"):
        (host / name).mkdir(parents=True)
    return host


Make = Callable[..., Folders]


@pytest.fixture
def settings(host: Path) -> Callable[..., FolderSettings]:
    def make(**knobs: Any) -> FolderSettings:
        usual = {"roots": [f"{host}/homes", f"{host}/data"], "home": f"{host}/homes/{{user}}"}
        return SharedFolders(config=Config({"SharedFolders": {**usual, **knobs}})).read((f"{host}/data/own",))

    return make


@pytest.fixture
def make(host: Path, settings: Callable[..., FolderSettings]) -> Make:
    def make(state: Path | None = host / "state" / "folders.json", **knobs: Any) -> Folders:
        return Folders(settings(**knobs), (f"{host}/data/own",), state, LOG)

    return make


def sets(host: Path, **change: Any) -> dict[str, Any]:
    return {"name": "sets", "source": f"{host}/data/sets", "target": "/data/sets", "users": ["*"], **change}


def vision(host: Path, **change: Any) -> SharedFolder:
    table = {"source": f"{host}/data/vision", "target": "/data/vision", "teams": ["vision"], "read_only": False}
    return read_folder({**table, **change}, "a test", "vision")


def test_a_kernel_gets_its_users_home_and_what_is_shared_with_them(make: Make, host: Path) -> None:
    folders = make(folders=[sets(host)])
    folders.put(vision(host))
    alices, bobs = folders.mounts_of(ALICE), folders.mounts_of(BOB)
    assert [(m.source, m.target, m.read_only) for m in alices] == [
        (f"{host}/homes/alice", "/home/user", False),
        (f"{host}/data/sets", "/data/sets", True),
        (f"{host}/data/vision", "/data/vision", False),
    ]
    assert [m.target for m in bobs] == ["/home/user", "/data/sets"]
    assert all(m.identity is not None and m.identity.inode == os.stat(m.source).st_ino for m in alices)


def test_an_administrator_gets_no_folder_for_being_one(make: Make, host: Path) -> None:
    (host / "homes" / "ada").mkdir()
    folders = make()
    folders.put(vision(host))
    assert [m.target for m in folders.mounts_of(ADA)] == ["/home/user"]


def test_a_link_that_a_user_planted_is_refused_at_the_next_start(make: Make, host: Path) -> None:
    folders = make()
    folders.mounts_of(ALICE)
    (host / "homes" / "alice").rmdir()
    (host / "homes" / "alice").symlink_to("bob")
    with pytest.raises(FolderError, match="a symbolic link"):
        folders.mounts_of(ALICE)


def test_a_home_that_is_missing_is_made_only_where_the_knob_says_so(make: Make, host: Path) -> None:
    eve = User("eve", "user")
    with pytest.raises(FolderError, match="No such file"):
        make().mounts_of(eve)
    make(make_homes=True).mounts_of(eve, f"{os.getuid()}:{os.getgid()}")
    assert (host / "homes" / "eve").is_dir()


@pytest.mark.parametrize("name", ["../bob", "..", "a/b", "", " alice", "alice "])
def test_a_users_name_never_leads_to_another_folder(make: Make, name: str) -> None:
    with pytest.raises(RequestError, match="not a name of a folder"):
        make(make_homes=True).mounts_of(User(name, "user"))


def test_what_was_added_is_there_after_a_restart(make: Make, host: Path) -> None:
    make().put(vision(host))
    again = make()
    assert [listed.folder for listed in again.all()] == [vision(host)]
    assert again.remove("vision") is not None
    assert again.remove("vision") is None
    assert make().all() == ()
    assert os.stat(host / "state" / "folders.json").st_mode & 0o777 == 0o600


def test_changes_at_the_same_time_are_all_kept(make: Make, host: Path) -> None:
    folders, want_names = make(), [f"part-{number}" for number in range(24)]
    for name in want_names:
        (host / "data" / name).mkdir()
    entries = [
        read_folder({"source": f"{host}/data/{name}", "target": f"/data/{name}", "users": ["*"]}, "a test", name)
        for name in want_names
    ]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(folders.put, entries))
    assert sorted(listed.folder.name for listed in folders.all()) == sorted(want_names)
    assert [listed.folder.name for listed in make().all()] == [listed.folder.name for listed in folders.all()]


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 2, "folders": []}', '{"version": 1, "folders": 5}', "\0"])
def test_a_file_that_cannot_be_read_is_set_aside(make: Make, host: Path, content: str) -> None:
    file = host / "state" / "folders.json"
    file.write_text(content)
    assert make().all() == ()
    (aside,) = file.parent.glob("folders.json.unreadable-*")
    assert aside.read_text() == content


def test_an_entry_that_cannot_be_read_hides_no_other(make: Make, host: Path) -> None:
    file = host / "state" / "folders.json"
    file.write_text(json.dumps({"version": 1, "folders": [{"name": "x"}, folder_table(vision(host)), 5]}))
    assert [listed.folder.name for listed in make().all()] == ["vision"]


def test_what_the_configuration_forbids_by_now_is_given_to_nobody_and_said(make: Make, host: Path) -> None:
    make().put(vision(host))
    folders = make(roots=[f"{host}/homes"])
    [listed] = folders.all()
    assert "none of the configured roots" in str(listed.problem)
    assert [m.target for m in folders.mounts_of(ALICE)] == ["/home/user"]


@pytest.mark.parametrize("target", ["/home/user", "/home/user/x", "/data/sets", "/data"])
def test_no_folder_is_added_on_or_in_the_target_of_another(make: Make, host: Path, target: str) -> None:
    folders = make(folders=[sets(host)])
    with pytest.raises(RequestError, match="none holds the other"):
        folders.put(vision(host, target=target))
    assert not (host / "state" / "folders.json").exists()


def test_a_folder_of_the_configuration_is_changed_there_alone(make: Make, host: Path) -> None:
    folders = make(folders=[sets(host)])
    with pytest.raises(TakenError):
        folders.put(read_folder({k: v for k, v in sets(host).items() if k != "name"}, "a test", "sets"))
    for name in ("sets", "home"):
        with pytest.raises(TakenError):
            folders.remove(name)


def test_a_folder_that_is_not_there_or_is_a_link_is_not_added(make: Make, host: Path) -> None:
    (host / "data" / "link").symlink_to("/etc")
    for source in ("link", "nothing"):
        with pytest.raises(FolderError):
            make().put(vision(host, source=f"{host}/data/{source}"))


def test_without_a_state_folder_nothing_is_added(make: Make, host: Path) -> None:
    folders = make(state=None)
    with pytest.raises(StateError):
        folders.put(vision(host))
    assert folders.all() == ()


def test_a_change_that_cannot_be_written_is_no_change(make: Make, host: Path) -> None:
    folders = make(state=host / "nothing" / "folders.json")
    with pytest.raises(StateError):
        folders.put(vision(host))
    assert folders.all() == ()


def test_a_kernel_begins_in_its_notebooks_folder_where_that_is_inside(make: Make, host: Path) -> None:
    (host / "homes" / "alice" / "deep").mkdir()
    (host / "homes" / "alice" / "link").symlink_to("deep")
    mounts = make().mounts_of(ALICE)
    begins = {name: working_folder(f"{host}/homes/{name}", mounts, "/home/user") for name in ("alice/deep", "bob")}
    assert begins == {"alice/deep": "/home/user/deep", "bob": "/home/user"}
    for name in ("alice/link", "alice/nothing"):
        assert working_folder(f"{host}/homes/{name}", mounts, "/home/user") == "/home/user"
    assert working_folder("", mounts, "/home/user") == "/home/user"


@pytest.mark.parametrize(
    ("knobs", "want"),
    [
        ({"roots": ["/"]}, "a folder of the system"),
        ({"roots": ["relative"]}, "not a plain absolute path"),
        ({"home": "/somewhere/{user}"}, "none of the configured roots"),
        ({"home_target": "/etc"}, "the system has a folder there"),
        ({"home_target": "/home/{user}"}, "the same for all users, and nothing is filled in there"),
        ({"home_target": "/home/user}"}, "Use one without braces"),
        ({"home_owner": "alice"}, "uid:gid"),
        ({"folders": ["sets"]}, "not a table"),
        ({"folders": [{"name": "a", "source": "/x", "target": "/data"}]}, "users or teams"),
        (
            {"folders": [{"name": "a", "source": "/x", "target": "/data", "users": ["*"]}]},
            "none of the configured roots",
        ),
        ({"folders": [{"name": "home", "source": "/x", "target": "/data", "users": ["*"]}]}, "not 'home'"),
        ({"folders": [{"name": "a", "source": "/x", "target": "/d", "users": ["*"], "mode": "rw"}]}, "unknown fields"),
    ],
)
def test_a_wrong_knob_is_refused_by_its_name(
    settings: Callable[..., FolderSettings], knobs: dict[str, Any], want: str
) -> None:
    with pytest.raises(TraitError) as caught:
        settings(**knobs)
    assert "c.SharedFolders" in str(caught.value)
    assert want in str(caught.value)


def test_a_root_behind_a_link_is_refused_with_its_real_path(
    settings: Callable[..., FolderSettings], host: Path
) -> None:
    (host / "link").symlink_to("data")
    with pytest.raises(TraitError, match=f"Use '{host}/data'"):
        settings(roots=[f"{host}/link"], home="")


def test_two_folders_of_one_name_are_refused(settings: Callable[..., FolderSettings], host: Path) -> None:
    with pytest.raises(TraitError, match="one name"):
        settings(folders=[sets(host), sets(host, target="/data/again")])
