"""Shared folders over REST: administrators change them, and users see their own.

Every answer keeps the contract.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from .conftest import USERS, Ask
from .test_contract import check

ALL, ONE = "/aliquot/api/v1/folders", "/aliquot/api/v1/folders/{name}"


@pytest.fixture
def users() -> dict[str, dict[str, Any]]:
    return {**USERS, "bob": {**USERS["bob"], "teams": ["vision"]}}


@pytest.fixture
def host(tmp_path: Path) -> Path:
    host = Path(os.path.realpath(tmp_path)) / "host"
    for name in ("homes", "sets", "vision"):
        (host / name).mkdir(parents=True)
    return host


@pytest.fixture
def jp_server_config(jp_server_config: Config, host: Path) -> Config:
    sets = {"name": "sets", "source": f"{host}/sets", "target": "/data/sets", "users": ["alice"]}
    knobs = {"roots": [str(host)], "home": f"{host}/homes/{{user}}", "folders": [sets]}
    jp_server_config.SharedFolders = Config(knobs)
    return jp_server_config


def vision(host: Path, **change: Any) -> dict[str, Any]:
    return {"source": f"{host}/vision", "target": "/data/vision", "teams": ["vision"], "read_only": False, **change}


async def seen(ask: Ask, who: str) -> dict[str, Any]:
    body = check(await ask(who, "GET", ALL), ALL)
    return {folder["name"]: folder for folder in body["folders"]}


async def test_users_see_what_their_kernels_get_and_nothing_of_the_host(ask: Ask, host: Path) -> None:
    answer = await ask("ada", "PUT", "aliquot/api/v1/folders/vision", body=vision(host))
    assert check(answer, ONE, "put")["source"] == f"{host}/vision"
    alices, bobs = await seen(ask, "alice"), await seen(ask, "bob")
    assert (set(alices), set(bobs)) == ({"home", "sets"}, {"home", "vision"})
    assert (bobs["vision"]["target"], bobs["vision"]["read_only"], bobs["vision"]["mine"]) == (
        "/data/vision",
        False,
        True,
    )
    for folder in (*alices.values(), *bobs.values()):
        assert (folder["source"], folder["users"], folder["teams"]) == (None, None, None)


async def test_administrators_see_all_and_which_are_theirs(ask: Ask, host: Path) -> None:
    await ask("ada", "PUT", "aliquot/api/v1/folders/vision", body=vision(host))
    all_of_them = await seen(ask, "ada")
    assert {name: folder["mine"] for name, folder in all_of_them.items()} == {
        "home": True,
        "sets": False,
        "vision": False,
    }
    assert all_of_them["vision"]["teams"] == ["vision"]
    assert (all_of_them["sets"]["origin"], all_of_them["vision"]["origin"]) == ("configuration", "request")


async def test_users_change_nothing(ask: Ask, host: Path) -> None:
    for who, method in itertools.product(("bob", "alice", "nobody"), ("PUT", "DELETE")):
        body = vision(host, users=[who]) if method == "PUT" else None
        answer = await ask(who, method, "aliquot/api/v1/folders/vision", body=body)
        assert answer.status == 403, (who, method)
        assert set(await seen(ask, "ada")) == {"home", "sets"}, (who, method)


WRONG_FOLDERS = (
    ("vision", {"source": "/etc"}, 400),
    ("vision", {"source": "{host}/vision/../sets"}, 400),
    ("vision", {"source": "{host}/homes"}, 400),
    ("vision", {"target": "/etc"}, 400),
    ("vision", {"target": "/data/sets"}, 400),
    ("vision", {"teams": []}, 400),
    ("vision", {"mode": "rw"}, 400),
    ("vision", {"source": 5}, 400),
    ("VISION", {}, 400),
    ("home", {}, 400),
    ("%2e%2e", {}, 400),
    ("vision", {"source": "{host}/nothing"}, 409),
    ("vision", {"source": "{host}/link"}, 409),
    ("sets", {"target": "/data/other"}, 409),
)


async def test_a_wrong_folder_is_refused_and_changes_nothing(ask: Ask, host: Path) -> None:
    (host / "link").symlink_to("/etc")
    for name, change, status in WRONG_FOLDERS:
        filled = {k: v.replace("{host}", str(host)) if isinstance(v, str) else v for k, v in change.items()}
        answer = await ask("ada", "PUT", f"aliquot/api/v1/folders/{name}", body=vision(host, **filled))
        assert answer.status == status, (name, change)
        check(answer, ONE, "put")
        assert set(await seen(ask, "ada")) == {"home", "sets"}, (name, change)


async def test_a_body_that_is_no_table_is_refused(ask: Ask) -> None:
    for body in (b"[]", b"5", b"{", b"null", b""):
        assert (await ask("ada", "PUT", "aliquot/api/v1/folders/vision", body=body)).status == 400, body


async def test_a_folder_is_taken_back_once(ask: Ask, host: Path) -> None:
    await ask("ada", "PUT", "aliquot/api/v1/folders/vision", body=vision(host))
    want = [("vision", 200), ("vision", 404), ("sets", 409)]
    for name, status in want:
        answer = await ask("ada", "DELETE", f"aliquot/api/v1/folders/{name}")
        assert answer.status == status
        check(answer, ONE, "delete")
    assert set(await seen(ask, "bob")) == {"home"}
