"""Folders that users share with each other, in real containers: what a collaborator's kernel reads and writes."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from traitlets.config import Config

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.folders.invitation import Invitation, read_wish
from jupyter_aliquot.gateway.folders.invitations import Invitations, Owners
from jupyter_aliquot.gateway.folders.registry import Folders
from jupyter_aliquot.gateway.folders.shared_folder import SharedFolders

if TYPE_CHECKING:
    from tests.containers.kernels import ContainerKernels, a_plan
else:
    from kernels import ContainerKernels, a_plan

ALICE, BOB = User("alice", "user"), User("bob", "user")
LOG = logging.getLogger(__name__)


@pytest.fixture(autouse=True)  # made first, so that it is removed last: kernels write there until they end
def host() -> Iterator[Path]:
    """A folder of the host with homes of alice and bob, for any engine."""
    host = Path(tempfile.mkdtemp(prefix="aqf-", dir="/tmp"))
    host.chmod(0o755)
    for name in ("homes/alice/project", "homes/bob"):
        (host / name).mkdir(parents=True)
    (host / "homes/alice").chmod(0o700)
    (host / "homes/alice/secret").write_text("alice's")
    (host / "homes/alice/project/numbers").write_text("1 2 3")
    yield host
    shutil.rmtree(host)


@pytest.fixture
def found(host: Path) -> Invitations:
    homes = f"{host}/homes/{{user}}"
    knobs = {"roots": [f"{host}/homes"], "home": homes, "user_roots": [homes]}
    folders = Folders(SharedFolders(config=Config({"SharedFolders": knobs})).read(()), (), None, LOG)
    owners = Owners(lambda _: True, lambda _: "", lambda name: User(name, "user"))
    return Invitations(folders, owners, host / "invitations.json", SystemClock(), LOG)


def accepted(found: Invitations, access: str) -> Invitation:
    body = {"path": "~/project", "kind": "user", "invited": "bob", "access": access}
    return found.answer(found.invite(ALICE, read_wish(body, found.now)), BOB, is_accepted=True)


def runs(kernels: ContainerKernels, found: Invitations, script: str) -> bool:
    """Return whether a script succeeds in a new container of bob."""
    plan = a_plan(kernels.engine, more_mounts=found.mounts_of(BOB))
    started = kernels.start(kernels.launch(plan, ("/bin/sh", "-c", script)))
    return kernels.ending(started).exit_code == 0


def test_a_collaborator_reads_writes_only_where_invited_to_and_finds_nothing_after_the_end(
    host: Path, found: Invitations, kernels: ContainerKernels
) -> None:
    invitation = accepted(found, "read")
    reads = "test \"$(cat /shared/alice/project/numbers)\" = '1 2 3'"
    hidden = f"! test -e /shared/alice/secret && ! test -e /shared/alice/project/../secret && ! test -e {host}"
    changes = "! touch /shared/alice/project/new && ! chmod 777 /shared/alice/project/numbers"
    assert runs(kernels, found, f"{reads} && {hidden} && {changes}")
    assert accepted(found, "write").id == invitation.id
    assert runs(kernels, found, "echo bob > /shared/alice/project/new && ln -s /etc /shared/alice/project/link")
    assert (host / "homes/alice/project/new").read_text() == "bob\n"
    found.end(invitation, ALICE)
    assert runs(kernels, found, "! test -e /shared")


def test_a_folder_that_its_owner_swaps_after_the_check_is_not_the_collaborators(
    host: Path, found: Invitations, kernels: ContainerKernels
) -> None:
    accepted(found, "read")
    plan = a_plan(kernels.engine, more_mounts=found.mounts_of(BOB))
    project = host / "homes/alice/project"
    project.rename(host / "homes/alice/moved")
    project.symlink_to(host / "homes/bob")
    # The kernel starts without it: no owner keeps a collaborator from working.
    started = kernels.start(kernels.launch(plan, ("/bin/sh", "-c", "! test -e /shared || sleep 600")))
    assert kernels.ending(started).exit_code == 0
    assert runs(kernels, found, "! test -e /shared")
