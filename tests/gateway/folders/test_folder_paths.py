"""Folders on a real disk: the gateway follows no link, and recognizes a folder that it saw."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from jupyter_aliquot.gateway.folders.safe_open import identify_folder, make_home
from jupyter_aliquot.provisioner.containers.plan import FolderIdentity
from jupyter_aliquot.provisioner.errors import FolderError


def identity(path: Path) -> FolderIdentity:
    found = path.stat()
    return FolderIdentity(found.st_dev, found.st_ino)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Return a folder whose own path has no link in it."""
    return Path(os.path.realpath(tmp_path))


def test_a_folder_is_known_by_device_and_inode(base: Path) -> None:
    (base / "a" / "b").mkdir(parents=True)
    assert identify_folder(str(base / "a" / "b")) == identity(base / "a" / "b")


@pytest.mark.parametrize("link", ["home", "home/project", "home/project/deep"])
def test_a_link_in_the_place_of_any_part_is_refused(base: Path, link: str) -> None:
    (base / "elsewhere" / "project" / "deep").mkdir(parents=True)
    place = base / link
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(base / "elsewhere" / Path(*Path(link).parts[1:]))
    assert (base / "home" / "project" / "deep").is_dir()
    with pytest.raises(FolderError, match=f"'{place}' is a symbolic link"):
        identify_folder(str(base / "home" / "project" / "deep"))


def test_what_is_not_there_and_what_is_no_folder_is_refused(base: Path) -> None:
    (base / "file").write_text("")
    os.mkfifo(base / "fifo")
    with pytest.raises(FolderError, match="No such file"):
        identify_folder(str(base / "nothing"))
    for name in ("file", "fifo"):
        with pytest.raises(FolderError, match="no folder"):
            identify_folder(str(base / name))


def test_no_descriptor_stays_open(base: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for path in (base, base / "nothing"):
        try:
            identify_folder(str(path))
        except FolderError:
            continue
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_home_is_made_for_its_owner_alone(base: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives folders away")
    old = os.umask(0)
    try:
        made = make_home(str(base / "alice"), 12345, 23456)
    finally:
        os.umask(old)
    found = (base / "alice").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o700, 12345, 23456)
    assert made == identity(base / "alice")


def test_a_home_that_is_there_is_left_as_it_is(base: Path) -> None:
    (base / "alice").mkdir(mode=0o755)
    assert make_home(str(base / "alice"), os.getuid(), os.getgid()) == identity(base / "alice")
    assert stat.S_IMODE((base / "alice").stat().st_mode) == 0o755


def test_a_link_in_the_place_of_a_home_is_refused(base: Path) -> None:
    (base / "bob").mkdir()
    (base / "alice").symlink_to("bob")
    (base / "eve").symlink_to("nothing-yet")
    for name in ("alice", "eve"):
        with pytest.raises(FolderError, match="a symbolic link"):
            make_home(str(base / name), os.getuid(), os.getgid())
    assert not (base / "nothing-yet").exists()


names = st.sampled_from(["a", "b", "c"])
steps = st.lists(
    st.tuples(st.sampled_from(["folder", "link", "file"]), st.lists(names, min_size=1, max_size=3)), max_size=8
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(steps=steps, asked=st.lists(names, min_size=1, max_size=4), number=st.integers(0, 10**9))
def test_what_is_found_is_where_its_path_says_in_any_tree(
    base: Path, steps: list[tuple[str, list[str]]], asked: list[str], number: int
) -> None:
    top = base / str(number)
    top.mkdir(exist_ok=True)
    for kind, path in steps:
        place = top.joinpath(*path)
        try:
            if kind == "folder":
                place.mkdir(parents=True)
            elif kind == "file":
                place.write_text("")
            else:
                place.symlink_to("/" if len(path) == 1 else "..")
        except OSError:
            continue
    wanted = top.joinpath(*asked)
    try:
        found = identify_folder(str(wanted))
    except FolderError:
        return
    assert os.path.realpath(wanted) == str(wanted)
    assert found == identity(wanted)
