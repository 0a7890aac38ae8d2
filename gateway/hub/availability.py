"""The free GPUs of each gateway, asked by the Hub's process for the spawn page and for a start.

It decides nothing. A page waits for no gateway that hangs, and the Hub asks one gateway at most once
in a few seconds, however many pages are shown.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tornado.httpclient import HTTPClientError, HTTPResponse
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from jupyter_aliquot.provisioner.listener import check_listener

from .gateways import Gateway, Gateways
from .service import address_of
from .settings import HubSettings
from .tokens import availability_token

# A page comes within two seconds, whatever the gateways do. A start may wait longer, but not as long
# as the Hub waits before it shows its page of progress.
PAGE_SECONDS = 1.5
START_SECONDS = 8.0
_FRESH_SECONDS = 5.0
_TOKEN_SECONDS = 3600
_MOST_BYTES = 4 * 1024 * 1024

DOWN = "down"
REFUSES = "refuses"
OTHER = "other"
# What the page says beside the name, and what a refused start says after it.
_PHRASES = {DOWN: "down", REFUSES: "refuses this Hub", OTHER: "not at its address"}
_SENTENCES = {
    DOWN: "does not answer",
    REFUSES: "refuses this Hub's tokens: it was started with another name, or for another Hub",
    OTHER: "is not at its address: another program answers there",
}


@dataclass(frozen=True)
class Availability:
    """The last answer of a gateway.

    ``problem`` is empty, or one of DOWN, REFUSES and OTHER; ``reason`` is for the Hub's log.
    """

    free_gpus: float = 0.0
    gpus: int = 0
    problem: str = ""
    reason: str = ""

    @property
    def is_up(self) -> bool:
        """Return whether the gateway answered."""
        return not self.problem

    def phrase(self) -> str:
        """Return the text beside the name on the page: ``1.5 of 4 GPUs free``."""
        if self.problem:
            return _PHRASES[self.problem]
        if not self.gpus:
            return "no GPU"
        return f"{self.free_gpus:g} of {self.gpus} GPU{'' if self.gpus == 1 else 's'} free"

    def sentence(self) -> str:
        """Return the end of a sentence that begins with the gateway's name."""
        return _SENTENCES[self.problem]


# How one gateway is asked: the tests have another.
Ask = Callable[[Gateway, Any, float], Any]


class Availabilities:
    """The answers of all gateways of a Hub, each remembered for a few seconds. Made by `configure`."""

    def __init__(self, gateways: Gateways, ask: Ask | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._gateways = gateways
        self._ask = ask or Questions().ask
        self._now = now
        self._known: dict[str, tuple[float, Availability]] = {}
        self._asked: dict[str, asyncio.Task[Availability]] = {}

    async def on_page(self, spawner: Any) -> dict[str, Availability]:
        """Return the answer of each gateway by its name, for a page that is to come at once."""
        found = await asyncio.gather(*(self._remembered(gateway, spawner) for gateway in self._gateways.each))
        return dict(zip(self._gateways.names, found, strict=True))

    async def at_start(self, gateway: Gateway, spawner: Any) -> Availability:
        """Return the answer of a chosen gateway now, for which the start of a server waits longer."""
        return await self._anew(gateway, spawner, START_SECONDS)

    async def _remembered(self, gateway: Gateway, spawner: Any) -> Availability:
        at, known = self._known.get(gateway.name, (float("-inf"), None))
        if known is not None and self._now() - at < _FRESH_SECONDS:
            return known
        task = self._asked.get(gateway.name)
        if task is None or task.done():
            task = self._asked[gateway.name] = asyncio.ensure_future(self._anew(gateway, spawner, PAGE_SECONDS))
        return await asyncio.shield(task)

    async def _anew(self, gateway: Gateway, spawner: Any, seconds: float) -> Availability:
        try:
            found: Availability = await asyncio.wait_for(self._ask(gateway, spawner, seconds), seconds)
        except asyncio.TimeoutError:
            found = Availability(problem=DOWN, reason=f"no answer within {seconds:g} s")
        except Exception as error:
            # The client raises errors of sockets, names, TLS and HTTP: a gateway that is asked in vain is down.
            found = Availability(problem=DOWN, reason=f"{type(error).__name__}: {error}")
        if not found.is_up:
            spawner.log.warning("gateway=%s state=%s reason=%s", gateway.name, found.problem, found.reason)
        self._known[gateway.name] = (self._now(), found)
        return found


class Questions:
    """The questions to gateways, with a token for each that opens it alone."""

    def __init__(self) -> None:
        self._tokens: dict[str, tuple[float, str]] = {}

    async def ask(self, gateway: Gateway, spawner: Any, seconds: float) -> Availability:
        """Ask one gateway for its devices. Raises errors of sockets, TLS and names."""
        settings = gateway.settings
        if settings.is_managed:
            await asyncio.to_thread(check_listener, settings.url, settings.account_id())
        # A client of its own: the Hub's calls of its proxy have to wait for no gateway that hangs.
        client = SimpleAsyncHTTPClient(force_instance=True, max_body_size=_MOST_BYTES)
        try:
            answer = await client.fetch(
                f"{address_of(settings, settings.url, spawner)}/aliquot/api/v1/status",
                headers={"Authorization": f"token {self._token(settings, spawner)}"},
                connect_timeout=seconds,
                request_timeout=seconds,
                follow_redirects=False,
                raise_error=False,
            )
        finally:
            client.close()
        return _read(answer)

    def _token(self, settings: HubSettings, spawner: Any) -> str:
        """Return the spawn page's token, made anew when half of its time is over."""
        at, token = self._tokens.get(settings.name, (float("-inf"), ""))
        if time.monotonic() - at > _TOKEN_SECONDS / 2:
            token = availability_token(spawner.db, settings.name, _TOKEN_SECONDS)
            self._tokens[settings.name] = (time.monotonic(), token)
        return token


def _read(answer: HTTPResponse) -> Availability:
    if answer.code == 599 or answer.code >= 500:
        reason = str(answer.error) if isinstance(answer.error, HTTPClientError) else f"HTTP {answer.code}"
        return Availability(problem=DOWN, reason=reason)
    if answer.code in (401, 403):
        return Availability(problem=REFUSES, reason=f"HTTP {answer.code}")
    if answer.code != 200:
        return Availability(problem=OTHER, reason=f"HTTP {answer.code}")
    try:
        status = json.loads(answer.body)
        most = float(status["node"]["overcommit"])
        devices = [one for one in status["devices"] if not one["lost"]]
        free = sum(max(0.0, float(one.get("overcommit", most)) - float(one["reserved_gpus"])) for one in devices)
    except (ValueError, KeyError, TypeError) as error:
        return Availability(problem=OTHER, reason=f"no status of a gateway: {type(error).__name__}: {error}")
    return Availability(round(free, 2), len(devices))
