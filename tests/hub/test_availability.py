"""How the Hub's process asks gateways for their free GPUs, over real sockets."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("jupyterhub", reason="jupyterhub is not installed")
from jupyterhub import orm, roles
from ports import free_port
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler

from jupyter_aliquot.gateway.hub import HubConfigError, HubSettings, availability
from jupyter_aliquot.gateway.hub.availability import DOWN, OTHER, REFUSES, Availabilities, Availability, Questions
from jupyter_aliquot.gateway.hub.gateways import Gateways
from jupyter_aliquot.gateway.hub.tokens import availability_token

LOG = logging.getLogger("test")
DEVICE = {"lost": False, "reserved_gpus": 0.25}
STATUS: dict[str, Any] = {"node": {"overcommit": 1.0}, "devices": [DEVICE, DEVICE, {**DEVICE, "lost": True}]}


def gateways_at(*ports: int) -> Gateways:
    entries = [
        {"name": f"gpu-{number}", "url": f"http://127.0.0.1:{port}", "api_token": f"a long random text {number}"}
        for number, port in enumerate(ports, 1)
    ]
    return Gateways.of(HubSettings(gateways=entries))


def a_spawner() -> Any:
    user = SimpleNamespace(name="alice")
    return SimpleNamespace(hub=SimpleNamespace(base_url="/at/hub/"), log=LOG, user=user, db=None)


@pytest.fixture(autouse=True)
def no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "availability_token", lambda db, service, seconds: f"a-token-for-{service}")


def answered(status: int, body: Any, ask: Callable[[int], Awaitable[Any]]) -> tuple[Any, list[tuple[str, str]]]:
    """Return what *ask* finds at the port of a server that answers so, and the requests that came."""
    came: list[tuple[str, str]] = []

    class Answer(RequestHandler):
        async def get(self) -> None:
            came.append((self.request.path, self.request.headers["Authorization"]))
            self.set_status(status)
            self.finish(body if isinstance(body, (str, bytes)) else json.dumps(body))

    async def serve() -> Any:
        socket, port = bind_unused_port()
        server = HTTPServer(Application([(r".*", Answer)]))
        server.add_sockets([socket])
        try:
            return await ask(port)
        finally:
            server.stop()

    return asyncio.run(serve()), came


async def asked_at(port: int) -> Availability:
    gateways = gateways_at(port)
    return await Availabilities(gateways).at_start(gateways.each[0], a_spawner())


def test_the_free_gpus_of_a_gateway_are_those_that_no_kernel_has() -> None:
    found, came = answered(200, STATUS, asked_at)
    assert (found.is_up, found.free_gpus, found.gpus, found.phrase()) == (True, 1.5, 2, "1.5 of 2 GPUs free")
    assert came == [("/at/services/gpu-1/aliquot/api/v1/status", "token a-token-for-gpu-1")]


@pytest.mark.parametrize(
    ("status", "body", "want"),
    [
        (403, {}, REFUSES),
        (401, {}, REFUSES),
        (404, "not found", OTHER),
        (302, "", OTHER),
        (200, "<html>another program</html>", OTHER),
        (200, b"\xff\xfe", OTHER),
        (200, [], OTHER),
        (200, {"node": {}, "devices": []}, OTHER),
        (200, {"node": {"overcommit": 1}, "devices": [{"lost": False, "reserved_gpus": "x"}]}, OTHER),
        (500, {}, DOWN),
        (503, {}, DOWN),
    ],
)
def test_an_answer_that_is_no_gateways_of_this_name_is_told_apart(status: int, body: Any, want: str) -> None:
    found, _ = answered(status, body, asked_at)
    assert (found.problem, found.phrase() != "", found.sentence() != "") == (want, True, True), found


def test_a_gateway_that_nothing_listens_for_is_down() -> None:
    found = asyncio.run(asked_at(free_port()))
    assert (found.problem, "refused" in found.reason) == (DOWN, True)


def test_a_gateway_that_takes_connections_and_never_answers_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "PAGE_SECONDS", 0.5)
    # The page's own limit has to end it, not the client's.
    monkeypatch.setattr(Questions, "ask", patient(Questions.ask))

    async def page() -> dict[str, Availability]:
        async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        hanging = await asyncio.start_server(hold, "127.0.0.1", 0)
        found = await Availabilities(gateways_at(hanging.sockets[0].getsockname()[1])).on_page(a_spawner())
        hanging.close()
        return found

    found = asyncio.run(page())["gpu-1"]
    assert (found.problem, found.reason) == (DOWN, "no answer within 0.5 s")


def patient(ask: Any) -> Any:
    async def asked(self: Questions, gateway: Any, spawner: Any, seconds: float) -> Availability:
        found: Availability = await ask(self, gateway, spawner, 600.0)
        return found

    return asked


def test_a_gateway_that_hangs_takes_no_other_one_from_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "PAGE_SECONDS", 0.5)

    async def ask(gateway: Any, spawner: Any, seconds: float) -> Availability:
        if gateway.name == "gpu-1":
            await asyncio.Event().wait()
        return Availability(1.0, 1)

    found = asyncio.run(Availabilities(gateways_at(1, 2), ask).on_page(a_spawner()))
    assert (found["gpu-1"].problem, found["gpu-2"].is_up) == (DOWN, True)


def test_pages_that_come_together_ask_a_gateway_once_and_a_start_asks_anew() -> None:
    asked: list[str] = []
    now = [1000.0]

    async def ask(gateway: Any, spawner: Any, seconds: float) -> Availability:
        asked.append(gateway.name)
        await asyncio.sleep(0)
        return Availability(1.0, 1)

    async def pages() -> None:
        gateways = gateways_at(1, 2)
        known = Availabilities(gateways, ask, lambda: now[0])
        await asyncio.gather(*(known.on_page(a_spawner()) for _ in range(20)))
        assert sorted(asked) == ["gpu-1", "gpu-2"]
        now[0] += 4.0
        await known.on_page(a_spawner())
        assert len(asked) == 2, "an answer counts for five seconds"
        await known.at_start(gateways.each[1], a_spawner())
        assert asked[2:] == ["gpu-2"]
        now[0] += 2.0
        await known.on_page(a_spawner())
        assert asked[3:] == ["gpu-1"], "the start's answer counts for pages, too"

    asyncio.run(pages())


def test_the_pages_token_opens_one_gateway_and_expires() -> None:
    db = orm.new_session_factory("sqlite://")()
    for name in ("gpu-1", "gpu-2"):
        page = orm.Service(name=f"{name}-availability")
        db.add(page)
        db.commit()
        roles.create_role(db, {"name": f"of-{name}", "scopes": [f"access:services!service={name}"]})
        roles.grant_role(db, page, f"of-{name}")
    db.add(orm.OAuthClient(identifier="jupyterhub"))
    db.commit()
    stored = orm.APIToken.find(db, availability_token(db, "gpu-2", 3600))
    assert (stored.service.name, stored.scopes) == ("gpu-2-availability", ["access:services!service=gpu-2"])
    assert stored.expires_at is not None
    with pytest.raises(HubConfigError, match=r"no service 'gpu-3-availability'.*Call configure\(\) last"):
        availability_token(db, "gpu-3", 3600)
    db.close()
