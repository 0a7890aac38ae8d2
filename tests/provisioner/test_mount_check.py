"""Mounts are compared with the checked folders, in the mounts of a process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_aliquot.provisioner.containers import mount_check
from jupyter_aliquot.provisioner.containers.mount_check import ContainerNotVisible, check_mounts
from jupyter_aliquot.provisioner.containers.plan import FolderIdentity, Mount
from jupyter_aliquot.provisioner.errors import FolderError


def mount_of(path: Path, target: Path) -> Mount:
    found = path.stat()
    return Mount(str(path), str(target), identity=FolderIdentity(found.st_dev, found.st_ino))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    base = Path(os.path.realpath(tmp_path))
    (base / "mine").mkdir()
    (base / "theirs").mkdir()
    return base


def test_the_folder_that_was_checked_passes(base: Path) -> None:
    check_mounts(os.getpid(), [mount_of(base / "mine", base / "mine")])


@pytest.mark.parametrize("swap", ["folder", "link", "nothing", "file"])
def test_whatever_else_is_found_is_refused(base: Path, swap: str) -> None:
    mount = mount_of(base / "mine", base / "mine")
    (base / "mine").rename(base / "was-mine")
    if swap == "folder":
        (base / "theirs").rename(base / "mine")
    elif swap == "link":
        # The link leads to the right folder, but the image, or a user, could let it lead anywhere.
        (base / "mine").symlink_to("was-mine")
    elif swap == "file":
        (base / "mine").write_text("")
    with pytest.raises(FolderError, match="another folder"):
        check_mounts(os.getpid(), [mount])


def test_a_process_that_is_not_to_be_seen_is_told_apart(base: Path, tmp_path: Path) -> None:
    with pytest.raises(ContainerNotVisible):
        check_mounts(1, [mount_of(base / "mine", base / "mine")], proc=tmp_path)


def test_a_process_that_ends_while_it_is_looked_at_is_told_apart_from_one_with_another_folder(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process's mounts are gone then, and the bare places below them are visible."""
    root = tmp_path / "proc" / "7" / "root"
    root.parent.mkdir(parents=True)
    root.symlink_to(base)

    def end(*_: object) -> None:
        root.unlink()

    monkeypatch.setattr(mount_check, "_look", end)
    with pytest.raises(ContainerNotVisible):
        check_mounts(7, [mount_of(base / "mine", Path("/mine"))], proc=tmp_path / "proc")


def test_without_anything_to_compare_nothing_is_looked_at(tmp_path: Path) -> None:
    check_mounts(1, [Mount("/srv/data", "/data")], proc=tmp_path)
