"""Answers by the contract are read whole, and wrong ones end in an error of the client's own tree."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from contract_files import API, EVENT
from hypothesis import given, settings, strategies as st
from jsonschema import Draft202012Validator, ValidationError

from jupyter_aliquot.client import AnswerError, ClientError, RefusedError, Retries, operations
from jupyter_aliquot.client.answers import read_json
from jupyter_aliquot.client.exchange import Call, Exchange
from jupyter_aliquot.client.transport import RawAnswer
from jupyter_aliquot.gateway.reports.event import KernelEvent

sys.path.insert(0, str(Path(__file__).parent))
if TYPE_CHECKING:
    from tests.client.client_parts import NotedSleep, ScriptedTransport
    from tests.client.contract_answers import (
        OF_EACH_TYPE,
        answer_schema,
        fitting,
        places,
        with_value,
        without,
    )
else:
    from client_parts import NotedSleep, ScriptedTransport
    from contract_answers import OF_EACH_TYPE, answer_schema, fitting, places, with_value, without

CALLS: dict[str, Call[Any]] = {
    "status": operations.status(),
    "sizes": operations.sizes(),
    "dryRun": operations.dry_run(gpus=0.5),
    "sessionOptions": operations.session_options("python3.gpu-0.25"),
    "dryRuns": operations.dry_runs(["gpu-0.5"]),
    "kernels": operations.kernels(),
    "resizeKernel": operations.resize_kernel("k", gpus=0.5),
    "kernelShares": operations.kernel_shares("k"),
    "kernelOutputs": operations.kernel_outputs("k"),
    "nodes": operations.nodes(),
    "node": operations.node("n"),
    "drainNode": operations.drain_node("n", "fan"),
    "history": operations.history(),
    "usage": operations.usage(),
    "folders": operations.folders(),
    "quota": operations.quota(),
    "queue": operations.queue(),
    "holders": operations.holders(),
}
SCHEMAS: dict[str, dict[str, Any]] = {
    operation["operationId"]: schema
    for methods in API["paths"].values()
    for operation in methods.values()
    if operation["operationId"] in CALLS and (schema := answer_schema(operation)) is not None
}
VALIDATORS = {
    name: Draft202012Validator({**schema, "components": API["components"]}) for name, schema in SCHEMAS.items()
}
NAMES = st.sampled_from(sorted(CALLS))
# A seed is quick to draw, and a failing one is told; an answer of hypothesis's own takes seconds.
RANDOM = st.integers(0, 1 << 32).map(Random)


# Fields and words may be added within v1. The client takes them, and never a wrong type or a missing field.
BOUNDS = {"minimum", "exclusiveMinimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"}
TOLERATED = {"enum", "const", "pattern", "additionalProperties"} | BOUNDS


def faults(errors: Iterable[ValidationError]) -> Iterator[str]:
    """Yield the rules of the contract that are broken. A message's header is the kernel's own: it is any object."""
    for error in errors:
        if "header" in error.absolute_path:
            continue
        if error.validator == "oneOf":
            yield from faults(one for one in error.context or () if one.validator_value != "null")
        else:
            yield str(error.validator)


def end_of(name: str, answer: RawAnswer) -> object:
    """Return what a call ends with that gets this answer."""
    exchange = Exchange(ScriptedTransport.of(answer), Retries(attempts=1), NotedSleep())
    try:
        return asyncio.run(exchange.send(CALLS[name]))
    except ClientError as error:
        return error


def test_all_reports_that_a_call_answers_are_tried() -> None:
    assert set(SCHEMAS) == set(CALLS)


@settings(max_examples=120)
@given(random=RANDOM, name=NAMES)
def test_an_answer_by_the_contract_is_read_with_all_that_is_in_it(random: Random, name: str) -> None:
    answer = fitting(SCHEMAS[name], random)
    assert set(faults(VALIDATORS[name].iter_errors(answer))) <= TOLERATED, "the generator keeps to the types"
    want = answer[CALLS[name].field] if CALLS[name].field else answer
    assert end_of(name, RawAnswer(200, json.dumps(answer).encode())) == want


@settings(max_examples=50)
@given(random=RANDOM)
def test_an_event_by_the_contract_is_read(random: Random) -> None:
    answer = fitting(EVENT, random)
    assert read_json(json.dumps(answer), KernelEvent, "EVENTS") == answer


@settings(max_examples=120)
@given(random=RANDOM, name=NAMES)
def test_a_missing_field_or_a_wrong_type_is_an_error_of_the_client(random: Random, name: str) -> None:
    answer = fitting(SCHEMAS[name], random)
    place = random.choice(list(places(answer)))
    broken = [with_value(answer, place, value) for value in OF_EACH_TYPE] + ([without(answer, place)] if place else [])
    for one in broken:
        end = end_of(name, RawAnswer(200, json.dumps(one).encode()))
        if VALIDATORS[name].is_valid(one):
            assert not isinstance(end, ClientError), end
        elif isinstance(end, AnswerError):
            assert "compare `version`" in str(end)
        else:
            assert set(faults(VALIDATORS[name].iter_errors(one))) <= TOLERATED, one


@settings(max_examples=50)
@given(random=RANDOM, name=NAMES)
def test_a_cut_body_is_an_error_of_the_client(random: Random, name: str) -> None:
    body = json.dumps(fitting(SCHEMAS[name], random)).encode()
    cut = body[: random.randrange(len(body))]
    end = end_of(name, RawAnswer(200, cut))
    assert isinstance(end, AnswerError)
    assert "no JSON" in str(end)


@settings(max_examples=60)
@given(name=NAMES, body=st.binary(max_size=50), status=st.integers(200, 299))
def test_no_body_whatever_gets_past_the_reading(name: str, body: bytes, status: int) -> None:
    end = end_of(name, RawAnswer(status, body))
    assert isinstance(end, AnswerError)


@settings(max_examples=60)
@given(
    name=NAMES,
    status=st.sampled_from([100, 301, 302, 304, 400, 401, 403, 404, 405, 409, 410, 413, 418, 429, 500, 502, 503, 599]),
    body=st.one_of(
        st.just(b"<html><h1>502 Bad Gateway</h1></html>"),
        st.binary(max_size=30),
        st.sampled_from(OF_EACH_TYPE).map(lambda value: json.dumps(value).encode()),
        st.sampled_from(OF_EACH_TYPE).map(lambda value: json.dumps({"message": value, "reason": value}).encode()),
    ),
    retry_after=st.one_of(st.none(), st.text(max_size=12)),
)
def test_each_answer_that_is_no_success_is_a_refusal_with_its_status(
    name: str, status: int, body: bytes, retry_after: str | None
) -> None:
    headers = {} if retry_after is None else {"retry-after": retry_after}
    end = end_of(name, RawAnswer(status, body, headers, "phrase"))
    assert isinstance(end, RefusedError)
    assert (end.status, bool(str(end))) == (status, True)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1" * 5000, "[" * 100_000])
def test_what_python_reads_and_json_has_not_is_an_error(word: str) -> None:
    end = end_of("queue", RawAnswer(200, f'{{"length": {word}, "requests": []}}'.encode()))
    assert isinstance(end, AnswerError)


def test_an_error_names_the_place_of_what_is_wrong() -> None:
    end = end_of("queue", RawAnswer(200, b'{"length": 1, "requests": [{"kernel_id": 7}]}'))
    assert "GET /aliquot/api/v1/queue was answered with another answer than this client knows" in str(end)
    assert "requests[0].kernel_id is no text" in str(end)


def test_words_of_a_server_steer_no_terminal() -> None:
    end = end_of("queue", RawAnswer(400, json.dumps({"message": "\x1b[2Jno\nmore", "reason": "\x07"}).encode()))
    assert isinstance(end, RefusedError)
    assert (end.message, end.reason) == ("\ufffd[2Jno\nmore", "\ufffd")
