"""Refusals of a gateway with too many requests.

The gateway's message reaches users, and their server takes no kernel for ended.
"""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest, HTTPResponse
from tornado.web import HTTPError

from jupyter_aliquot.gateway.api.jupyter import with_cause
from jupyter_aliquot.gateway.remote import client as gateway_questions
from jupyter_aliquot.gateway.remote.kernels import AliquotRemoteKernelManager

SAID = "Too many requests from alice: 100 a second are allowed, after 2000 at once. Try again in 1 s"


def refusal() -> HTTPError:
    """Return the refusal that Jupyter's client of a gateway raises."""
    body = io.BytesIO(json.dumps({"message": SAID, "reason": None}).encode())
    response = HTTPResponse(HTTPRequest("http://gateway"), 429, buffer=body)
    error = HTTPError(429, "Error from Gateway: ...")
    error.__cause__ = HTTPClientError(429, "Too Many Requests", response)
    return error


async def refuse(*_: Any, **__: Any) -> Any:
    raise refusal()


def test_questions_and_starts_are_answered_with_the_gateways_status_and_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_questions, "gateway_request", refuse)
    for asked in (gateway_questions.send_to_gateway("aliquot/api/v1/status"), with_cause(refuse)):
        with pytest.raises(HTTPError) as told:
            asyncio.run(asked)
        assert (told.value.status_code, told.value.log_message) == (429, SAID)


def test_a_kernel_is_not_taken_for_ended_by_a_gateway_that_refuses_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    class Kernel:
        kernel = {"id": "k", "name": "python3"}

        async def refresh_model(self) -> Any:
            return await answer()

    manager = AliquotRemoteKernelManager()
    manager._kernels["k"] = Kernel()
    answer: Any = refuse
    assert asyncio.run(manager._ask_for("k")) == Kernel.kernel
    assert "k" in manager._kernels

    async def gone() -> None:
        return None

    answer = gone
    assert asyncio.run(manager._ask_for("k")) is None
    assert "k" not in manager._kernels
