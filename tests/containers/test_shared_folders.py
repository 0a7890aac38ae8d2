"""Homes and shared folders in real containers: read-only folders, unreachable ones, detection."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from traitlets.config import Config

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.folders.registry import Folders, working_folder
from jupyter_aliquot.gateway.folders.shared_folder import SharedFolders
from jupyter_aliquot.provisioner.errors import FolderError

if TYPE_CHECKING:
    from tests.containers.kernels import ContainerKernels, a_plan
else:
    from kernels import ContainerKernels, a_plan

ALICE, BOB = User("alice", "user"), User("bob", "user")


@pytest.fixture(autouse=True)  # made first, so that it is removed last: kernels write there until they end
def host() -> Iterator[Path]:
    """A folder of the host with homes of alice and bob and a folder of sets, for any engine."""
    host = Path(tempfile.mkdtemp(prefix="aqf-", dir="/tmp"))
    host.chmod(0o755)
    for name in ("homes/alice/project", "homes/bob", "data/sets"):
        (host / name).mkdir(parents=True)
    (host / "homes" / "bob" / "secret").write_text("bob's")
    (host / "data" / "sets" / "numbers").write_text("1 2 3")
    yield host
    shutil.rmtree(host)


@pytest.fixture
def folders(host: Path) -> Folders:
    """Folders: each user has a home; both read the sets; alice's project is shared with bob."""
    tables = [
        {"name": "sets", "source": f"{host}/data/sets", "target": "/data/sets", "users": ["*"]},
        {"name": "project", "source": f"{host}/homes/alice/project", "target": "/data/project", "users": ["bob"]},
    ]
    knobs = {"roots": [str(host)], "home": f"{host}/homes/{{user}}", "folders": tables}
    settings = SharedFolders(config=Config({"SharedFolders": knobs})).read(())
    return Folders(settings, (), None, logging.getLogger(__name__))


def test_a_kernel_writes_to_its_home_reads_what_is_shared_and_reaches_nothing_else(
    host: Path, folders: Folders, kernels: ContainerKernels
) -> None:
    mounts = folders.mounts_of(ALICE)
    begin = working_folder(f"{host}/homes/alice/project", mounts, "/home/user")
    kernel = kernels.run(a_plan(kernels.engine, more_mounts=mounts, home="/home/user", workdir=begin))
    assert kernel.execute("import os; print(os.getcwd(), os.environ['HOME'])") == "/home/user/project /home/user"
    assert (
        kernel.execute("open('/home/user/mine', 'w').write('alice'); print(open('/data/sets/numbers').read())")
        == "1 2 3"
    )
    assert (host / "homes" / "alice" / "mine").read_text() == "alice"
    assert "Read-only file system" in kernel.execute("open('/data/sets/new', 'w')")
    assert "Read-only file system" in kernel.execute("os.chmod('/data/sets/numbers', 0o777)")
    look = "print(sorted(n for top in ('/home', '/data') for n in os.listdir(top)), os.path.exists({!r}))"
    assert kernel.execute(look.format(str(host))) == "['sets', 'user'] False"
    kernel.execute("os.symlink('../bob/secret', '/home/user/link'); os.symlink('/home/bob', '/home/user/bob')")
    assert "FileNotFoundError" in kernel.execute("open('/home/user/link')")
    assert "FileNotFoundError" in kernel.execute("os.listdir('/home/user/bob')")


def test_a_link_planted_from_within_a_kernel_is_refused_at_the_next_start(
    host: Path, folders: Folders, kernels: ContainerKernels
) -> None:
    assert (host / "homes" / "alice" / "project").is_dir()
    plan = a_plan(kernels.engine, more_mounts=folders.mounts_of(ALICE), home="/home/user")
    plant = "rmdir /home/user/project && ln -s ../bob /home/user/project"
    planting = kernels.start(kernels.launch(plan, ("/bin/sh", "-c", plant)))
    assert kernels.ending(planting).exit_code == 0
    assert (host / "homes" / "alice" / "project" / "secret").read_text() == "bob's"
    with pytest.raises(FolderError, match="a symbolic link"):
        folders.mounts_of(BOB)


@pytest.mark.parametrize("swap", ["folder", "link"])
def test_a_folder_that_was_swapped_after_the_check_ends_the_kernel(
    host: Path, folders: Folders, kernels: ContainerKernels, swap: str
) -> None:
    mounts = folders.mounts_of(BOB)
    (host / "homes" / "alice" / "project").rmdir()
    if swap == "folder":
        (host / "homes" / "alice" / "project").mkdir()
        os.rename(host / "data" / "sets", host / "homes" / "alice" / "project")
        (host / "data" / "sets").mkdir()
    else:
        (host / "homes" / "alice" / "project").symlink_to("/etc")
    plan = a_plan(kernels.engine, more_mounts=mounts, home="/home/user")
    with pytest.raises(FolderError, match="another folder is mounted there"):
        kernels.start(kernels.launch(plan, ("/usr/bin/sleep", "600")))
    assert not [name for name in kernels.engine.containers() if name.startswith("aliquot-")]


def test_another_file_system_below_a_shared_folder_is_no_part_of_it(
    host: Path, folders: Folders, kernels: ContainerKernels
) -> None:
    """An engine may make the folder read-only, but not the mounts below it."""
    below = host / "data" / "sets" / "below"
    below.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(below)], check=True)
    try:
        (below / "there").write_text("")
        plan = a_plan(kernels.engine, more_mounts=folders.mounts_of(ALICE), home="/home/user")
        look = "test ! -e /data/sets/below/there && ! touch /data/sets/below/new"
        looking = kernels.start(kernels.launch(plan, ("/bin/sh", "-c", look)))
        assert kernels.ending(looking).exit_code == 0
        assert [path.name for path in below.iterdir()] == ["there"]
    finally:
        subprocess.run(["umount", "-l", str(below)], check=True)
