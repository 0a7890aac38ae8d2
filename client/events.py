"""The stream of changes, over lost connections.

The server's stream tells changes alone, and nothing at its beginning. So the follower reads the
kernels each time that it has opened the stream: after a loss, the differences are what it missed,
and it tells them as events of the kind ``state``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Protocol

from jupyter_aliquot.gateway.reports.event import KernelEvent
from jupyter_aliquot.gateway.reports.kernel import Kernel

from . import operations
from .answers import read_json
from .errors import NoAnswerError, NotAllowedError, RefusedError, ServerError, TooManyRequestsError
from .exchange import PREFIX, Exchange, refusal
from .transport import RawAnswer

_PATH = f"{PREFIX}/events"
_ORIGIN = f"WEBSOCKET /{_PATH}"
# RFC 6455: the server does not let this client in, now or later.
_POLICY_VIOLATION = 1008
_LEFT_THE_LIST = (
    "While the connection was lost, the kernel left the server's list: it ended, or it is no longer shared with you."
)
# The longest wait that a server may ask for by Retry-After.
_LONGEST_WAIT_SECONDS = 300.0


class Stream(Protocol):
    """An open websocket, as tornado's."""

    close_code: int | None
    close_reason: str | None

    def read_message(self) -> Awaitable[str | bytes | None]:
        """Return the next message; None once the stream is closed."""

    def close(self) -> None:
        """Close it."""


Open = Callable[[str], Awaitable[Stream | RawAnswer]]


class KnownStates:
    """The last event of each kernel, told or made of a list."""

    def __init__(self, kernels: Iterable[Kernel]) -> None:
        self._last = {kernel["id"]: event_of(kernel, None) for kernel in kernels}

    def is_news(self, event: KernelEvent) -> bool:
        """Take an event of the stream over; return False for a state that was told already."""
        was = self._state(event["kernel_id"])
        self._last[event["kernel_id"]] = event
        return event["kind"] != "state" or was != event["state"]

    def missed(self, kernels: Iterable[Kernel], is_ended_told: bool = False) -> list[KernelEvent]:
        """Take a list of all kernels over; return the changes of state that no event told.

        A kernel that is new and has ended is told only with ``is_ended_told``. One that left the list is told as ended.
        """
        present = {kernel["id"]: event_of(kernel, self._state(kernel["id"])) for kernel in kernels}
        changed = [
            event
            for event in present.values()
            if event["was"] != event["state"] and (event["was"] or is_ended_told or event["state"] != "ended")
        ]
        gone = [last for name, last in self._last.items() if name not in present and last["state"] != "ended"]
        self._last = present
        return changed + [_end_of(last) for last in gone]

    def _state(self, kernel_id: str) -> str | None:
        last = self._last.get(kernel_id)
        return None if last is None else last["state"]


def _end_of(last: KernelEvent) -> KernelEvent:
    """Return the event for a kernel that the server no longer lists. *last* is the last that told of it."""
    return {
        **last,
        "kind": "state",
        "state": "ended",
        "was": last["state"],
        "reason": _LEFT_THE_LIST,
        "used_bytes": 0,
        "over_limit_bytes": 0,
        "swapped_bytes": 0,
        "paused": False,
        "queued": None,
        "resize": None,
        "evicted": None,
    }


def event_of(kernel: Kernel, was: str | None) -> KernelEvent:
    """Return the event that tells the kernel's present state."""
    residency, resize = kernel["residency"], kernel["resize"]
    computes = [device["compute"] for device in kernel["devices"]]
    return {
        "kernel_id": kernel["id"],
        "owner": kernel["owner"],
        "label": kernel["label"],
        "kind": "state",
        "state": kernel["state"],
        "was": was,
        "reason": kernel["reason"],
        "gpus": kernel["gpus"],
        "memory_limit_bytes": kernel["memory_limit_bytes"],
        "used_bytes": kernel["used_bytes"],
        "over_limit_bytes": kernel["over_limit_bytes"],
        "swapped_bytes": residency["swapped_bytes"] if residency is not None else 0,
        "paused": any(compute is not None and compute["paused"] for compute in computes),
        "queued": residency["queued"] if residency is not None else None,
        "resize": None
        if resize is None
        else {
            "state": resize["state"],
            "gpus": resize["gpus"],
            "requested_memory_bytes": resize["requested_memory_bytes"],
            "priority": resize["priority"],
            "reason": resize["reason"],
            "position": resize["position"],
        },
        "evicted": None,
    }


async def follow(
    exchange: Exchange, open_stream: Open, patience_seconds: float | None, with_present: bool = False
) -> AsyncGenerator[KernelEvent, None]:
    """Yield the events, from now on. Raises ClientError once the server was away for too long."""
    known = KnownStates(()) if with_present else None
    is_ended_told = with_present
    losses = Losses(exchange, patience_seconds)
    while True:
        try:
            stream = await _opened(open_stream)
            try:
                kernels = await exchange.send(operations.kernels())
                losses.forget_waits()
                missed = [] if known is None else known.missed(kernels, is_ended_told)
                is_ended_told = False
                known = KnownStates(kernels) if known is None else known
                for event in missed:
                    yield event
                while (message := await stream.read_message()) is not None:
                    losses.forget_all()
                    event = _event(message)
                    if known.is_news(event):
                        yield event
            finally:
                stream.close()
            if stream.close_code == _POLICY_VIOLATION:
                raise NotAllowedError(403, stream.close_reason or "the server closed the stream of events")
            await losses.wait(None)
        except (NoAnswerError, ServerError, TooManyRequestsError) as error:
            await losses.wait(error)


class Losses:
    """The waits between attempts to open the stream, bounded by the caller's patience.

    The patience counts the time since the stream was last open, and not the waits alone: attempts take time, too.
    """

    def __init__(self, exchange: Exchange, patience_seconds: float | None) -> None:
        self._exchange = exchange
        self._patience_seconds = patience_seconds
        self._count = 0
        self._open_at = exchange.now()

    def forget_waits(self) -> None:
        """Note that the stream is open. A server that closes it at once is asked ever less often."""
        self._open_at = self._exchange.now()

    def forget_all(self) -> None:
        """Note that the stream told something."""
        self._count = 0

    async def wait(self, error: NoAnswerError | RefusedError | None) -> None:
        """Wait before the next attempt. Raises *error* if that is longer than the caller waits.

        An error of None stands for a stream that was open until now. A server may ask for a longer wait than the one
        that is due, and for none above `_LONGEST_WAIT_SECONDS`.
        """
        if error is None:
            self.forget_waits()
        self._count += 1
        asked = error.retry_after_seconds if isinstance(error, RefusedError) else None
        due = self._exchange.retries.backoff(self._count, self._exchange.chance())
        seconds = max(due, min(asked or 0.0, _LONGEST_WAIT_SECONDS))
        away = self._exchange.now() - self._open_at + seconds
        if error is not None and self._patience_seconds is not None and away > self._patience_seconds:
            raise error
        await self._exchange.sleep(seconds)


async def _opened(open_stream: Open) -> Stream:
    found = await open_stream(_PATH)
    if isinstance(found, RawAnswer):
        raise refusal(found, _ORIGIN)
    return found


def _event(message: str | bytes) -> KernelEvent:
    event: KernelEvent = read_json(message, KernelEvent, _ORIGIN)
    return event
