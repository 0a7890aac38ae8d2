"""Check the tokens of open websockets, and close a websocket whose token is no longer valid.

A request is checked when it comes, but a socket would stay open for days after its token was
revoked. The checks use the cache of tokens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from tornado.websocket import WebSocketHandler

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.base.tasks import Recurring
from jupyter_aliquot.provisioner.errors import HubAwayError, HubError

from .user_cache import HubPeople

# The age of an answer and the time between two checks, as parts of the time within which sockets
# have to close.
_AGE, _INTERVAL = 0.7, 0.1

# Codes from RFC 6455's registry, each with a reason for a page to show; a reason has 123 bytes at
# most.
NO_MORE = (1008, "JupyterHub no longer accepts this token: log in again, or restart your server from the Hub")
MAY_LESS = (1013, "what you may do on this gateway has changed: open it again")
HUB_AWAY = (1013, "JupyterHub has not answered for too long: open it again when it is back")

# Return a token's user, by an answer of at most so many seconds; None for an unknown token, and for
# a user who may not use the gateway.
AskUser = Callable[[str, float], Awaitable[User | None]]


@runtime_checkable
class Revocable(Protocol):
    """A websocket that left tasks to be done later in its user's name."""

    def revoke(self) -> None:
        """Drop those tasks. Called before the websocket is closed."""
        ...


class HubSockets:
    """One loop that checks all open websockets, each token once a turn."""

    def __init__(
        self, ask: AskUser, recheck_seconds: float, people: HubPeople, clock: Clock, log: logging.Logger
    ) -> None:
        self._ask = ask
        self._recheck_seconds = recheck_seconds
        self._people = people
        self._log = log
        self._sockets: WeakKeyDictionary[WebSocketHandler, tuple[str, User]] = WeakKeyDictionary()
        self._rechecks = Recurring("hub-sockets", self._recheck_and_save, recheck_seconds * _INTERVAL, clock, log)

    def watch(self, socket: WebSocketHandler, token: str, user: User) -> None:
        """Add a websocket with this token and user."""
        self._sockets[socket] = (token, user)

    def start(self) -> None:
        self._rechecks.start()

    async def stop(self) -> None:
        await self._rechecks.stop()
        await self._people.save()

    async def _recheck_and_save(self) -> None:
        await self.recheck()
        await self._people.save()

    async def recheck(self) -> None:
        """Close the websockets whose token does not allow them any more."""
        by_token: dict[str, list[tuple[WebSocketHandler, User]]] = {}
        for socket, (token, user) in list(self._sockets.items()):
            # A websocket in its handshake, or a closed one, has no connection.
            if socket.ws_connection is not None:
                by_token.setdefault(token, []).append((socket, user))
        await asyncio.gather(*(self._recheck_token(token, sockets) for token, sockets in by_token.items()))

    async def _recheck_token(self, token: str, sockets: list[tuple[WebSocketHandler, User]]) -> None:
        try:
            found = await self._ask(token, self._recheck_seconds * _AGE)
        except HubAwayError:
            for socket, user in sockets:
                self._close(socket, user, HUB_AWAY)
            return
        except HubError as error:
            self._log.warning("hub_sockets=unchecked reason=%s", error)
            return
        for socket, was in sockets:
            if found is None or found.name != was.name:
                self._close(socket, was, NO_MORE)
            elif may_less(was, found):
                # The user opened it with more rights. A websocket that the client opens anew is
                # checked anew.
                self._close(socket, was, MAY_LESS)

    def _close(self, socket: WebSocketHandler, user: User, why: tuple[int, str]) -> None:
        if why is not HUB_AWAY and isinstance(socket, Revocable):
            socket.revoke()
        self._log.info("socket=closed user=%s path=%s code=%d %s", user.name, socket.request.path, *why)
        socket.close(*why)


def may_less(was: User, now: User) -> bool:
    """Return whether the user lost a role or a team."""
    return (was.is_admin and not now.is_admin) or bool(was.teams - now.teams)
