"""The cache of the Hub's answers about tokens: one question for many requests, with bounds.

It knows no HTTP and no Hub: a function asks. It keeps only the digest of a token.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.provisioner.errors import HubAwayError, TooManyTokensError

Model = dict[str, Any]
# Raises HubAwayError; None: the Hub knows no such token.
AskHub = Callable[[str], Awaitable[Model | None]]

_TOKEN = re.compile(r"[\x21-\x7e]{1,1024}")
_WINDOW_SECONDS = 60.0
_PAUSE_SECONDS = 1.0
_MOST_ADDRESSES = 10_000


@dataclass(frozen=True)
class CheckLimits:
    """Bounds of the cache.

    They are the age of an answer, the time that the last good one counts while the Hub is away, and
    the rate of questions.
    """

    recheck_seconds: float = 30.0
    hub_away_seconds: float = 300.0
    tokens: int = 10_000
    wrong_per_minute: int = 600
    wrong_per_address: int = 60
    questions_at_once: int = 16
    questions_waiting: int = 1000


@dataclass(frozen=True)
class _Answer:
    model: Model | None
    checked_at: float


class TokenChecks:
    """The Hub's answers by token.

    One event loop; the Hub is never asked twice at once for the same token.
    """

    def __init__(self, ask: AskHub, clock: Clock, limits: CheckLimits) -> None:
        self._ask = ask
        self._clock = clock
        self._limits = limits
        # Oldest answer first. Wrong tokens have a table of their own: a storm of them pushes no
        # right one out.
        self._known: OrderedDict[str, _Answer] = OrderedDict()
        self._wrong: OrderedDict[str, _Answer] = OrderedDict()
        self._asking: dict[str, asyncio.Task[Model | None]] = {}
        # Two lanes: tokens that are known wait for no storm of others.
        self._slots = asyncio.Semaphore(limits.questions_at_once)
        self._slots_of_unknown = asyncio.Semaphore(limits.questions_at_once)
        self._away_until = float("-inf")
        self._is_away = False
        self._wrong_counts = WrongCounts(limits, clock)

    async def model_of(self, token: str, address: str = "", *, within_seconds: float | None = None) -> Model | None:
        """Return the Hub's user of this token, None for an unknown token.

        Raises HubAwayError and TooManyTokensError.
        """
        if not _TOKEN.fullmatch(token):
            return None
        key = hashlib.sha256(token.encode()).hexdigest()
        last = self._known.get(key) or self._wrong.get(key)
        oldest = self._limits.recheck_seconds if within_seconds is None else within_seconds
        if last is not None and self._clock.now() - last.checked_at < oldest:
            return last.model
        asking = self._begin(key, token, address)
        if self._is_away and key in self._known:
            # No request waits for a Hub that hangs: its answer, if one comes, serves the next request.
            return self._while_away(key)
        try:
            # A canceled request leaves the question to the others.
            return await asyncio.shield(asking)
        except HubAwayError:
            return self._while_away(key)

    def _begin(self, key: str, token: str, address: str) -> asyncio.Task[Model | None]:
        """Start a question, or join the one on its way, and get the same answer."""
        if key not in self._asking:
            if key not in self._known:
                self._refuse_too_many(address)
            asking = self._ask_once(key, token, address)
            task = self._asking[key] = asyncio.create_task(asking, name="aliquot-token")
            task.add_done_callback(lambda done: self._forget_task(key, done))
        return self._asking[key]

    def _refuse_too_many(self, address: str) -> None:
        self._wrong_counts.check(address)
        if len(self._asking) >= self._limits.questions_waiting:
            raise TooManyTokensError("too many new tokens are looked up just now; try again in a moment")

    def _forget_task(self, key: str, done: asyncio.Task[Model | None]) -> None:
        del self._asking[key]
        if not done.cancelled():
            done.exception()

    async def _ask_once(self, key: str, token: str, address: str) -> Model | None:
        is_known, was_wrong = key in self._known, key in self._wrong
        async with self._slots if is_known else self._slots_of_unknown:
            if not is_known:
                # Others of the same storm may have been answered since it began to wait.
                self._wrong_counts.check(address)
            if self._clock.now() < self._away_until:
                raise HubAwayError(_AWAY)
            asked_at = self._clock.now()
            try:
                model = await self._ask(token)
            except HubAwayError:
                # An away Hub is asked again in a moment, not by each request.
                self._away_until = self._clock.now() + _PAUSE_SECONDS
                self._is_away = True
                raise
            self._is_away = False
        if model is None and not is_known and not was_wrong:
            # Open pages send the same wrong token for hours: that is no guessing.
            self._wrong_counts.add(address)
        self._remember(key, _Answer(model, asked_at))
        return model

    def _remember(self, key: str, answer: _Answer) -> None:
        self._known.pop(key, None)
        self._wrong.pop(key, None)
        table = self._wrong if answer.model is None else self._known
        table[key] = answer
        while len(table) > self._limits.tokens:
            table.popitem(last=False)

    def _while_away(self, key: str) -> Model | None:
        """Return the last good answer, for a while; a wrong token stays wrong."""
        if key in self._wrong:
            return None
        last = self._known.get(key)
        longest = self._limits.recheck_seconds + self._limits.hub_away_seconds
        if last is None or self._clock.now() - last.checked_at >= longest:
            raise HubAwayError(_AWAY)
        return last.model


class WrongCounts:
    """The counts of wrong tokens, by address and in all.

    Past a bound the Hub is not asked about new tokens.
    """

    def __init__(self, limits: CheckLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._since = float("-inf")
        self._by_address: dict[str, int] = {}
        self._all = 0

    def check(self, address: str) -> None:
        """Raise TooManyTokensError when no more unknown tokens are looked up, from there or at all."""
        self._turn()
        wait = self._since + _WINDOW_SECONDS - self._clock.now()
        if self._by_address.get(address, 0) >= self._limits.wrong_per_address:
            raise TooManyTokensError(
                f"{address} sent {self._limits.wrong_per_address} wrong tokens within a minute, which is "
                f"the most. Correct the token, and try again in {math.ceil(wait)} s",
                wait,
            )
        if self._all >= self._limits.wrong_per_minute:
            raise TooManyTokensError(
                f"too many wrong tokens reach this gateway; a new token is looked up in {math.ceil(wait)} s", wait
            )

    def add(self, address: str) -> None:
        """Count a wrong token."""
        self._turn()
        self._all += 1
        if address in self._by_address or len(self._by_address) < _MOST_ADDRESSES:
            self._by_address[address] = self._by_address.get(address, 0) + 1

    def _turn(self) -> None:
        now = self._clock.now()
        if now - self._since >= _WINDOW_SECONDS:
            self._since, self._all = now, 0
            self._by_address.clear()


_AWAY = "JupyterHub does not answer, so the gateway cannot check this token. Try again in a moment"
