"""The stream of events over lost connections: nothing is told twice, and no change of state is missed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jupyter_aliquot.client import AnswerError, NoAnswerError, NotAllowedError, Retries, ServerError
from jupyter_aliquot.client.events import event_of, follow
from jupyter_aliquot.client.exchange import Exchange
from jupyter_aliquot.client.transport import RawAnswer

sys.path.insert(0, str(Path(__file__).parent))
if TYPE_CHECKING:
    from tests.client.client_parts import NotedSleep, ScriptedStream, ScriptedTransport, a_kernel, api_error
else:
    from client_parts import NotedSleep, ScriptedStream, ScriptedTransport, a_kernel, api_error

AWAY = NoAnswerError("away")
Opened = ScriptedStream | RawAnswer | NoAnswerError


def kernels(**states: str) -> RawAnswer:
    listed = [a_kernel(kernel_id, state) for kernel_id, state in states.items()]
    return RawAnswer(200, json.dumps({"kernels": listed}).encode())


def told(kernel_id: str, state: str, kind: str = "state") -> str:
    report: Any = a_kernel(kernel_id, state)
    return json.dumps({**event_of(report, None), "kind": kind, "schema_id": "https://a.schema"})


def streams(*opened: Opened) -> Callable[[str], Awaitable[Any]]:
    left = list(opened)

    async def open_stream(path: str) -> ScriptedStream | RawAnswer:
        one = left.pop(0)
        if isinstance(one, NoAnswerError):
            raise one
        return one

    return open_stream


def heard(
    opened: tuple[Opened, ...], lists: tuple[RawAnswer, ...], patience_seconds: float | None = 5.0
) -> tuple[list[tuple[str, str, str | None]], list[float]]:
    """Return the events until the server stays away, and the waits."""
    sleep = NotedSleep()
    exchange = Exchange(ScriptedTransport.of(*lists), Retries(1, 1.0, 4.0), sleep, lambda: 1.0, sleep.now)

    async def read() -> list[tuple[str, str, str | None]]:
        found = []
        with contextlib.suppress(NoAnswerError, ServerError):
            async for event in follow(exchange, streams(*opened, *[AWAY] * 9), patience_seconds):
                found.append((event["kernel_id"], event["state"], event["was"]))
        return found

    return asyncio.run(read()), sleep.seconds


def test_what_changed_while_the_stream_was_lost_is_told_after_it() -> None:
    opened = (ScriptedStream.of([told("a", "swapped_out")]), ScriptedStream.of([told("b", "ended")]))
    lists = (kernels(a="on_gpu", b="on_gpu"), kernels(a="restoring", b="on_gpu", c="queued"))
    events, _ = heard(opened, lists)
    assert events == [
        ("a", "swapped_out", None),
        ("a", "restoring", "swapped_out"),
        ("c", "queued", None),
        ("b", "ended", None),
    ]


def test_a_kernel_that_left_the_list_while_the_stream_was_lost_is_told_as_ended_once() -> None:
    opened = (ScriptedStream.of([told("b", "on_gpu")]), ScriptedStream.of([]), ScriptedStream.of([]))
    lists = (kernels(a="on_gpu", c="ended"), kernels(), kernels())
    events, _ = heard(opened, lists)
    assert events == [("b", "on_gpu", None), ("a", "ended", "on_gpu"), ("b", "ended", "on_gpu")]


def test_a_state_that_the_list_told_is_not_told_again_by_the_stream() -> None:
    opened = (ScriptedStream.of([]), ScriptedStream.of([told("a", "ended"), told("a", "ended", "memory_limit")]))
    events, _ = heard(opened, (kernels(a="on_gpu"), kernels(a="ended")))
    assert events == [("a", "ended", "on_gpu"), ("a", "ended", None)], "the second is of another kind"


def test_kernels_of_before_the_first_look_are_no_news() -> None:
    events, _ = heard(
        (ScriptedStream.of([]), ScriptedStream.of([])), (kernels(a="on_gpu"), kernels(a="on_gpu", b="ended"))
    )
    assert events == []


def test_present_states_come_first_where_they_are_wanted() -> None:
    exchange = Exchange(ScriptedTransport.of(kernels(a="on_gpu", b="ended")), Retries(), NotedSleep())

    async def read_two() -> list[tuple[str, str, str | None]]:
        events = follow(exchange, streams(ScriptedStream.of([])), None, with_present=True)
        found = [await events.__anext__() for _ in range(2)]
        await events.aclose()
        return [(event["kernel_id"], event["state"], event["was"]) for event in found]

    assert asyncio.run(read_two()) == [("a", "on_gpu", None), ("b", "ended", None)]


def test_attempts_become_rarer_until_the_patience_is_over() -> None:
    _, waits = heard((), (), patience_seconds=8.0)
    assert waits == [1.0, 2.0, 4.0]


PAST = "Sun, 29 Nov 2020 11:00:00 GMT"


@pytest.mark.parametrize("asked", ["0", PAST], ids=["no seconds", "a date in the past"])
def test_a_server_that_asks_for_no_wait_is_asked_ever_less_often_until_the_patience_is_over(asked: str) -> None:
    _, waits = heard((api_error(503, retry_after=asked),) * 9, (), patience_seconds=8.0)
    assert waits == [1.0, 2.0, 4.0]


def test_a_wait_that_a_server_asks_for_is_kept_and_bounded() -> None:
    opened = (api_error(503, retry_after="60"), api_error(503, retry_after="999999999"), ScriptedStream.of([], 1008))
    sleep = NotedSleep()
    exchange = Exchange(ScriptedTransport.of(kernels()), Retries(), sleep)

    async def read() -> None:
        async for _ in follow(exchange, streams(*opened), None):
            pass

    with pytest.raises(NotAllowedError):
        asyncio.run(read())
    assert sleep.seconds == [60.0, 300.0]


def test_time_that_attempts_take_is_time_without_the_server() -> None:
    sleep = NotedSleep()
    exchange = Exchange(ScriptedTransport.of(), Retries(), sleep, lambda: 1.0, sleep.now)
    attempts = 0

    async def open_slowly(path: str) -> ScriptedStream | RawAnswer:
        nonlocal attempts
        attempts += 1
        await sleep(30.0)
        raise AWAY

    with pytest.raises(NoAnswerError):
        asyncio.run(follow(exchange, open_slowly, 60.0).__anext__())
    assert attempts == 2


def test_a_stream_that_was_quiet_for_long_leaves_the_whole_patience() -> None:
    sleep = NotedSleep()
    exchange = Exchange(ScriptedTransport.of(kernels()), Retries(), sleep, lambda: 1.0, sleep.now)
    stream = ScriptedStream.of([])

    async def open_once(path: str) -> Any:
        if stream.is_closed:
            raise AWAY
        return stream

    read_message = stream.read_message

    async def read_late() -> str | None:
        await sleep(9_000.0)
        return await read_message()

    stream.read_message = read_late  # type: ignore[method-assign]  # the time passes while the stream is open
    with pytest.raises(NoAnswerError):
        asyncio.run(follow(exchange, open_once, 8.0).__anext__())
    assert sleep.seconds == [9_000.0, 0.5, 1.0, 2.0, 4.0]


def test_a_server_that_closes_each_stream_at_once_is_asked_ever_less_often() -> None:
    opened = tuple(ScriptedStream.of([], 1013) for _ in range(4))
    _, waits = heard(opened, (kernels(),) * 4, patience_seconds=3.0)
    assert waits == [1.0, 2.0, 4.0, 4.0], "and its answers begin the patience anew"


@pytest.mark.parametrize(
    ("opened", "want", "words"),
    [
        (api_error(403, "Forbidden"), NotAllowedError, "Forbidden: .* else that in JUPYTER_GATEWAY_AUTH_TOKEN"),
        (ScriptedStream.of([], 1008, "log in again"), NotAllowedError, "log in again"),
        (ScriptedStream.of(["{}"]), AnswerError, "has no field kernel_id"),
        (ScriptedStream.of(["<html>"]), AnswerError, "no JSON"),
    ],
    ids=["refused", "closed for good", "no event", "no JSON"],
)
def test_what_waiting_does_not_mend_ends_the_iterator(opened: Opened, want: type[Exception], words: str) -> None:
    with pytest.raises(want, match=words):
        heard((opened,), (kernels(),))


def test_leaving_the_iterator_closes_the_stream() -> None:
    stream = ScriptedStream.of([told("a", "ended")] * 2)
    exchange = Exchange(ScriptedTransport.of(kernels()), Retries(), NotedSleep())

    async def read_one() -> None:
        events = follow(exchange, streams(stream), None)
        await events.__anext__()
        assert not stream.is_closed
        await events.aclose()

    asyncio.run(read_one())
    assert stream.is_closed


def test_an_event_of_a_report_has_what_the_report_has() -> None:
    queued = {"reason": "no room", "seconds": 1.0, "ahead": 0, "expected_seconds": None}
    resize = {"state": "queued", "gpus": 0.5, "requested_memory_bytes": None, "priority": "low", "reason": "no room"}
    report: Any = a_kernel(
        "a",
        "restoring",
        residency={"swapped_bytes": 7, "queued": queued},
        resize={**resize, "position": 2, "queue_length": 3},
        devices=[{"compute": None}, {"compute": {"paused": True}}],
    )
    event = event_of(report, "swapped_out")
    assert (event["swapped_bytes"], event["paused"], event["queued"]) == (7, True, queued)
    assert (event["resize"], event["was"]) == ({**resize, "position": 2}, "swapped_out")
