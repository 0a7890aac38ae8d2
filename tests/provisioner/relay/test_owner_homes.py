"""Homes as machines have them: full, on a file system that knows no root, with packages of the user's in front."""

from __future__ import annotations

import asyncio
import os
import site
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from made_accounts import GROUPS
from owners_house import ADA, ENV, OwnersHouse, an_owners_house, kernel_pid, status_of
from relay_house import Gateway, until

from jupyter_aliquot.provisioner.errors import RelayRefusedError
from jupyter_aliquot.provisioner.launch_spec import KERNEL_ID_VARIABLE
from jupyter_aliquot.provisioner.relay.client import control as client
from jupyter_aliquot.provisioner.relay.wire.files import RelayRecord, read_ended_in

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can work as another account")
# What root lacks on a share of NFS with root squash: the right to pass by the modes of others' folders.
_SQUASHED = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]
_WITH_USER_PACKAGES = """
import runpy, site, sys
sys.path.insert(0, site.getusersitepackages())
runpy.run_module("ipykernel_launcher", run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def a_house() -> Iterator[OwnersHouse]:
    with an_owners_house() as house:
        yield house


def launch(record: RelayRecord, *python: str) -> client.KernelLaunch:
    argv = (sys.executable, *python, "-f", str(record.kernel_connection_file))
    return client.KernelLaunch(argv, {**ENV, KERNEL_ID_VARIABLE: record.kernel_id})


@contextmanager
def a_small_home(home: Path) -> Iterator[None]:
    """Put a file system of 64 KiB over a home of ada's."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size=64k,mode=700,uid={ADA},gid={ADA}", "none", home], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", home], check=True)


def fill(home: Path) -> None:
    (home / "large").write_bytes(bytes(os.statvfs(home).f_bavail * os.statvfs(home).f_frsize))


def test_a_kernel_runs_in_a_home_that_is_full_and_its_user_is_told_what_cannot_be_written(a_house: OwnersHouse) -> None:
    home = a_house.accounts.homes / "ada"

    async def scene() -> None:
        readme = home / ".ipython" / "profile_default" / "startup" / "README"
        readme.parent.mkdir(parents=True)  # as an earlier kernel left it: a first one writes this file
        readme.touch()
        for path in (readme, *readme.parents[:3]):
            os.chown(path, ADA, ADA)
        fill(home)
        record = await a_house.relay(account="ada")
        await client.spawn(record, launch(record, "-m", "ipykernel_launcher"))
        gateway = await Gateway(client.read_relay_record(record.folder)).connect()
        cell = gateway.execute(
            "import os\nprint(os.getuid(), os.getcwd())\n"
            "try:\n    open('more', 'w').write('x' * 10_000)\nexcept OSError as error:\n    print(error.strerror)"
        )
        await gateway.idle(cell)
        assert gateway.outputs(cell) == f"{ADA} {home}\nNo space left on device\n"
        await client.stop_relay(record)

    with a_small_home(home):
        asyncio.run(scene())


def test_a_first_kernel_that_a_full_home_ends_says_so(a_house: OwnersHouse) -> None:
    home = a_house.accounts.homes / "ada"

    async def scene() -> None:
        fill(home)
        record = await a_house.relay(account="ada")
        await client.spawn(record, launch(record, "-m", "ipykernel_launcher"))
        ended = await until(lambda: read_ended_in(record.folder))
        assert "No space left on device: " in ended.last_words
        assert f"{home}/.ipython" in ended.last_words
        await client.remove_relay(record.folder)

    with a_small_home(home):
        asyncio.run(scene())


def test_a_kernel_starts_in_a_home_that_is_closed_to_root(a_house: OwnersHouse) -> None:
    a_house.run_host_below(*_SQUASHED)
    folder = a_house.accounts.make_folder(ADA, a_house.accounts.homes / "ada" / "project")

    async def scene() -> None:
        record = await a_house.sleeper(cwd=str(folder))
        assert os.readlink(f"/proc/{kernel_pid(record)}/cwd") == str(folder)
        capabilities = int(status_of(a_house.host_pid, "CapEff"), 16)
        assert capabilities & 0b110 == 0, "the host itself cannot enter the folder"
        await client.stop_relay(record)

    asyncio.run(scene())


def test_packages_of_the_user_that_hide_the_kernels_are_named_in_its_end(a_house: OwnersHouse) -> None:
    home = a_house.accounts.homes / "ada"
    packages = home / Path(site.getusersitepackages()).relative_to(Path.home())
    (packages / "zmq").mkdir(parents=True)
    (packages / "zmq" / "__init__.py").write_text("raise ImportError('of another Python')")

    async def scene() -> None:
        record = await a_house.relay(account="ada")
        await client.spawn(record, launch(record, "-c", _WITH_USER_PACKAGES))
        ended = await until(lambda: read_ended_in(record.folder))
        assert f'{packages}/zmq/__init__.py", line 1' in ended.last_words
        assert "ImportError: of another Python" in ended.last_words
        await client.remove_relay(record.folder)

    asyncio.run(scene())


def test_the_next_kernel_has_the_groups_that_its_account_has_by_then(a_house: OwnersHouse) -> None:
    a_house.name_list("@students")
    (students, _) = GROUPS["students"]

    async def scene() -> None:
        record = await a_house.sleeper()
        assert str(students) in status_of(kernel_pid(record), "Groups").split()
        a_house.accounts.write("ada", "bob", groups={"students": (students, ("bob",))})
        with pytest.raises(RelayRefusedError, match="does not list this account"):
            await a_house.relay(account="ada")
        assert record.has_living_kernel, "a kernel that runs goes on with what it has"
        bobs = await a_house.sleeper("bob")
        assert str(students) in status_of(kernel_pid(bobs), "Groups").split()

    asyncio.run(scene())
