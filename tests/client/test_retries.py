"""Repeated requests: which, when, and how often."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jupyter_aliquot.client import (
    ClientError,
    NoAnswerError,
    NotFoundError,
    Retries,
    ServerError,
    TooManyRequestsError,
    jupyter,
    operations,
)
from jupyter_aliquot.client.exchange import Call, Exchange
from jupyter_aliquot.client.retries import read_retry_after
from jupyter_aliquot.client.transport import RawAnswer

sys.path.insert(0, str(Path(__file__).parent))
if TYPE_CHECKING:
    from tests.client.client_parts import NotedSleep, ScriptedTransport, api_error, proxy_error
else:
    from client_parts import NotedSleep, ScriptedTransport, api_error, proxy_error

GONE = NoAnswerError("no answer")
QUEUE = RawAnswer(200, b'{"length": 0, "requests": []}')
NOW = datetime(2026, 11, 29, 12, 0, 0, tzinfo=timezone.utc)


def ends(call: Call[object], *answers: RawAnswer | NoAnswerError) -> tuple[object, int, list[float]]:
    """Return the end of a call, the number of its requests, and the waits between them."""
    transport, sleep = ScriptedTransport.of(*answers), NotedSleep()
    exchange = Exchange(transport, Retries(3, 1.0, 10.0), sleep, chance=lambda: 1.0)
    try:
        end: object = asyncio.run(exchange.send(call))
    except ClientError as error:
        end = error
    assert not transport.answers or isinstance(end, ClientError)
    return end, len(transport.requests), sleep.seconds


@pytest.mark.parametrize(
    ("first", "want_waits"),
    [
        (GONE, [1.0]),
        (proxy_error(502), [1.0]),
        (proxy_error(503), [1.0]),
        (proxy_error(504), [1.0]),
        (api_error(429, retry_after="4"), [4.0]),
        (api_error(503, retry_after="0"), [0.0]),
    ],
    ids=["no answer", "502", "503", "504", "429", "503 with Retry-After"],
)
def test_a_passing_failure_of_a_get_is_repeated(first: RawAnswer | NoAnswerError, want_waits: list[float]) -> None:
    end, count, waits = ends(operations.queue(), first, QUEUE)
    assert (end, count, waits) == ({"length": 0, "requests": []}, 2, want_waits)


@pytest.mark.parametrize("answer", [api_error(status) for status in (400, 403, 404, 409, 410, 413, 500, 502, 503)])
def test_words_of_the_gateway_are_final(answer: RawAnswer) -> None:
    end, count, waits = ends(operations.queue(), answer, QUEUE)
    assert (str(end), count, waits) == ("no", 1, [])


@pytest.mark.parametrize(
    ("call", "want_count"),
    [
        (operations.share_kernel("k", "users", "bob", "read"), 2),
        (operations.unshare_kernel("k", "users", "bob"), 2),
        (operations.resize_kernel("k", gpus=0.5), 1),
        (operations.swap_out_kernel("k"), 1),
        (operations.reload_quota(), 1),
    ],
    ids=lambda one: one.method if isinstance(one, Call) else "",
)
def test_only_what_has_the_same_effect_twice_is_sent_twice(call: Call[object], want_count: int) -> None:
    end, count, _ = ends(call, GONE, RawAnswer(200, b'{"shares": []}'))
    assert (count, isinstance(end, NoAnswerError)) == (want_count, want_count == 1)


@pytest.mark.parametrize("first", [GONE, proxy_error(502), proxy_error(504)], ids=["no answer", "502", "504"])
def test_a_repeated_end_that_finds_nothing_has_ended_it(first: RawAnswer | NoAnswerError) -> None:
    end, count, _ = ends(jupyter.end_kernel("k"), first, api_error(404))
    assert (end, count) == (None, 2)


def test_an_end_that_finds_nothing_is_refused_where_no_attempt_can_have_done_it() -> None:
    for answers in ((api_error(404),), (api_error(503, retry_after="0"), api_error(404)), (GONE, proxy_error(404))):
        end, count, _ = ends(jupyter.end_kernel("k"), *answers)
        assert (type(end), count) == (NotFoundError, len(answers))


@pytest.mark.parametrize("kernel_id", ["", ".", ".."])
def test_no_request_for_a_kernel_is_one_for_all_of_them(kernel_id: str) -> None:
    with pytest.raises(ClientError, match="Pass the id of a kernel"):
        jupyter.end_kernel(kernel_id)


def test_attempts_are_bounded_and_waits_double() -> None:
    end, count, waits = ends(operations.queue(), GONE, GONE, GONE, QUEUE)
    assert (end, count, waits) == (GONE, 3, [1.0, 2.0])


def test_a_longer_wait_than_the_rules_allow_is_left_to_the_caller() -> None:
    end, count, _ = ends(operations.queue(), api_error(429, retry_after="11"), QUEUE)
    assert (type(end), count) == (TooManyRequestsError, 1)
    assert isinstance(end, TooManyRequestsError)
    assert end.retry_after_seconds == 11


def test_the_last_failure_is_the_one_that_is_raised() -> None:
    end, _, _ = ends(operations.queue(), GONE, GONE, proxy_error(502))
    assert isinstance(end, ServerError)
    assert (end.status, "a proxy answered" in str(end)) == (502, True)


def test_waits_are_spread_and_bounded() -> None:
    rules = Retries(first_wait_seconds=1.0, longest_wait_seconds=5.0)
    assert [rules.backoff(count, 0.0) for count in (1, 2, 3, 4, 10_000)] == [0.5, 1.0, 2.0, 2.5, 2.5]


@pytest.mark.parametrize(
    ("header", "want"),
    [
        (None, None),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("Sun, 29 Nov 2026 12:00:30 GMT", 30.0),
        ("Sun, 29 Nov 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("-1", None),
        ("", None),
        ("9" * 400, 999_999_999.0),
    ],
)
def test_a_time_to_wait_is_seconds_or_a_date(header: str | None, want: float | None) -> None:
    assert read_retry_after(header, NOW) == want
