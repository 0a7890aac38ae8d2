"""Requests to /aliquot/api/v1 of a server in gateway mode.

The server sends each of them on to its gateway, and returns the gateway's answer.
"""

from __future__ import annotations

import json
import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import websocket
from contract_files import API as CONTRACT

from .conftest import Server

API: dict[str, dict[str, Any]] = CONTRACT["paths"]
[EVENTS] = [path for path in API if path.endswith("/events")]
OPERATIONS = [(method.upper(), path) for path, methods in API.items() for method in methods if path != EVENTS]
# No document has these paths: a gateway newer than this server may have them.
PREFIX = EVENTS.removesuffix("/events")
NEWER = [(method, f"{PREFIX}/newer/thing") for method in ("GET", "POST", "PUT", "PATCH", "DELETE")]
# The answer has the form of the reports to which this server adds.
REPORT = {"kernels": [], "id": "k", "label": "at the gateway", "largest_gpus": 1.0, "told": "by the gateway"}
SAID = {"message": "Requested 0 % more. Request less.", "reason": None}


@dataclass
class RecordingGateway:
    """A gateway that gives the same answer to each request of the API, and notes the requests."""

    asked: list[tuple[str, str, bytes]] = field(default_factory=list)
    status: int = 200
    kind: str = "application/json"
    report: Any = field(default_factory=lambda: REPORT)
    process: None = None  # `own_servers` reads it
    url: str = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        is_ours = handler.path.startswith("/aliquot/")
        if is_ours:
            self.asked.append((handler.command, handler.path, body))
        told = json.dumps((self.report if self.status < 400 else SAID) if is_ours else []).encode()
        handler.send_response(self.status if is_ours else 200)
        handler.send_header("Content-Type", self.kind)
        handler.send_header("Content-Length", str(len(told)))
        handler.end_headers()
        handler.wfile.write(told)


@pytest.fixture(scope="module")
def recording() -> Iterator[RecordingGateway]:
    gateway = RecordingGateway()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def answer(self) -> None:
            gateway.answer(self)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    gateway.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield gateway
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def mine(recording: RecordingGateway, own_servers: Callable[..., list[Server]]) -> Server:
    [server] = own_servers("alice", gateway=recording)
    recording.asked.clear()
    recording.status, recording.kind, recording.report = 200, "application/json", REPORT
    return server


def asked_path(path: str) -> str:
    return re.sub(r"\{\w+\}", "users", path) + "?one=1%2F2&two=a%20b&one=3"


def test_each_documented_path_and_newer_ones_are_the_gateways(recording: RecordingGateway, mine: Server) -> None:
    for method, path in OPERATIONS + NEWER:
        body = None if method == "GET" else {"asked": "of the gateway"}
        has_body = method in ("POST", "PUT", "PATCH")
        answer = mine.ask(method, asked_path(path).lstrip("/"), body)
        assert (answer.status, answer.body["told"]) == (200, "by the gateway"), (method, path, answer)
        [(sent, where, with_body)] = recording.asked
        assert (sent, where) == (method, asked_path(path))
        assert with_body == (json.dumps(body).encode() if has_body else b"")
        recording.asked.clear()
    with pytest.raises(websocket.WebSocketBadStatusException):
        websocket.create_connection(
            f"ws://127.0.0.1:{mine.port}{EVENTS}", timeout=90, header=[f"Authorization: token {mine.token}"]
        )
    assert [(method, path) for method, path, _ in recording.asked] == [("GET", EVENTS)]


def test_no_token_of_this_server_goes_to_the_gateway(recording: RecordingGateway, mine: Server) -> None:
    for name in ("token", "%74oken"):
        url = f"{mine.url}{PREFIX.lstrip('/')}/status?{name}={mine.token}&one=1&no_track_activity=1"
        headers = {} if name == "token" else {"Authorization": f"token {mine.token}"}
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
            assert answer.status == 200
    assert [path for _, path, _ in recording.asked] == [f"{PREFIX}/status?one=1"] * 2


def test_refusals_of_the_gateway_have_its_status_and_its_words(recording: RecordingGateway, mine: Server) -> None:
    recording.status = 418
    for method, path in OPERATIONS + NEWER:
        answer = mine.ask(method, asked_path(path).lstrip("/"), None if method == "GET" else {})
        assert (answer.status, json.loads(answer.body)["message"]) == (418, SAID["message"]), (method, path, answer)


def test_status_codes_types_and_accepted_types_are_passed_on(recording: RecordingGateway, mine: Server) -> None:
    recording.status, recording.kind = 202, "text/csv; charset=utf-8"
    request = urllib.request.Request(
        f"{mine.url}{PREFIX.lstrip('/')}/history",
        headers={"Authorization": f"token {mine.token}", "Accept": "text/csv"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert (answer.status, answer.headers["Content-Type"]) == (202, "text/csv; charset=utf-8")


@pytest.mark.parametrize("report", [[], "ok", {}, {"kernels": "none"}, {"kernels": [1]}, {"kernels": [{}]}])
def test_the_answer_of_another_program_at_the_gateways_address_is_said_to_be_none(
    report: Any, recording: RecordingGateway, mine: Server
) -> None:
    recording.report = report
    for path in ("status", "kernels/k", "sizes"):
        answer = mine.ask("GET", f"{PREFIX.lstrip('/')}/{path}")
        assert (answer.status, "cannot be read" in str(answer.body)) == (503, True), (path, answer)
        assert "See the gateway's log" in str(answer.body)


def test_a_page_in_place_of_an_answer_is_not_passed_on(recording: RecordingGateway, mine: Server) -> None:
    recording.kind = "text/html"
    for path in ("status", "folders"):
        answer = mine.ask("GET", f"{PREFIX.lstrip('/')}/{path}")
        assert (answer.status, "cannot be read" in answer.body) == (503, True), answer


@pytest.mark.parametrize("path", ["../../api/kernels", "%2e%2E/api/kernels", "..%2f..%2Fapi/kernels", "./status"])
def test_no_path_leads_out_of_the_api(recording: RecordingGateway, mine: Server, path: str) -> None:
    assert mine.ask("GET", f"{PREFIX.lstrip('/')}/{path}").status == 404
    assert recording.asked == []


def test_other_users_of_this_server_reach_no_path_of_the_gateway(
    recording: RecordingGateway, own_servers: Callable[..., list[Server]]
) -> None:
    people = {"owner": {"token": "own", "role": "admin"}, "guest": {"token": "a-guest"}}
    [server] = own_servers("alice", gateway=recording, more=[f"--AliquotIdentityProvider.users={people}"])
    recording.asked.clear()
    for method, path in OPERATIONS + NEWER:
        server.ask(method, asked_path(path).lstrip("/"), None if method == "GET" else {}, token="a-guest")
    assert recording.asked == []
