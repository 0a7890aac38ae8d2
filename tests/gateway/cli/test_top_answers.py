"""`aliquot top` beside a gateway that answers badly: it ends in the middle, is of before, or is none."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gateway.status.report import Scene, status_report
from jupyter_aliquot.gateway.terminal.rest_client import Gateways
from jupyter_aliquot.gateway.terminal.top_source import Look, TopSource
from jupyter_aliquot.gateway.terminal.top_view import Screen, top_view
from jupyter_aliquot.gpu_hook.paths import RuntimeDir

OK = b"HTTP/1.1 200 OK\r\n"


def shown(look: Look) -> str:
    out = StringIO()
    Console(file=out, width=100, no_color=True, highlight=False, markup=False).print(top_view(look, None, Screen(100)))
    return out.getvalue()


@pytest.fixture
def answering(a_runtime_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], TopSource]]:
    """A gateway of this process that gives each asker these bytes, and hangs up."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(a_runtime_folder))
    runtime = RuntimeDir(a_runtime_folder)
    runtime.gateway_lock.write_text(str(os.getpid()))
    answers: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = {"url": f"http://127.0.0.1:{server.getsockname()[1]}/", "token": "t"}
        (a_runtime_folder / f"jpserver-{os.getpid()}.json").write_text(json.dumps(where))

        def serve() -> None:
            while True:
                connection, _ = server.accept()
                with connection:
                    connection.recv(1 << 16)
                    if not answers:
                        return
                    connection.sendall(answers[-1])

        thread = threading.Thread(target=serve)
        thread.start()

        def start(answer: bytes) -> TopSource:
            answers.append(answer)
            return TopSource(Gateways(runtime))

        yield start
        answers.clear()
        with socket.create_connection(server.getsockname()) as last:
            last.sendall(b"end")
        thread.join()


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 1000\r\n\r\n{",  # it was killed
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"who is there\r\n\r\n",
        OK + b"Content-Length: 4\r\n\r\nnull",
        OK + b"Content-Length: 2\r\n\r\n{}",
    ],
)
def test_half_an_answer_is_none_and_the_agent_is_asked(answering: Callable[[bytes], TopSource], answer: bytes) -> None:
    look = answering(answer).look()
    assert (look.report, "no node agent answers" in look.problem) == (None, True), "there is none here"


def test_a_gateway_of_before_is_shown_without_what_it_does_not_tell(answering: Callable[[bytes], TopSource]) -> None:
    report: dict[str, Any] = status_report(Scene("", node=NodeView()), User("", "admin"))
    device = {"index": 0, "uuid": "GPU-0", "name": "a card", "memory_bytes": 1, "used_bytes": 1}
    part = {"uuid": "GPU-0", "index": 0, "used_bytes": 1, "quota_bytes": 1}
    kernel = {"id": "k", "label": "a.ipynb", "owner": "ada", "gpus": 0.5, "state": "resident"}
    report["devices"] = [{**device, "utilization_percent": 4, "lost": False}]
    report["kernels"] = [{**kernel, "workload_class": "production", "devices": [part]}]
    body = json.dumps(report).encode()
    source = answering(OK + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    first, second = source.look(), source.look()
    assert "a.ipynb" in shown(first)
    assert top_view(second, first, Screen(100))


def test_a_terminal_obeys_nobody_who_refuses(answering: Callable[[bytes], TopSource]) -> None:
    body = json.dumps({"message": "no\x1b[2J"}).encode()
    look = answering(b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n" % len(body) + body).look()
    assert "the gateway refuses to say: no" in shown(look)
    assert "\x1b" not in shown(look)
