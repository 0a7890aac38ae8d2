"""Parts for tests of the client: a server whose answers a test sets, and a reader's answers from the contract."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, get_args, get_origin, get_type_hints

from jupyter_aliquot.client import NoAnswerError
from jupyter_aliquot.client.transport import RawAnswer
from jupyter_aliquot.gateway.reports.kernel import Kernel


@dataclass
class ScriptedTransport:
    """Answers that are given in order. An error among them is raised."""

    answers: deque[RawAnswer | NoAnswerError]
    requests: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def of(cls, *answers: RawAnswer | NoAnswerError) -> ScriptedTransport:
        return cls(deque(answers))

    async def send(self, method: str, path: str, query: tuple[tuple[str, str], ...], body: str | None) -> RawAnswer:
        self.requests.append((method, path))
        answer = self.answers.popleft()
        if isinstance(answer, NoAnswerError):
            raise answer
        return answer


@dataclass
class NotedSleep:
    """A sleep that takes no time, and notes for how long it was asked; and the clock that it moves."""

    seconds: list[float] = field(default_factory=list)

    def now(self) -> float:
        return sum(self.seconds)

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@dataclass
class ScriptedStream:
    """A websocket with the messages of a test; it is closed after them."""

    messages: deque[str]
    close_code: int | None = None
    close_reason: str | None = None
    is_closed: bool = False

    @classmethod
    def of(cls, messages: Iterable[str], code: int | None = None, reason: str | None = None) -> ScriptedStream:
        return cls(deque(messages), code, reason)

    async def read_message(self) -> str | None:
        return self.messages.popleft() if self.messages else None

    def close(self) -> None:
        self.is_closed = True


def api_error(status: int, message: str = "no", **headers: str) -> RawAnswer:
    """Return an error in the words of the API."""
    body = f'{{"message": "{message}", "reason": null}}'.encode()
    return RawAnswer(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


def proxy_error(status: int) -> RawAnswer:
    """Return an error page of a proxy."""
    return RawAnswer(status, b"<html><body>Bad Gateway</body></html>", {"content-type": "text/html"})


def a_kernel(kernel_id: str, state: str, **more: Any) -> dict[str, Any]:
    """Return a kernel's report with the least in it."""
    least = {name: _least(hint) for name, hint in get_type_hints(Kernel).items()}
    return {**least, "id": kernel_id, "state": state, **more}


def _least(hint: Any) -> Any:
    if type(None) in get_args(hint):
        return None
    return [] if get_origin(hint) is list else hint()
