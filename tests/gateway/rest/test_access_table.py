"""Access to every path of kernels, sessions and our API, for each role, as one table.

A test also checks that each path has a row. All other paths belong to test_every_route.py: only an
administrator gets anything there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from access_rows import ROLES, TABLE, Row
from contract_files import API
from jupyter_server.serverapp import ServerApp
from tornado.web import RequestHandler
from tornado.websocket import WebSocketHandler

from .conftest import TOKENS, Answer, Ask
from .routes import KERNELS, NOTHING, routes, sample
from .test_contract import until

# The users in the roles. Of the two with a share, one has it by name and one by team.
WHO = dict(zip(ROLES, ("nobody", "bob", "carol", "rita", "wanda", "alice", "ada"), strict=True))
OURS = re.compile(r"/aliquot/.*")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@pytest.fixture
def users() -> dict[str, dict[str, Any]]:
    teams = {"alice": ["vision"], "carol": ["vision"], "wanda": ["writers"]}
    names = [who for who in WHO.values() if who not in ("nobody", "ada")]
    return {
        **{name: {"token": TOKENS[name], "teams": teams.get(name, [])} for name in names},
        "ada": {"token": TOKENS["ada"], "role": "admin", "teams": ["vision"]},
    }


@dataclass(frozen=True)
class Things:
    """The ids that rows name.

    ``sessions`` has a session of each user.
    """

    kernel: str
    session: str
    sessions: dict[str, str]

    def fill(self, template: Any, who: str) -> Any:
        if isinstance(template, dict):
            return {name: self.fill(value, who) for name, value in template.items()}
        own = self.sessions.get(who, NOTHING)
        return template.format(k=self.kernel, s=self.session, b=own, n=NOTHING, who=f"of {who}")


async def start_session(ask: Ask, who: str, kernel: dict[str, str]) -> Any:
    body = {"path": f"a notebook of {who}.ipynb", "type": "notebook", "kernel": kernel}
    answer = await ask(who, "POST", "api/sessions", body=body)
    assert answer.status == 201, answer
    return answer.json


async def make_things(ask: Ask) -> Things:
    """Start Alice's kernel with a session, shared with two, and a session of each user."""
    alices = await start_session(ask, "alice", {"name": "python3"})
    kernel = alices["kernel"]["id"]
    # The table is for running kernels: an interrupt during a start is another story.
    await until(
        lambda: ask("alice", "GET", "api/kernels", kernel), lambda found: found.json["execution_state"] == "idle"
    )
    for share, access in (("users/rita", "read"), ("teams/writers", "write")):
        path = f"aliquot/api/v1/kernels/{kernel}/shares/{share}"
        answer = await ask("alice", "PUT", path, body={"access": access})
        assert answer.status == 200, answer
    own = {who: await start_session(ask, who, {"name": "python3"}) for who in ("bob", "carol")}
    bound = {who: await start_session(ask, who, {"id": kernel}) for who in ("rita", "wanda", "ada")}
    body = {"path": "another.ipynb", "type": "notebook", "kernel": {"id": kernel}}
    second = (await ask("alice", "POST", "api/sessions", body=body)).json
    everybodys = {**own, **bound, "alice": second}
    return Things(kernel, alices["id"], {who: session["id"] for who, session in everybodys.items()})


async def test_every_path_answers_everybody_as_the_table_says(
    ask: Ask, record_property: Callable[[str, object], None]
) -> None:
    things, wrong, unauthorised, asked = await make_things(ask), [], [], 0
    for row in [*for_no_kernel(TABLE), *TABLE]:
        for role, want in zip(ROLES, row.want, strict=True):
            got = (await request(ask, row, things, WHO[role])).status
            asked += 1
            if got != want:
                wrong.append((row.method, row.path, role, f"wanted {want}", f"got {got}"))
            # A redirection leads to the login.
            if got < 300 <= want:
                unauthorised.append((row.method, row.path, role, got))
    record_property("requests", asked)
    record_property("unauthorised", len(unauthorised))
    print(f"{asked} requests, {len(unauthorised)} unauthorised accesses")
    assert unauthorised == [], unauthorised
    assert wrong == [], wrong
    assert asked >= len(TABLE) * len(ROLES) > 350


async def request(ask: Ask, row: Row, things: Things, who: str) -> Answer:
    path, body = things.fill(row.path, who), None if row.body is None else things.fill(row.body, who)
    path, _, query = path.partition("?")
    more = {"params": dict(part.split("=") for part in query.split("&"))} if query else {}
    answer: Answer = await ask(who, row.method, path, body=body, **more)
    return answer


def for_no_kernel(table: tuple[Row, ...]) -> list[Row]:
    """Return rows with the same paths, and an id that no kernel has.

    Every user gets the same answer there as a user who may not see a kernel.
    """
    nothing = [404] * (len(ROLES) - 1)
    one_kernel = [row for row in table if "{k}" in row.path]
    return [replace(row, path=row.path.replace("{k}", "{n}"), want=(row.want[0], *nothing)) for row in one_kernel]


async def test_somebody_elses_kernel_and_none_answer_alike_to_the_letter(ask: Ask) -> None:
    things, different, asked = await make_things(ask), [], 0
    for row in TABLE:
        if "{k}" not in row.path or row.method == "WEBSOCKET":
            continue
        nobodys = replace(row, path=row.path.replace("{k}", "{n}"))
        for who in ("bob", "carol"):
            there, nowhere = [await request(ask, one, things, who) for one in (row, nobodys)]
            asked += 1
            if (there.status, there.body) != (
                nowhere.status,
                nowhere.body.replace(NOTHING.encode(), things.kernel.encode()),
            ):
                different.append((who, row.method, row.path, there, nowhere))
    assert different == []
    assert asked > 20


def has_row(method: str, path: str) -> bool:
    return any(row.method == method and row.matches(path) for row in TABLE)


def test_every_route_of_kernels_sessions_and_our_api_has_a_row(a_server: ServerApp, jp_base_url: str) -> None:
    missing, found = [], 0
    for pattern, handler in routes(a_server.web_app.default_router.rules):
        path = sample(pattern).removeprefix(jp_base_url.rstrip("/"))
        if not (KERNELS.fullmatch(path) or OURS.fullmatch(path)):
            continue
        for method in implemented(handler):
            found += 1
            if not has_row(method, path):
                missing.append((method, path, handler.__name__))
    assert missing == [], missing
    assert found > 30


def implemented(handler: type) -> list[str]:
    """Return the methods that the handler answers; a websocket begins as a GET."""
    if issubclass(handler, WebSocketHandler):
        return ["WEBSOCKET"]
    return [
        method
        for method in METHODS
        if issubclass(handler, RequestHandler)
        and getattr(handler, method.lower()) is not getattr(RequestHandler, method.lower())
    ]


def test_every_operation_of_the_contract_has_a_row() -> None:
    values = {"kernel_id": NOTHING, "kind": "users", "name": "x", "id": "x"}
    missing = [
        (method, path)
        for path, methods in API["paths"].items()
        for method in methods
        if not has_row("WEBSOCKET" if path.endswith(("/events", "/agents")) else method.upper(), path.format(**values))
    ]
    assert missing == []


async def test_asking_what_may_be_asked_tells_nothing(ask: Ask) -> None:
    things = await make_things(ask)
    for path in sorted({row.path for row in TABLE if row.method != "WEBSOCKET"}):
        for who in ("nobody", "bob"):
            answer = await ask(who, "OPTIONS", things.fill(path.partition("?")[0], who))
            if answer.status < 300:
                assert answer.body == b"", (who, path, answer)
            else:
                assert answer.status in (302, 403, 404, 405), (who, path, answer)
