"""Invitations to users' own folders: real folders, links, mounts and owners, and the mounts that kernels get."""

from __future__ import annotations

import json
import logging
import os
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from traitlets import TraitError
from traitlets.config import Config

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.folders import invitations as registry, user_folder
from jupyter_aliquot.gateway.folders.birth import born_of
from jupyter_aliquot.gateway.folders.invitation import UNANSWERED_SECONDS, Invitation, invitation_table, read_wish
from jupyter_aliquot.gateway.folders.invitation_report import invitation_report, invited_folders
from jupyter_aliquot.gateway.folders.invitations import Invitations, Owners
from jupyter_aliquot.gateway.folders.registry import Folders
from jupyter_aliquot.gateway.folders.shared_folder import SharedFolders
from jupyter_aliquot.provisioner.errors import (
    AliquotError,
    FolderError,
    LimitError,
    RequestError,
    StateError,
    TakenError,
)

LOG = logging.getLogger(__name__)
ALICE = User("alice", "user", frozenset({"vision"}))
BOB = User("bob", "user", frozenset({"vision"}))
EVE = User("eve", "user")
ADA = User("ada", "admin")
USERS = {user.name: user for user in (ALICE, BOB, EVE, ADA)}
NOON = 1_800_000_000.0

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away and mounts")


@dataclass
class Wall:
    """A clock that a test turns by hand."""

    seconds: float = NOON

    def now(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass
class Place:
    """A machine with homes of alice, bob and eve, a folder of sets that all read, and the gateway's state."""

    host: Path
    clock: Wall = field(default_factory=Wall)
    users: dict[str, User] = field(default_factory=lambda: dict(USERS))
    account_homes: dict[str, str] = field(default_factory=dict)
    told: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.host / "state" / "invitations.json"

    def open(self, **knobs: Any) -> Invitations:
        """Return the invitations as a gateway that starts now has them."""
        sets = {"name": "sets", "source": f"{self.host}/homes/alice/sets", "target": "/data/sets", "users": ["*"]}
        usual = {
            "roots": [f"{self.host}/homes"],
            "home": f"{self.host}/homes/{{user}}",
            "user_roots": [f"{self.host}/homes/{{user}}"],
            "folders": [sets],
        }
        settings = SharedFolders(config=Config({"SharedFolders": {**usual, **knobs}})).read(())
        owners = Owners(
            lambda name: name in self.users,
            lambda name: self.account_homes.get(name, ""),
            lambda name: self.users.get(name, User(name, "user")),
        )
        found = Invitations(Folders(settings, (), None, LOG), owners, self.file, self.clock, LOG)
        found.observe(lambda action, invitation, by: self.told.append((action, invitation.name, by)))
        return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    host = Path(os.path.realpath(tmp_path)) / "host"
    for name in ("alice/project/deep", "alice/sets/part", "alice/.ssh", "bob", "eve/notes"):
        (host / "homes" / name).mkdir(parents=True)
    (host / "state").mkdir()
    return Place(host)


def invite(found: Invitations, who: User = ALICE, **change: Any) -> Invitation:
    body = {"path": "/home/user/project", "kind": "user", "invited": "bob", **change}
    return found.invite(who, read_wish(body, found.now))


def accept(found: Invitations, invitation: Invitation, who: User = BOB) -> Invitation:
    return found.answer(invitation, who, is_accepted=True)


def mounted(found: Invitations, who: User = BOB) -> dict[str, bool]:
    """Return the mounts of this user's kernels: where, and whether read-only."""
    return {mount.target: mount.read_only for mount in found.mounts_of(who)}


def test_a_folder_is_mounted_for_a_collaborator_who_accepted_and_for_no_other(place: Place) -> None:
    found = place.open()
    invitation = invite(found)
    assert mounted(found) == {}
    accept(found, invitation)
    [mount] = found.mounts_of(BOB)
    source = place.host / "homes/alice/project"
    assert (mount.source, mount.target, mount.read_only) == (str(source), "/shared/alice/project", True)
    assert mount.identity is not None
    assert (mount.identity.device, mount.identity.inode) == (source.stat().st_dev, source.stat().st_ino)
    assert [mounted(found, who) for who in (ALICE, EVE, ADA)] == [{}, {}, {}]
    assert place.told == [("invite", "project", "alice"), ("accept", "project", "bob")]


def test_an_ended_a_declined_and_an_expired_invitation_mount_nothing_at_the_next_start(place: Place) -> None:
    found = place.open()
    accept(found, first := invite(found, until="2027-01-15T08:00:01Z"))
    place.clock.seconds = NOON
    assert mounted(found)
    place.clock.seconds = NOON + 1
    assert (mounted(found), found.seen_by(ALICE), found.find(first.id, ALICE)) == ({}, (), None)
    accept(found, second := invite(found))
    found.answer(second, BOB, is_accepted=False)
    assert (mounted(found), len(found.seen_by(BOB))) == ({}, 1)
    accept(found, second)
    found.end(second, ADA)
    assert (mounted(found), found.seen_by(BOB)) == ({}, ())
    with pytest.raises(RequestError, match="has ended"):
        accept(found, second)
    assert place.told[-1] == ("uninvite", "project", "ada")


def test_all_of_it_is_there_after_a_restart(place: Place) -> None:
    found = place.open()
    accept(found, invite(found, access="write"))
    again = place.open()
    assert mounted(again) == {"/shared/alice/project": False}
    assert again.seen_by(ALICE) == found.seen_by(ALICE)
    assert os.stat(place.file).st_mode & 0o777 == 0o600


def test_a_removed_user_leaves_nothing_to_a_new_user_of_that_name(place: Place) -> None:
    found = place.open()
    accept(found, first := invite(found))
    accept(found, invite(found, kind="team", invited="vision"))
    accept(found, alone := invite(found, EVE, path="~/notes"))
    assert found.users() == {"alice", "bob", "eve"}
    found.remove_users({"bob"})
    assert mounted(found) == {}, "a new bob has answered nothing"
    assert [one.kind for one in found.seen_by(BOB)] == ["team"], "and is invited by a team alone"
    assert found.users() == {"alice"}
    assert place.told[-2:] == [("orphan", "project", ""), ("orphan", "notes", "")]
    again = place.open()
    kept = again.find(first.id, ADA)
    assert kept is not None
    assert "was removed from this server" in str(again.problem(kept))
    with pytest.raises(RequestError, match="not for you"):
        accept(again, kept)
    accept(again, invite(again))
    assert mounted(again) == {"/shared/alice/project": True}, "the owner has shared it again"
    again.end(alone, ADA)
    assert again.find(alone.id, ADA) is None


def test_folders_of_a_removed_owner_are_mounted_for_no_collaborator_and_end_by_themselves(place: Place) -> None:
    found = place.open()
    accept(found, made := invite(found))
    accept(found, invite(found, kind="team", invited="vision"))
    del place.users["alice"]
    found.remove_users({"alice"})
    place.users["alice"] = ALICE
    assert (mounted(found), found.seen_by(BOB), found.users()) == ({}, (), frozenset())
    assert len(found.seen_by(ADA)) == 2
    place.clock.seconds = NOON + UNANSWERED_SECONDS
    assert found.find(made.id, ADA) is None


def test_users_are_removed_again_when_the_disk_has_room(place: Place) -> None:
    found = place.open()
    accept(found, invite(found))
    (in_the_way := place.file.with_name(f".{place.file.name}.new")).mkdir()
    with pytest.raises(StateError):
        found.remove_users({"bob"})
    in_the_way.rmdir()
    found.remove_users({"bob"})
    assert mounted(place.open()) == {}


def test_each_member_of_a_team_answers_and_a_former_member_gets_nothing(place: Place) -> None:
    found = place.open()
    invitation = invite(found, kind="team", invited="vision")
    accept(found, invitation)
    assert (mounted(found), mounted(found, ALICE)) == ({"/shared/alice/project": True}, {})
    with pytest.raises(RequestError, match="not for you"):
        accept(found, invitation, EVE)
    assert mounted(found, User("bob", "user")) == {}


def test_the_larger_of_two_invitations_to_a_folder_counts(place: Place) -> None:
    found = place.open()
    accept(found, invite(found, access="write"))
    accept(found, invite(found, kind="team", invited="vision"))
    assert mounted(found) == {"/shared/alice/project": False}
    [folder] = invited_folders(found, BOB)
    assert (folder["name"], folder["read_only"], folder["kind"]) == ("alice/project", False, "invited")


def test_inviting_again_changes_access_and_keeps_what_was_accepted(place: Place) -> None:
    found = place.open()
    accept(found, before := invite(found))
    after = invite(found, access="write")
    assert (after.id, after.accepted) == (before.id, frozenset({"bob"}))
    assert mounted(found) == {"/shared/alice/project": False}


@pytest.mark.parametrize(
    "path",
    [
        "/home/user",
        "~",
        "/home/user/.ssh",
        "/home/user/../bob",
        "~/../bob",
        "/home/user/project/..",
        "/home/user//project",
        "/home/user/./project",
        "/home/user2/project",
        "/etc",
        "/",
        "project",
        "/home/user/pro\nject",
        "~eve/project",
    ],
)
def test_a_path_that_leads_to_no_folder_of_the_users_own_is_refused(place: Place, path: str) -> None:
    found = place.open()
    with pytest.raises(RequestError) as caught:
        invite(found, path=path, name="project")
    assert str(place.host) not in str(caught.value)
    assert (found.seen_by(ADA), place.file.exists()) == ((), False)


@pytest.mark.parametrize("path", ["link", "link/deep", "file", "missing"])
def test_a_link_a_file_and_a_missing_folder_are_refused_without_the_hosts_paths(place: Place, path: str) -> None:
    home = place.host / "homes/alice"
    (home / "link").symlink_to("project")
    (home / "file").write_text("")
    with pytest.raises(FolderError) as caught:
        invite(place.open(), path=f"~/{path}", name="project")
    assert str(place.host) not in str(caught.value)


def test_a_collaborator_cannot_share_what_was_shared_with_them(place: Place) -> None:
    found = place.open()
    accept(found, invite(found, access="write"))
    for path in ("/shared/alice/project", "/shared/alice/project/deep", "~/../alice/project"):
        with pytest.raises(RequestError):
            invite(found, BOB, path=path, invited="eve")
    (place.host / "homes/bob/project").symlink_to(place.host / "homes/alice/project")
    with pytest.raises(FolderError, match="a symbolic link"):
        invite(found, BOB, invited="eve")


def test_an_administrator_shares_no_folder_of_another(place: Place) -> None:
    with pytest.raises(AliquotError):
        invite(place.open(), ADA)


@as_root
def test_a_folder_of_another_account_in_the_users_own_files_is_not_theirs_to_share(place: Place) -> None:
    found = place.open()
    accept(found, invite(found))
    os.chown(place.host / "homes/alice/project", 12345, 12345)
    with pytest.raises(FolderError, match="another owner"):
        invite(found, invited="eve")
    assert mounted(found) == {}


@as_root
@pytest.mark.parametrize("kind", ["tmpfs", "bind"])
def test_another_file_system_or_a_bind_mount_on_the_way_is_refused(place: Place, kind: str) -> None:
    found = place.open()
    accept(found, invite(found, path="~/project/deep"))
    over = place.host / "homes/alice/project"
    how = ["-t", "tmpfs", "tmpfs"] if kind == "tmpfs" else ["--bind", str(over)]
    subprocess.run(["mount", *how, str(over)], check=True)
    try:
        (over / "deep").mkdir(exist_ok=True)
        for path in ("~/project", "~/project/deep"):
            with pytest.raises(FolderError, match="another file system"):
                invite(found, path=path, invited="eve")
        assert mounted(found) == {}
    finally:
        subprocess.run(["umount", str(over)], check=True)
    assert mounted(found)


@pytest.mark.parametrize("attack", ["link", "above", "folder", "gone"])
def test_a_folder_that_was_replaced_since_is_left_out_of_the_start_and_told(place: Place, attack: str) -> None:
    found = place.open()
    accept(found, invite(found, path="~/project/deep"))
    project, moved = place.host / "homes/alice/project", place.host / "homes/alice/moved"
    if attack == "above":
        project.rename(moved)
        project.symlink_to("moved")
    else:
        (project / "deep").rename(moved)
    if attack == "link":
        (project / "deep").symlink_to(place.host / "homes/bob")
    elif attack == "folder":
        (project / "deep").mkdir()
    assert found.mounts_of(BOB) == ()
    [invitation] = found.seen_by(ALICE)
    told, hidden = (invitation_report(found, invitation, who)["problem"] for who in (ALICE, BOB))
    assert "~/project/deep" in str(told)
    assert str(place.host) not in str(told)
    assert hidden == "The folder cannot be mounted now. Ask alice"
    [folder] = invited_folders(found, BOB)
    assert (folder["mine"], folder["source"]) == (False, None)


def test_a_replaced_folder_that_is_shared_again_is_accepted_again(place: Place) -> None:
    found = place.open()
    accept(found, invite(found))
    project = place.host / "homes/alice/project"
    project.rename(place.host / "homes/alice/old")
    project.mkdir()
    place.clock.seconds = NOON + 100 * 86400.0
    assert invite(found).accepted == frozenset()
    assert mounted(found) == {}
    assert len(found.seen_by(BOB)) == 1


def test_a_new_folder_that_gets_the_number_of_the_removed_one_is_not_shared(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File systems give the number of a removed folder to the next one, which its owner makes for themselves."""
    found = place.open()
    accept(found, invite(found, access="write"))
    assert mounted(found)
    shared = user_folder.identify_own(f"{place.host}/homes/alice", f"{place.host}/homes/alice/project", "~/project")
    later = replace(shared, born=shared.born + 1)
    monkeypatch.setattr(registry, "identify_own", lambda *_: later)
    again = place.open()
    assert mounted(again) == {}
    assert "it was replaced" in str(again.problem(again.seen_by(ALICE)[0]))
    assert invite(again).accepted == frozenset()


def test_the_time_at_which_a_folder_was_made_is_that_of_the_file_system(place: Place) -> None:
    folder = place.host / "homes/alice/project"
    told = subprocess.run(["stat", "-c", "%W", folder], check=True, capture_output=True, text=True).stdout
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        assert born_of(descriptor) // 1_000_000_000 == int(told)
    finally:
        os.close(descriptor)


def test_an_invitation_of_a_folder_whose_birth_was_not_told_is_compared_by_its_number(place: Place) -> None:
    found = place.open()
    accept(found, invite(found))
    content = json.loads(place.file.read_text())
    for absent in (None, 0.5):
        content["invitations"][0]["born"] = absent
        place.file.write_text(json.dumps(content))
        assert bool(mounted(place.open())) is (absent is None)


def test_write_is_given_only_where_the_owners_own_kernels_write(place: Place) -> None:
    found = place.open()
    with pytest.raises(RequestError, match="only read it"):
        invite(found, path="/data/sets/part", access="write")
    accept(found, invite(found, path="/data/sets/part"))
    assert mounted(found) == {"/shared/alice/part": True}
    # Writable when it was shared, and by now part of a folder that the administrator shares to be read.
    other = place.open(folders=[])
    accept(other, invite(other, path="~/sets/part", access="write"))
    assert mounted(other) == {"/shared/alice/part": False}
    assert mounted(place.open()) == {"/shared/alice/part": True}


def test_a_kernel_as_its_owners_account_names_folders_by_the_accounts_home(place: Place) -> None:
    home = f"{place.host}/homes/alice"
    place.account_homes["alice"] = home
    found = place.open(home="")
    assert invite(found, path=f"{home}/project", access="write").source == f"{home}/project"
    assert invite(found, path="~/project", access="write").source == f"{home}/project"


def test_what_the_configuration_forbids_by_now_and_a_removed_owner_mount_nothing(place: Place) -> None:
    found = place.open()
    accept(found, invite(found))
    assert mounted(place.open(user_roots=[])) == {}
    assert mounted(place.open(user_roots=[f"{place.host}/homes/{{user}}/public"])) == {}
    assert mounted(place.open())
    del place.users["alice"]
    assert mounted(found) == {}
    assert found.problem(found.seen_by(ADA)[0]) == "This server has no user 'alice' any more"


def test_each_sees_their_own_and_administrators_all(place: Place) -> None:
    found = place.open()
    invitation = invite(found)
    assert [len(found.seen_by(who)) for who in (ALICE, BOB, EVE, ADA)] == [1, 1, 0, 1]
    assert found.find(invitation.id, EVE) is None
    reports = {who.name: invitation_report(found, invitation, who) for who in (ALICE, BOB, ADA)}
    assert (reports["alice"]["path"], reports["alice"]["source"]) == ("/home/user/project", None)
    assert (reports["bob"]["path"], reports["bob"]["source"], reports["bob"]["accepted"]) == (None, None, None)
    assert reports["ada"]["source"] == f"{place.host}/homes/alice/project"
    assert [reports[who]["answer"] for who in ("alice", "bob", "ada")] == [None, "none", None]


@pytest.mark.parametrize(
    "change",
    [
        {"path": 5},
        {"path": "~/" + "x" * 1000},
        {"kind": "users"},
        {"invited": "*"},
        {"invited": ""},
        {"invited": "alice"},
        {"access": "own"},
        {"name": "../x"},
        {"name": "X"},
        {"name": "x" * 64},
        {"until": "tomorrow"},
        {"until": "2027-01-16T00:00:00"},
        {"until": "2020-01-01T00:00:00Z"},
        {"mode": "rw"},
    ],
)
def test_a_wrong_request_is_refused(place: Place, change: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        invite(place.open(), **change)


def test_a_name_stands_for_one_folder_of_its_owner(place: Place) -> None:
    found = place.open()
    invite(found)
    with pytest.raises(TakenError, match="Choose another name"):
        invite(found, path="~/project/deep", name="project")


def test_invitations_and_accepted_folders_are_bounded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MOST_OF_OWNER", 3)
    monkeypatch.setattr(registry, "MOST_ACCEPTED", 2)
    monkeypatch.setattr(registry, "MOST_ANSWERS", 1)
    found = place.open()
    made = [invite(found, name=name) for name in ("a", "b", "c")]
    with pytest.raises(LimitError, match="You have 3 invitations, and may have 3"):
        invite(found, name="d")
    invite(found, name="c", access="write")
    accept(found, made[0])
    accept(found, made[1])
    accept(found, made[1])
    with pytest.raises(LimitError, match="2 folders"):
        accept(found, made[2])
    found.end(made[2], ALICE)
    team = invite(found, kind="team", invited="vision")
    accept(found, team, User("zoe", "user", frozenset({"vision"})))
    with pytest.raises(LimitError, match="1 users have answered"):
        found.answer(team, BOB, is_accepted=False)


def test_a_few_owners_do_not_take_the_places_of_all(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("MOST", 6), ("MOST_OF_OWNER", 3), ("FEW_OF_OWNER", 1)):
        monkeypatch.setattr(registry, name, most)
    (place.host / "homes/bob/project").mkdir()
    found = place.open()
    for name in ("a", "b", "c"):
        invite(found, name=name)
    invite(found, BOB, invited="eve")
    with pytest.raises(LimitError, match="You have 1 invitations, and may have 1 on a server with 4 of them"):
        invite(found, BOB, invited="ada")
    invite(found, name="c", access="write")  # a change takes no place


def test_an_invitation_that_no_collaborator_answers_ends_by_itself(place: Place) -> None:
    found = place.open()
    answered, other = invite(found), invite(found, invited="eve")
    accept(found, answered)
    day = 86400.0
    place.clock.seconds = NOON + 89 * day
    assert len(found.seen_by(ADA)) == 2
    place.clock.seconds = NOON + 91 * day
    assert [one.id for one in found.seen_by(ADA)] == [answered.id]
    with pytest.raises(RequestError, match="has ended"):
        accept(found, other, EVE)
    assert mounted(found)
    # Inviting again in time lets it wait for as long again.
    invite(found, invited="eve")
    place.clock.seconds += 80 * day
    invite(found, invited="eve")
    place.clock.seconds += 80 * day
    assert len(found.seen_by(EVE)) == 1


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 2, "invitations": []}', '{"version": 1}', "\0"])
def test_a_damaged_file_is_set_aside_and_gives_nothing(place: Place, content: str) -> None:
    place.file.write_text(content)
    assert place.open().seen_by(ADA) == ()
    [aside] = place.file.parent.glob("invitations.json.unreadable-*")
    assert aside.read_text() == content


def test_a_damaged_entry_is_left_out_and_hides_no_other(place: Place) -> None:
    found = place.open()
    good = invitation_table(invite(found))
    bad = [{**good, "id": "x"}, {**good, "source": "../etc"}, {**good, "access": "own"}, {**good, "inode": 1.5}, 5]
    place.file.write_text(json.dumps({"version": 1, "invitations": [*bad, good]}))
    assert [invitation_table(one) for one in place.open().seen_by(ADA)] == [good]


def test_the_entries_that_were_left_out_stay_in_a_copy_when_the_file_is_replaced(place: Place) -> None:
    found = place.open()
    of_later_version = {**invitation_table(invite(found)), "color": "blue"}
    before = json.dumps({"version": 1, "invitations": [of_later_version]})
    place.file.write_text(before)
    again = place.open()
    assert again.seen_by(ADA) == ()
    for name in ("q", "r"):
        invite(again, name=name)
    [copy] = place.file.parent.glob("invitations.json.left-out-*")
    assert (copy.read_text(), copy.stat().st_mode & 0o777) == (before, 0o600)
    assert [one["name"] for one in json.loads(place.file.read_text())["invitations"]] == ["q", "r"]


def test_a_file_that_cannot_be_opened_is_kept_changes_are_refused_and_it_is_read_again(place: Place) -> None:
    found = place.open()
    accept(found, invite(found))
    place.file.rename(kept := place.host / "kept")
    place.file.mkdir()  # reading it fails, also for root
    again = place.open()
    assert (mounted(again), again.seen_by(ADA)) == ({}, ())
    with pytest.raises(StateError, match="cannot be read now"):
        invite(again, invited="eve")
    place.file.rmdir()
    kept.rename(place.file)
    assert mounted(again) == {"/shared/alice/project": True}
    assert again.seen_by(ALICE) == found.seen_by(ALICE)
    assert list(place.file.parent.iterdir()) == [place.file]


def test_a_change_that_cannot_be_written_is_no_change(place: Place) -> None:
    found = place.open()
    invitation = invite(found)
    place.file.parent.rename(place.host / "away")
    for change in (
        lambda: accept(found, invitation),
        lambda: found.end(invitation, ALICE),
        lambda: invite(found, invited="eve"),
    ):
        with pytest.raises(StateError):
            change()
    assert found.seen_by(ADA) == (invitation,)


@pytest.mark.parametrize(
    ("knobs", "want"),
    [
        ({"user_roots": ["/srv/elsewhere/{user}"]}, "none of the configured roots"),
        ({"user_roots": ["{host}/homes/alice"]}, "has not one {user}"),
        ({"user_roots": ["{host}/homes/{user}/{user}"]}, "has not one {user}"),
        ({"user_roots": ["/{user}"]}, "has not one {user}"),
        ({"invited_target": "/etc"}, "the system has a folder there"),
        ({"invited_target": "/home/user/shared"}, "none holds the other"),
        ({"invited_target": "/data"}, "none holds the other"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(place: Place, knobs: dict[str, Any], want: str) -> None:
    filled = {
        name: [one.replace("{host}", str(place.host)) for one in value] if isinstance(value, list) else value
        for name, value in knobs.items()
    }
    with pytest.raises(TraitError) as caught:
        place.open(**filled)
    assert want in str(caught.value)
