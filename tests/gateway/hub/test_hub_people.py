"""The Hub's last report about users who make no request just now."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.hub_service.user_cache import HubPeople

LOG = logging.getLogger(__name__)
ALICE = User("alice", "admin", frozenset({"vision"}))


def test_teams_are_as_the_hub_told_last() -> None:
    people = HubPeople(LOG)
    people.meet(ALICE)
    assert people.named("alice") == ALICE
    assert people.named("somebody") == User("somebody", "user")


def test_a_restarted_gateway_knows_the_teams_and_asks_anew_who_is_an_administrator(tmp_path: Path) -> None:
    people = HubPeople(LOG)
    people.keep_in(tmp_path / "people.json")
    people.meet(ALICE)
    asyncio.run(people.save())
    assert (tmp_path / "people.json").stat().st_mode & 0o777 == 0o600
    again = HubPeople(LOG)
    again.keep_in(tmp_path / "people.json")
    assert again.named("alice") == User("alice", "user", frozenset({"vision"}))


def test_what_could_not_be_written_is_written_when_the_disk_has_room_again(tmp_path: Path) -> None:
    file = tmp_path / "people.json"
    people = HubPeople(LOG)
    people.keep_in(file)
    people.meet(ALICE)
    in_the_way = tmp_path / ".people.json.new"
    in_the_way.mkdir()
    asyncio.run(people.save())
    assert not file.exists()
    in_the_way.rmdir()
    asyncio.run(people.save())
    again = HubPeople(LOG)
    again.keep_in(file)
    assert again.named("alice").teams == ALICE.teams


@pytest.mark.parametrize("text", ["", "[]", '{"alice": 3}', "\xff"])
def test_a_file_that_cannot_be_read_is_left_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "people.json").write_text(text, encoding="latin-1")
    people = HubPeople(LOG)
    people.keep_in(tmp_path / "people.json")
    people.meet(ALICE)
    assert people.named("alice") == ALICE
