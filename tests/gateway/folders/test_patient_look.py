"""Looks at folders whose disk does not answer end, and hold up no look at another user's folder."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from jupyter_aliquot.gateway.folders.patient_look import PatientLook
from jupyter_aliquot.gateway.folders.user_folder import OwnFolder
from jupyter_aliquot.provisioner.containers.plan import FolderIdentity
from jupyter_aliquot.provisioner.errors import FolderError

FOUND = OwnFolder(FolderIdentity(1, 2), 3)
DEAD, GOOD = "/homes/alice", "/homes/bob"


@dataclass
class Disk:
    """A disk on which the folders of one root do not answer until a test lets them."""

    answers: threading.Event = field(default_factory=threading.Event)
    looks: list[str] = field(default_factory=list)

    def look(self, root: str, source: str, shown: str) -> OwnFolder:
        self.looks.append(source)
        if root == DEAD:
            self.answers.wait()
        if source.endswith("missing"):
            raise FolderError(f"The folder {shown!r} is missing")
        return FOUND


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.answers.set()


def refused(look: PatientLook) -> None:
    with pytest.raises(FolderError, match="'~/x' cannot be looked at, for its disk does not answer"):
        look(DEAD, f"{DEAD}/x", "~/x")


def test_a_look_at_a_disk_that_does_not_answer_ends_and_no_second_thread_waits_for_it(disk: Disk) -> None:
    look = PatientLook(disk.look, patience=0.01, short=60)
    for _ in range(20):
        refused(look)
    assert disk.looks == [f"{DEAD}/x"]
    assert look(GOOD, f"{GOOD}/x", "~/x") == FOUND


def test_a_disk_that_answers_again_is_looked_at_again(disk: Disk) -> None:
    look = PatientLook(disk.look, patience=0.01, short=60)
    refused(look)
    assert look.patience == 60
    disk.answers.set()
    for thread in threading.enumerate():
        if thread.name == "aliquot-look":
            thread.join()
    assert look.patience == 0.01
    look._patience = 60  # a loaded machine does not answer in a hundredth of a second
    assert look(DEAD, f"{DEAD}/y", "~/y") == FOUND


def test_an_error_of_the_look_reaches_its_caller(disk: Disk) -> None:
    with pytest.raises(FolderError, match="'~/missing' is missing"):
        PatientLook(disk.look, patience=60)(GOOD, f"{GOOD}/missing", "~/missing")
