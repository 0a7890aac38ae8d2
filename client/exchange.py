"""The core of both faces: one call, with its repeats, its errors and its typed answer."""

from __future__ import annotations

import asyncio
import json
import random
import time
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote

from .answers import read_json
from .errors import AnswerError, ClientError, NoAnswerError, RefusedError, refusal_of
from .retries import Outcome, Retries, read_retry_after
from .transport import RawAnswer, Transport

PREFIX = "aliquot/api/v1"
_Answer = TypeVar("_Answer")
_LONGEST_MESSAGE = 2000
# The words of Jupyter for a token that it does not know, or for none.
_NO_WORDS = ("Forbidden", "Unauthorized")
_NO_TOKEN = (
    "the server knows no user of the token, or its user may not do this. The token is the client's argument, else that "
    "in JUPYTER_GATEWAY_AUTH_TOKEN, or in JUPYTERHUB_API_TOKEN on a user's server of a JupyterHub. `jupyter server "
    "list` shows that of a server of your account, and the page /hub/token of a JupyterHub makes one"
)


@dataclass(frozen=True)
class Call(Generic[_Answer]):
    """One request, and the type of its answer.

    Attributes:
        method: The HTTP method.
        path: Below the base URL.
        answer: The type of the JSON: a TypedDict. ``str`` stands for text, None for no answer.
        field: The one field of the JSON that the caller gets; empty for all of it.
        query: The parameters, in order.
        body: The JSON to send.
    """

    method: str
    path: str
    answer: Any
    field: str = ""
    query: tuple[tuple[str, str], ...] = ()
    body: str | None = None

    @property
    def origin(self) -> str:
        """The request, for the words of errors."""
        return f"{self.method} /{self.path}"

    def read(self, raw: RawAnswer) -> _Answer:
        """Return the typed answer. Raises AnswerError."""
        found = None if self.answer is None else self._text(raw) if self.answer is str else self._json(raw)
        return cast(_Answer, found)

    def _json(self, raw: RawAnswer) -> Any:
        value = read_json(raw.body, self.answer, self.origin)
        return value[self.field] if self.field else value

    def _text(self, raw: RawAnswer) -> str:
        try:
            return str(raw.body, "utf-8")
        except UnicodeDecodeError as error:
            raise AnswerError(f"{self.origin} was answered with something that is no UTF-8 text ({error})") from error


@dataclass(frozen=True)
class Exchange:
    """Sends calls to one server. ``sleep``, ``chance`` and ``now`` are passed in for tests."""

    transport: Transport
    retries: Retries
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random
    now: Callable[[], float] = time.monotonic

    async def send(self, call: Call[_Answer]) -> _Answer:
        """Return the call's answer. Raises ClientError.

        A repeated DELETE that finds nothing has ended well: an attempt without an answer did the work.
        """
        attempt, may_be_done = 1, False
        while True:
            try:
                raw = await self.transport.send(call.method, call.path, call.query, call.body)
                outcome, failure = _look_at(raw, call.origin)
            except NoAnswerError as error:
                raw, outcome, failure = RawAnswer(0), Outcome(), error
            if "deprecation" in raw.headers:
                warnings.warn(_deprecated(raw, call.origin), DeprecationWarning, stacklevel=2)
            if failure is None or (may_be_done and _is_gone(call, outcome)):
                return call.read(raw)
            may_be_done = may_be_done or not outcome.is_api_answer
            wait = self.retries.wait_before_next(call.method, attempt, outcome, self.chance())
            if wait is None:
                raise failure
            await self.sleep(wait)
            attempt += 1


def _deprecated(raw: RawAnswer, origin: str) -> str:
    until = raw.headers.get("sunset")
    end = f" The server may leave it out from {_printable(until)} on." if until else ""
    return f"The server calls {origin} deprecated.{end} Update jupyter-aliquot in this environment"


def _is_gone(call: Call[Any], outcome: Outcome) -> bool:
    return call.method == "DELETE" and call.answer is None and outcome.status == 404 and outcome.is_api_answer


def path_part(text: str) -> str:
    """Return one part of a path. Raises ClientError for text that is none."""
    if text in ("", ".", ".."):
        raise ClientError(f"Requested {text!r}, but this is no name and no id. Pass the id of a kernel, or a name")
    return quote(text, safe="")


def _look_at(raw: RawAnswer, origin: str) -> tuple[Outcome, NoAnswerError | RefusedError | None]:
    if 200 <= raw.status < 300:
        return Outcome(raw.status), None
    seconds = read_retry_after(raw.headers.get("retry-after"), datetime.now(timezone.utc))
    words = api_words(raw)
    return Outcome(raw.status, words is not None, seconds), refusal(raw, origin)


def refusal(raw: RawAnswer, origin: str) -> RefusedError:
    """Return the error of an answer that is no success."""
    seconds = read_retry_after(raw.headers.get("retry-after"), datetime.now(timezone.utc))
    words = api_words(raw)
    message, reason = words if words is not None else (_own_words(raw, origin), None)
    advice = _NO_TOKEN if raw.status in (401, 403) and message in _NO_WORDS else ""
    return refusal_of(raw.status)(raw.status, message, reason, seconds, advice)


def api_words(raw: RawAnswer) -> tuple[str, str | None] | None:
    """Return the message and the reason of an error; None where the answer is not the API's."""
    try:
        told = json.loads(raw.body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or not isinstance(told.get("message"), str):
        return None
    reason = told.get("reason")
    return _printable(told["message"]) or f"the server answered {raw.status}", (
        _printable(reason) if isinstance(reason, str) else None
    )


def _own_words(raw: RawAnswer, origin: str) -> str:
    answered = f"{origin} was answered with {raw.status} {_printable(raw.phrase)}".strip()
    if 300 <= raw.status < 400:
        return (
            f"{answered}: the server sends the client elsewhere, as to a login page. Check the token, and that the "
            "address has the right scheme and the whole base URL"
        )
    return f"{answered}, and not in the words of Aliquot's API: a proxy answered, or another program listens there"


def _printable(text: str) -> str:
    """Return the text without what would steer a terminal."""
    return "".join(one if one.isprintable() or one == "\n" else "�" for one in text[:_LONGEST_MESSAGE])
