"""Open websockets: the gateway closes them when their token may open them no more."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tornado.websocket import WebSocketHandler

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.hub_service.user_cache import HubPeople
from jupyter_aliquot.gateway.hub_service.websocket_recheck import HUB_AWAY, MAY_LESS, NO_MORE, HubSockets
from jupyter_aliquot.provisioner.errors import HubAwayError, TooManyTokensError

LOG = logging.getLogger(__name__)
ALICE = User("alice", "user", frozenset({"vision", "speech"}))
ADA = User("ada", "admin")


class ASocket:
    """The part of a handler that the gateway uses."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.ws_connection = object() if is_open else None
        self.request = SimpleNamespace(path="/api/kernels/x/channels")
        self.closed: list[tuple[int, str]] = []

    def close(self, code: int, reason: str) -> None:
        self.closed.append((code, reason))
        self.ws_connection = None


def recheck(was: User, answer: User | Exception | None, **kind: bool) -> tuple[ASocket, list[str]]:
    asked = []

    async def ask(token: str, within_seconds: float) -> User | None:
        asked.append(token)
        assert within_seconds < 30
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def scenario() -> ASocket:
        sockets, socket = HubSockets(ask, 30.0, HubPeople(LOG), SystemClock(), LOG), ASocket(**kind)
        sockets.watch(cast(WebSocketHandler, socket), "a-token", was)
        await sockets.recheck()
        return socket

    return asyncio.run(scenario()), asked


@pytest.mark.parametrize(
    ("was", "now", "want"),
    [
        (ALICE, ALICE, []),
        (ALICE, User("alice", "user", ALICE.teams | {"third"}), []),
        (ALICE, User("alice", "admin", ALICE.teams), []),
        (ALICE, None, [NO_MORE]),
        (ALICE, User("alice-now", "user", ALICE.teams), [NO_MORE]),
        (ALICE, User("alice", "user", frozenset({"speech"})), [MAY_LESS]),
        (ADA, User("ada", "user"), [MAY_LESS]),
        (ALICE, HubAwayError("away"), [HUB_AWAY]),
        (ALICE, TooManyTokensError("many"), []),
    ],
)
def test_a_socket_ends_with_what_opened_it(was: User, now: Any, want: list[tuple[int, str]]) -> None:
    socket, _ = recheck(was, now)
    assert socket.closed == want


def test_nothing_is_asked_about_a_socket_that_is_not_open() -> None:
    socket, asked = recheck(ALICE, None, is_open=False)
    assert (socket.closed, asked) == ([], [])


def test_sockets_of_one_token_are_one_question() -> None:
    asked = []

    async def ask(token: str, within_seconds: float) -> User | None:
        asked.append(token)
        return None

    async def scenario() -> list[ASocket]:
        watched, found = HubSockets(ask, 30.0, HubPeople(LOG), SystemClock(), LOG), [ASocket() for _ in range(5)]
        for socket in found:
            watched.watch(cast(WebSocketHandler, socket), "a-token", ALICE)
        await watched.recheck()
        return found

    assert all(socket.closed == [NO_MORE] for socket in asyncio.run(scenario()))
    assert asked == ["a-token"]


@pytest.mark.parametrize("why", [NO_MORE, MAY_LESS, HUB_AWAY])
def test_a_reason_fits_into_the_last_frame(why: tuple[int, str]) -> None:
    assert len(why[1].encode()) <= 123


@pytest.mark.parametrize(("answer", "want_revoked"), [(None, True), (HubAwayError("away"), False)])
def test_what_waits_in_the_name_of_a_refused_token_is_dropped_and_no_other(answer: Any, want_revoked: bool) -> None:
    revoked = []

    class Waits(ASocket):
        def revoke(self) -> None:
            revoked.append(self.ws_connection is not None)

    async def ask(token: str, within_seconds: float) -> User | None:
        if isinstance(answer, Exception):
            raise answer
        return None

    async def scenario() -> None:
        sockets, socket = HubSockets(ask, 30.0, HubPeople(LOG), SystemClock(), LOG), Waits()
        sockets.watch(cast(WebSocketHandler, socket), "a-token", ALICE)
        await sockets.recheck()

    asyncio.run(scenario())
    assert revoked == ([True] if want_revoked else []), "while it can still be told"
