"""Token checks at the Hub: any bad answer means that the Hub is away, and lets no user in."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from ports import free_port
from tornado.httpclient import AsyncHTTPClient
from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler
from traitlets import TraitError
from traitlets.config import Config

from jupyter_aliquot.gateway.hub_service.environment import HubService
from jupyter_aliquot.gateway.hub_service.identity import HubIdentityProvider, HubTokens
from jupyter_aliquot.provisioner.errors import HubAwayError

SERVICE = HubService(
    name="aliquot",
    prefix="/services/aliquot/",
    ip="127.0.0.1",
    port=8890,
    is_secure=False,
    api_url="http://127.0.0.1:8081/hub/api",
    api_token="a-secret",
    scopes=frozenset({"access:services!service=aliquot"}),
    client_id="service-aliquot",
    callback_url="/services/aliquot/oauth_callback",
)


class UserOfToken(RequestHandler):
    """A Hub that answers as a real one does, and as one that has its troubles."""

    async def get(self) -> None:
        token = self.request.headers["Authorization"].removeprefix("token ")
        if token == "never":
            await asyncio.Event().wait()
        elif token.isdigit():
            self.set_status(int(token))
            self.finish({"message": "no"})
        else:
            self.finish({"name": "alice"} if token == "alice" else "no JSON")


def with_hub(scenario: Callable[[HubTokens], Awaitable[None]], *, listens: bool = True) -> None:
    async def run() -> None:
        port = free_port()
        server = HTTPServer(Application([("/hub/api/user", UserOfToken)]))
        if listens:
            server.listen(port, "127.0.0.1")
        api = f"http://127.0.0.1:{port}/hub/api"
        tokens = HubTokens(api_url=api, api_token="a-secret", oauth_client_id="service-aliquot")
        tokens.answer_seconds = 1.0
        try:
            await scenario(tokens)
        finally:
            server.stop()
            await close_clients()
            await server.close_all_connections()

    asyncio.run(run())


async def close_clients() -> None:
    """Close the Hub's HTTP client.

    JupyterHub 6 has a client of its own, earlier releases use tornado's.
    """
    if importlib.util.find_spec("jupyterhub.httpclient") is None:
        AsyncHTTPClient().close()
        return
    client: Any = importlib.import_module("jupyterhub.httpclient").JupyterHubHTTPClient
    await client.loop_instance().close()


def test_a_token_is_whose_the_hub_says_it_is_and_nobodys_where_it_forbids() -> None:
    async def scenario(tokens: HubTokens) -> None:
        assert await tokens.ask("alice") == {"name": "alice"}
        assert await tokens.ask("403") is None

    with_hub(scenario)


@pytest.mark.parametrize(("token", "is_told"), [("alice", False), ("403", True), ("500", False)])
def test_a_gateway_whose_own_token_the_hub_does_not_know_says_so(
    token: str, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(tokens: HubTokens) -> None:
        hub = replace(SERVICE, api_url=tokens.api_url, api_token=token)
        found = HubIdentityProvider(hub=hub, log=logging.getLogger("own token"))
        await found.check_own_token()

    with_hub(scenario)
    assert ("Give it the api_token of the service 'aliquot'" in caplog.text) == is_told


@pytest.mark.parametrize("token", ["500", "502", "404", "400", "garbage", "never"])
def test_a_hub_that_answers_otherwise_or_not_at_all_is_away(token: str) -> None:
    async def scenario(tokens: HubTokens) -> None:
        with pytest.raises(HubAwayError):
            await tokens.ask(token)

    with_hub(scenario)


def test_a_hub_that_does_not_listen_is_away() -> None:
    async def scenario(tokens: HubTokens) -> None:
        with pytest.raises(HubAwayError):
            await tokens.ask("alice")

    with_hub(scenario, listens=False)


def test_nothing_that_blocks_the_loop_is_called() -> None:
    async def scenario(tokens: HubTokens) -> None:
        with pytest.raises(RuntimeError, match="without blocking"):
            tokens.user_for_token("alice")

    with_hub(scenario)


def test_logins_that_somebody_begins_without_end_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jupyter_aliquot.gateway.hub_service.identity._MOST_LOGINS", 3)
    tokens = HubTokens(api_url="http://127.0.0.1:1/hub/api", api_token="t", oauth_client_id="service-aliquot")
    first = tokens.generate_state("/services/aliquot/first")
    assert tokens.get_next_url(first) == "/services/aliquot/first"
    states = [tokens.generate_state(f"/services/aliquot/{number}", code_verifier="v") for number in range(5)]
    assert [state for state in (first, *states) if state in tokens._oauth_states] == states[-3:]
    assert tokens.get_next_url(states[-1]) == "/services/aliquot/4"
    if hasattr(tokens, "get_code_verifier"):  # since JupyterHub 6
        assert tokens.get_code_verifier(states[-1]) == "v"
    long = tokens.generate_state("/services/aliquot/" + "x" * 100_000)
    assert tokens.get_next_url(long) == tokens.get_next_url("nobodys"), "it leads to the first page"


def provider(**knobs: Any) -> HubIdentityProvider:
    return HubIdentityProvider(hub=SERVICE, config=Config(knobs))


@pytest.mark.parametrize(
    ("model", "want"),
    [
        ({"kind": "user", "name": "alice", "groups": ["vision"], "scopes": []}, ("alice", "user", {"vision"})),
        ({"kind": "user", "name": "ada", "groups": [], "scopes": ["custom:aliquot:admin"]}, ("ada", "admin", set())),
        # This user is an administrator of the Hub, but the token does not carry our scope.
        ({"kind": "user", "name": "ada", "groups": [], "admin": True, "scopes": ["self"]}, ("ada", "user", set())),
        # A user of a Hub cannot have a name with a slash.
        ({"kind": "service", "name": "alice", "scopes": []}, ("service/alice", "user", set())),
    ],
)
def test_a_user_is_what_the_hub_says(model: dict[str, Any], want: tuple[str, str, set[str]]) -> None:
    user = provider().user_of_model(model)
    assert (user.name, user.role, user.teams) == want


def test_the_servers_own_users_token_and_password_count_for_nothing() -> None:
    found = provider(IdentityProvider={"token": "t"}, PasswordIdentityProvider={"hashed_password": "p"})
    assert (found.token, found.hashed_password, found.auth_enabled) == ("", "", True)
    with pytest.raises(TraitError, match="is a service of JupyterHub, whose users it has"):
        provider(AliquotIdentityProvider={"users": {"alice": {"token": "t"}}})


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("recheck_seconds", 0.0),
        ("hub_away_seconds", -1.0),
        ("hub_answer_seconds", float("inf")),
        ("remembered_tokens", 0),
    ],
)
def test_a_wrong_knob_is_refused_by_its_name(knob: str, value: float) -> None:
    with pytest.raises(TraitError, match=f"c.HubIdentityProvider.{knob}: .* is not valid"):
        provider(HubIdentityProvider={knob: value})
