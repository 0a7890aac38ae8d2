"""Users without a server in the Hub: the Hub must say so, and its silence counts for nothing."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from urllib.parse import unquote

import pytest
from traitlets import TraitError

from jupyter_aliquot.gateway.culling.policy import Policy
from jupyter_aliquot.gateway.hub_service.user_cache import service_name
from jupyter_aliquot.gateway.hub_service.user_servers import ASK_AGAIN_SECONDS, HubQuestions, HubServers, hub_servers

LOG = logging.getLogger("test")


class Clock:
    seconds = 1000.0

    def now(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("a test looks by itself")


class Hub:
    """A Hub that answers these pages, one by one.

    Without ``pages`` it is away, and raises. ``stopped`` are the servers that it remembers,
    ``options`` those of a user's running servers.
    """

    def __init__(self, *pages: list[str]) -> None:
        self.pages: list[list[str]] | None = list(pages)
        self.api_url = "http://hub/api"
        self.stopped: dict[str, Any] = {}
        self.options: dict[str, list[Any]] = {}
        self.services = ["aliquot", "gpu-1", "gpu-2"]
        self.asked: list[str] = []

    async def _api_request(self, method: str, url: str, headers: dict[str, str]) -> Any:
        if self.pages is None:
            raise OSError("no Hub")
        if url == "http://hub/api/services":
            return {name: {"name": name} for name in self.services}
        path, _, query = url.removeprefix("http://hub/api/users").partition("?")
        if path:
            assert query == "include_stopped_servers=1"
            self.asked.append(path)
            return {"servers": self.stopped[unquote(path[1:])]}
        offset = int(query.rpartition("offset=")[2])
        following = {"offset": offset + 1} if offset + 1 < len(self.pages) else None
        return {"items": [self._user(name) for name in self.pages[offset]], "_pagination": {"next": following}}

    def _user(self, name: str) -> dict[str, Any]:
        servers = {str(at): {"user_options": told} for at, told in enumerate(self.options.get(name, [{}]))}
        return {"name": name, "servers": servers}


USED = {"": {"last_activity": "2026-01-01T00:00:00Z"}}
ONLY_LOOKED_AT = {"": {"last_activity": None}}


def servers_of(hub: Hub, clock: Clock) -> HubServers:
    return HubServers(HubQuestions(hub, "gpu-1"), clock, LOG)


def test_a_server_counts_as_gone_from_when_it_was_first_missed() -> None:
    hub, clock = Hub(["ada"], ["alice"]), Clock()
    servers = servers_of(hub, clock)
    assert servers.gone_since("alice") is None
    asyncio.run(servers.refresh())
    assert servers.gone_since("alice") is None
    hub.pages, clock.seconds = [["ada"]], 1100.0
    asyncio.run(servers.refresh())
    assert servers.gone_since("alice") == 1100.0
    clock.seconds = 1150.0
    asyncio.run(servers.refresh())
    assert servers.gone_since("alice") == 1100.0
    hub.pages, clock.seconds = [["alice"]], 1200.0
    asyncio.run(servers.refresh())
    assert servers.gone_since("alice") is None
    assert hub.asked == [], "who was seen with a server is not asked about"


def test_nobodys_server_has_gone_while_the_hub_does_not_answer() -> None:
    hub, clock = Hub(["bob"]), Clock()
    servers = servers_of(hub, clock)
    asyncio.run(servers.refresh())
    assert servers.gone_since("bob") is None
    hub.pages = [["ada"]]
    asyncio.run(servers.refresh())
    assert servers.gone_since("bob") == 1000.0
    hub.pages = None
    asyncio.run(servers.refresh())
    assert servers.gone_since("bob") is None
    hub.pages, clock.seconds = [["ada"]], 1300.0
    asyncio.run(servers.refresh())
    assert servers.gone_since("bob") == 1000.0, "a moment without an answer begins no new time"


def test_a_restarted_gateway_asks_the_hub_who_had_a_server() -> None:
    hub, clock = Hub([]), Clock()
    hub.stopped = {"bob/%": USED, "carol": ONLY_LOOKED_AT, "dora": {}}
    servers, users = servers_of(hub, clock), ["bob/%", "carol", "dora", "erased"]
    asyncio.run(servers.refresh())
    assert [servers.gone_since(user) for user in users] == [None] * 4
    clock.seconds = 1030.0
    asyncio.run(servers.refresh())
    assert [servers.gone_since(user) for user in users] == [1030.0, None, None, None]
    assert hub.asked == ["/bob%2F%25", "/carol", "/dora", "/erased"]


def test_who_had_none_is_asked_about_again_after_a_while_and_only_while_there_is_a_kernel() -> None:
    hub, clock = Hub([]), Clock()
    hub.stopped = {"carol": {}, "dora": {}}
    servers = servers_of(hub, clock)
    asyncio.run(servers.refresh())
    servers.gone_since("dora")
    for _ in range(3):
        servers.gone_since("carol")
        asyncio.run(servers.refresh())
    assert hub.asked == ["/carol", "/dora"]
    clock.seconds += ASK_AGAIN_SECONDS
    hub.stopped["carol"] = USED
    servers.gone_since("carol")
    asyncio.run(servers.refresh())
    assert hub.asked == ["/carol", "/dora", "/carol"]
    assert servers.gone_since("carol") == clock.seconds


def test_a_service_of_the_hub_has_no_server_to_lose() -> None:
    hub = Hub([])
    servers = servers_of(hub, Clock())
    for _ in range(2):
        asyncio.run(servers.refresh())
        assert servers.gone_since(service_name("nightly")) is None
    assert hub.asked == []


@pytest.mark.parametrize(
    ("options", "is_gone"),
    [
        ([{"gpu_server": "gpu-2"}], True),
        ([{"gpu_server": "gpu-1"}], False),
        ([{"gpu_server": "gpu-2"}, {"gpu_server": "gpu-1"}], False),
        ([{"gpu": "0.25"}], False),
        ([None], False),
    ],
)
def test_a_server_that_uses_another_gateway_of_the_hub_keeps_no_kernel_here(options: list[Any], is_gone: bool) -> None:
    hub = Hub(["alice"])
    servers = servers_of(hub, Clock())
    asyncio.run(servers.refresh())
    assert servers.gone_since("alice") is None
    hub.options["alice"] = options
    asyncio.run(servers.refresh())
    assert (servers.gone_since("alice") is not None) == is_gone


def test_the_knob_needs_a_hub() -> None:
    with pytest.raises(TraitError, match="--hub"):
        hub_servers(object(), Policy(server_gone=60.0), Clock(), LOG)
    assert hub_servers(object(), Policy(), Clock(), LOG) is None


@pytest.mark.parametrize("name", ["gpu-2", ["gpu-2"], {"gpu-2": 1}, 7])
def test_a_server_whose_options_name_no_gateway_of_this_hub_counts(name: Any) -> None:
    """A Hub that has one gateway again keeps the options of the last start, and its users' kernels stay."""
    hub = Hub(["ada"])
    hub.services, hub.options = ["gpu-1"], {"ada": [{"gpu_server": name}]}
    assert asyncio.run(HubQuestions(hub, "gpu-1").present()) == {"ada"}
    hub.services = ["gpu-1", "gpu-2"]
    assert asyncio.run(HubQuestions(hub, "gpu-1").present()) == (set() if name == "gpu-2" else {"ada"})
