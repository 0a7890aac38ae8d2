"""`aliquot defragment --apply` with a gateway that forgets the run."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from jupyter_aliquot.gateway.cli.app import main

PLAN = {"size": None, "node": "n", "digest": None, "reason": "x", "moves": [], "gpus": [], "stays": []}
RUN = {"state": "running", "by": "root", "since": "2026-12-01T10:00:00Z", "node": "n", "moves": []}


class Gateway(BaseHTTPRequestHandler):
    """A gateway that begins a run, and has restarted when the command looks again."""

    later: dict[str, Any] | None = None

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._say(202, {**PLAN, "run": RUN})

    def do_GET(self) -> None:
        self._say(200, {**PLAN, "run": self.later})

    def log_message(self, *_: Any) -> None:
        """Write nothing."""

    def _say(self, code: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def a_gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with HTTPServer(("127.0.0.1", 0), Gateway) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("JUPYTER_GATEWAY_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("JUPYTER_GATEWAY_AUTH_TOKEN", "t")
        yield
        server.shutdown()


@pytest.mark.parametrize("later", [None, {**RUN, "by": "ada"}], ids=["it restarted", "it runs another plan"])
@pytest.mark.usefixtures("a_gateway")
def test_a_run_that_the_gateway_does_not_know_any_more_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], later: dict[str, Any] | None
) -> None:
    monkeypatch.setattr(Gateway, "later", later)
    with pytest.raises(SystemExit) as ended:
        main(["defragment", "--size", "1", "--apply", "3f9c1b52a077"])
    assert ended.value.code == 1
    assert "does not know this run any more" in capsys.readouterr().err


@pytest.mark.usefixtures("a_gateway")
def test_a_run_that_ends_early_tells_its_plan_and_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    move = {"kernel_id": "k", "label": "a.ipynb", "owner": "ada", "source_index": 0, "target_index": 1}
    dropped = {**move, "memory_bytes": 0, "outcome": "dropped", "reason": "another replica leads"}
    over = {**RUN, "state": "over", "digest": "3f9c1b52a077", "reason": "another replica leads", "moves": [dropped]}
    monkeypatch.setattr(Gateway, "later", over)
    with pytest.raises(SystemExit) as ended:
        main(["defragment", "--size", "1", "--apply", "3f9c1b52a077"])
    assert ended.value.code == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "Moves on n of the plan 3f9c1b52a077, by root:" in text
    assert "The run ended early: another replica leads." in text
