"""Addresses of requests behind a Hub's proxy.

No client can claim another's address, or cause trouble for another client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from ports import free_port
from tornado.httpclient import AsyncHTTPClient
from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler
from traitlets import TraitError

from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.hub_service.identity import HubTokens
from jupyter_aliquot.gateway.hub_service.login import HubCallbackHandler
from jupyter_aliquot.gateway.hub_service.proxy_headers import believe_the_proxy
from jupyter_aliquot.gateway.hub_service.token_cache import CheckLimits, TokenChecks

from .test_hub_tokens import provider

# Headers as the Hub's proxy sends them: first the client's own text, then the address it saw.
MALLORY = {"X-Forwarded-For": "127.0.0.1, 10.0.0.66", "X-Real-Ip": "127.0.0.1"}
BOB = {"X-Forwarded-For": "10.0.0.2"}
MOST_WRONG = 3

Fetch = Callable[..., Awaitable[Any]]


class Address(RequestHandler):
    """A handler that answers with the address of the request."""

    def get(self) -> None:
        self.finish(str(self.request.remote_ip))


def served(scenario: Callable[[Fetch], Awaitable[None]], trusted: list[str], handlers: Any = ()) -> None:
    async def run() -> None:
        port = free_port()
        server = HTTPServer(Application([("/address", Address), *handlers], cookie_secret="a-secret"), xheaders=True)
        believe_the_proxy(server, trusted)
        server.listen(port, "127.0.0.1")

        async def fetch(path: str, **headers: str) -> Any:
            url = f"http://127.0.0.1:{port}{path}"
            return await AsyncHTTPClient().fetch(url, headers=headers, raise_error=False, follow_redirects=False)

        try:
            await scenario(fetch)
        finally:
            server.stop()
            await server.close_all_connections()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("headers", "trusted", "want"),
    [
        (MALLORY, [], "10.0.0.66"),
        ({"X-Real-Ip": "127.0.0.9"}, [], "127.0.0.1"),
        # Another proxy stands before the Hub's, and names the client.
        ({"X-Forwarded-For": "10.0.0.66, 192.168.1.1"}, ["192.168.1.1"], "10.0.0.66"),
    ],
)
def test_an_address_is_what_the_proxy_saw(headers: dict[str, str], trusted: list[str], want: str) -> None:
    async def scenario(fetch: Fetch) -> None:
        assert (await fetch("/address", **headers)).body.decode() == want

    served(scenario, trusted)


def test_wrong_tokens_at_the_end_of_a_login_are_counted_for_who_sends_them_alone() -> None:
    async def nobodys(token: str) -> None:
        return None

    limits = CheckLimits(wrong_per_address=MOST_WRONG)
    tokens = HubTokens(api_url="http://127.0.0.1:1/hub/api", api_token="t", oauth_client_id="service-aliquot")
    tokens.checks = TokenChecks(nobodys, SystemClock(), limits)

    async def scenario(fetch: Fetch) -> None:
        async def comes(number: int, who: dict[str, str]) -> Any:
            return await fetch("/oauth_callback", Authorization=f"token wrong-{number}", **who)

        answers = [await comes(number, MALLORY) for number in range(MOST_WRONG + 1)]
        assert [answer.code for answer in answers] == [400] * MOST_WRONG + [429]
        assert 1 <= int(answers[-1].headers["Retry-After"]) <= 60
        assert (await comes(100, BOB)).code == 400, "no code and no state: it was looked at"

    served(scenario, [], [("/oauth_callback", HubCallbackHandler, {"hub_auth": tokens})])


def test_a_trusted_proxy_is_an_address() -> None:
    with pytest.raises(TraitError, match=r"c\.HubIdentityProvider\.trusted_proxies: 'nginx' is not an address"):
        provider(HubIdentityProvider={"trusted_proxies": ["nginx"]})
