"""Invitations to users' folders over REST: who sees what, who may do what, and the audit."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any, cast

import pytest
from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

from jupyter_aliquot.gateway import extension
from jupyter_aliquot.gateway.auth.identity import AliquotIdentityProvider
from jupyter_aliquot.gateway.containers.planner import ContainerStart
from jupyter_aliquot.gateway.kernels.manager import AliquotKernelManager
from jupyter_aliquot.provisioner.resources import NO_HOST_PART, HostPart

from .conftest import USERS, Ask
from .test_contract import check, until

ALL = "/aliquot/api/v1/invitations"
ONE, ACCEPT, DECLINE = f"{ALL}/{{id}}", f"{ALL}/{{id}}/accept", f"{ALL}/{{id}}/decline"
FOLDERS = "/aliquot/api/v1/folders"
BODY = {"path": "~/project", "kind": "user", "invited": "bob"}


@pytest.fixture
def users() -> dict[str, dict[str, Any]]:
    return {**USERS, "carol": {"token": "a-token-of-carol", "teams": ["vision"]}}


@pytest.fixture
def host(tmp_path: Path) -> Path:
    host = Path(os.path.realpath(tmp_path)) / "host"
    for name in ("alice/project", "bob", "carol", "ada"):
        (host / "homes" / name).mkdir(parents=True)
    return host


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def jp_server_config(jp_server_config: Config, host: Path, state: Path) -> Config:
    homes = f"{host}/homes/{{user}}"
    jp_server_config.SharedFolders = Config({"roots": [f"{host}/homes"], "home": homes, "user_roots": [homes]})
    image = {"name": "box", "image": "example/box:1", "display_name": "Box"}
    jp_server_config.ImageCatalogue = Config({"images": [image]})
    jp_server_config.Aliquot.state_dir = str(state)
    return jp_server_config


async def invited(ask: Ask, **change: Any) -> dict[str, Any]:
    found: dict[str, Any] = check(await ask("alice", "POST", ALL, body={**BODY, **change}), ALL, "post")
    return found


def audit_in(state: Path) -> list[dict[str, Any]]:
    [file] = state.rglob("audit.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


async def planned(server: ServerApp, owner: str, part: HostPart = NO_HOST_PART) -> list[tuple[str, str, bool]]:
    """Return the mounts of a kernel that this user starts now: source, target, and whether read-only."""
    planner = cast(AliquotKernelManager, server.kernel_manager).services.containers
    assert planner is not None
    plan = await planner.plan(ContainerStart(kernel_name="box", owner=owner, host=part))
    assert plan is not None
    return [(mount.source, mount.target, mount.read_only) for mount in plan.mounts]


async def seen(ask: Ask, who: str) -> list[dict[str, Any]]:
    body = check(await ask(who, "GET", ALL), ALL)
    assert body["refusal"] is None
    found: list[dict[str, Any]] = body["invitations"]
    return found


async def test_a_kernel_whose_user_chose_its_folders_has_none_of_other_users(a_server: ServerApp, ask: Ask) -> None:
    made = await invited(ask, access="write")
    assert (await ask("bob", "POST", f"aliquot/api/v1/invitations/{made['id']}/accept", body={})).status == 200
    assert [target for _, target, _ in await planned(a_server, "bob")] == ["/home/user", "/shared/alice/project"]
    assert [target for _, target, _ in await planned(a_server, "bob", HostPart(folders=()))] == ["/home/user"]


async def test_an_invitation_is_seen_accepted_listed_with_the_folders_and_ended(
    ask: Ask, host: Path, state: Path
) -> None:
    made = await invited(ask, access="write")
    assert (made["name"], made["target"], made["path"]) == ("project", "/shared/alice/project", "~/project")
    [bobs] = await seen(ask, "bob")
    assert (bobs["owner"], bobs["access"], bobs["answer"], bobs["path"], bobs["source"]) == (
        "alice",
        "write",
        "none",
        None,
        None,
    )
    assert await seen(ask, "carol") == []
    one = f"aliquot/api/v1/invitations/{made['id']}"
    assert check(await ask("bob", "POST", f"{one}/accept", body={}), ACCEPT, "post")["answer"] == "accepted"
    [folder] = [one for one in check(await ask("bob", "GET", FOLDERS), FOLDERS)["folders"] if one["kind"] == "invited"]
    assert (folder["name"], folder["target"], folder["read_only"], folder["mine"]) == (
        "alice/project",
        "/shared/alice/project",
        False,
        True,
    )
    [mine] = await seen(ask, "alice")
    assert mine["accepted"] == ["bob"]
    [adas] = await seen(ask, "ada")
    assert (adas["source"], adas["answer"]) == (f"{host}/homes/alice/project", None)
    assert check(await ask("ada", "DELETE", one), ONE, "delete")["id"] == made["id"]
    assert (await ask("alice", "DELETE", one)).status == 404
    assert [await seen(ask, who) for who in ("alice", "bob", "ada")] == [[], [], []]
    told = audit_in(state)
    assert [(line["action"], line["subject"], line["by"]) for line in told] == [
        ("invite", "alice/project", "alice"),
        ("accept", "alice/project", "bob"),
        ("uninvite", "alice/project", "ada"),
    ]


async def test_the_plan_of_a_collaborators_container_has_the_folder_until_the_invitation_ends(
    ask: Ask, host: Path, a_server: ServerApp
) -> None:
    made = await invited(ask)
    one = f"aliquot/api/v1/invitations/{made['id']}"
    assert (await ask("bob", "POST", f"{one}/accept", body={})).status == 200
    source, target = f"{host}/homes/alice/project", "/shared/alice/project"
    assert (source, target, True) in await planned(a_server, "bob")
    assert target not in [found for _, found, _ in await planned(a_server, "carol")]
    assert (await ask("alice", "DELETE", one)).status == 200
    assert target not in [found for _, found, _ in await planned(a_server, "bob")]


async def test_an_administrator_sees_and_ends_what_a_removed_user_shared(
    ask: Ask, state: Path, a_server: ServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extension, "REMOVED_USERS_SECONDS", 0.05)
    made = await invited(ask)
    one = f"aliquot/api/v1/invitations/{made['id']}"
    assert (await ask("bob", "POST", f"{one}/accept", body={})).status == 200
    provider = cast(AliquotIdentityProvider, a_server.identity_provider)
    users = provider.users
    provider.users = {name: entry for name, entry in users.items() if name != "alice"}
    await until(lambda: asyncio.to_thread(audit_in, state), lambda told: told[-1]["action"] == "orphan")
    provider.users = users
    assert "/shared/alice/project" not in [found for _, found, _ in await planned(a_server, "bob")]
    assert await seen(ask, "bob") == []
    [adas] = await seen(ask, "ada")
    assert "was removed from this server" in adas["problem"]
    assert (await ask("ada", "DELETE", one)).status == 200
    assert [await seen(ask, who) for who in ("alice", "ada")] == [[], []]


async def test_each_does_their_own_part_alone(ask: Ask) -> None:
    made = await invited(ask, kind="team", invited="vision")
    one = f"aliquot/api/v1/invitations/{made['id']}"
    want = {
        ("bob", "DELETE", ""): 404,
        ("bob", "POST", "/accept"): 404,
        ("carol", "DELETE", ""): 403,
        ("alice", "POST", "/accept"): 403,
        ("ada", "POST", "/accept"): 403,
        ("carol", "POST", "/accept"): 200,
        ("carol", "POST", "/decline"): 200,
        ("alice", "DELETE", ""): 200,
    }
    for (who, method, path), status in want.items():
        answer = await ask(who, method, one + path, body={} if method == "POST" else None)
        assert answer.status == status, (who, method, path)
        check(answer, ONE + path, method.lower())


WRONG_INVITATIONS = (
    ({"path": "/etc"}, 400),
    ({"path": "~/../bob"}, 400),
    ({"path": "~"}, 400),
    ({"path": "~/missing"}, 409),
    ({"path": "~/link"}, 409),
    ({"path": 5}, 400),
    ({"kind": "users"}, 400),
    ({"invited": "alice"}, 400),
    ({"access": "own"}, 400),
    ({"until": "yesterday"}, 400),
    ({"owner": "bob"}, 400),
)


async def test_a_wrong_invitation_is_refused_and_changes_nothing(ask: Ask, host: Path) -> None:
    (host / "homes/alice/link").symlink_to("project")
    for change, status in WRONG_INVITATIONS:
        answer = await ask("alice", "POST", ALL, body={**BODY, **change})
        assert answer.status == status, change
        check(answer, ALL, "post")
        assert await seen(ask, "ada") == [], change


async def test_a_body_that_is_no_table_is_refused(ask: Ask) -> None:
    for body in (b"[]", b"5", b"{", b"null", b""):
        assert (await ask("alice", "POST", ALL, body=body)).status == 400, body
