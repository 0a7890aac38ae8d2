"""Whose server in the Hub has gone: only who is known to have none, and never while the Hub does not answer."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from aliquot.gateway.culling import Policy
from aliquot.gateway.hub_servers import HubServers, ask_hub, hub_servers
from traitlets import TraitError

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
    """What it answers, page by page; an exception while it is away."""

    def __init__(self, *pages: list[str]) -> None:
        self.pages: list[list[str]] | None = list(pages)
        self.api_url = "http://hub/api"

    async def _api_request(self, method: str, url: str, headers: dict[str, str]) -> Any:
        if self.pages is None:
            raise OSError("no Hub")
        offset = int(url.rpartition("offset=")[2])
        following = {"offset": offset + 1} if offset + 1 < len(self.pages) else None
        return {"items": [{"name": name} for name in self.pages[offset]], "_pagination": {"next": following}}


def servers_of(hub: Hub, clock: Clock) -> HubServers:
    ask = ask_hub(SimpleNamespace(hub_auth=hub))
    assert ask is not None
    return HubServers(ask, clock, LOG)


def test_a_server_counts_as_gone_from_when_it_was_first_missed() -> None:
    hub, clock = Hub(["ada"], ["alice"]), Clock()
    servers = servers_of(hub, clock)
    assert servers.gone_since("alice") is None
    asyncio.run(servers.look())
    assert (servers.gone_since("alice"), servers.gone_since("bob")) == (None, 1000.0)
    hub.pages, clock.seconds = [["ada"]], 1100.0
    asyncio.run(servers.look())
    assert (servers.gone_since("alice"), servers.gone_since("bob")) == (1100.0, 1000.0)
    hub.pages, clock.seconds = [["alice"]], 1200.0
    asyncio.run(servers.look())
    assert servers.gone_since("alice") is None


def test_nobodys_server_has_gone_while_the_hub_does_not_answer() -> None:
    hub, clock = Hub(["ada"]), Clock()
    servers = servers_of(hub, clock)
    asyncio.run(servers.look())
    assert servers.gone_since("bob") == 1000.0
    hub.pages = None
    asyncio.run(servers.look())
    assert servers.gone_since("bob") is None
    hub.pages, clock.seconds = [["ada"]], 1300.0
    asyncio.run(servers.look())
    assert servers.gone_since("bob") == 1000.0, "a moment without an answer begins no new time"


def test_the_knob_needs_a_hub() -> None:
    with pytest.raises(TraitError, match="--hub"):
        hub_servers(object(), Policy(server_gone=60.0), Clock(), LOG)
    assert hub_servers(object(), Policy(), Clock(), LOG) is None
