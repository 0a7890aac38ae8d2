"""Hub, gateway, node agent and relay host end by TERM and KILL in turn, while kernels of two users work.

No kernel and no line of their output may be lost.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import websocket
from hub_accounts import HubOfAccounts, accounts_problem
from hub_process import until

from jupyter_aliquot.gpu_hook.paths import RuntimeDir

SOAK = int(os.environ.get("ALIQUOT_SOAK", "1"))
ROUNDS = 5 * SOAK
SECONDS = 240.0
LINES = 10
# The kernel remembers which cells ran: a cell that ran twice is as wrong as one that did not run.
CELL = """
import time
ran.append({cell})
for line in range({lines}):
    print("cell {cell} line", line, flush=True); time.sleep(0.05)
"""
TURNS = [
    ("agent", signal.SIGKILL),
    ("relay host", signal.SIGTERM),
    ("gateway", signal.SIGKILL),
    ("hub", signal.SIGTERM),
    ("relay host", signal.SIGKILL),
    ("gateway", signal.SIGTERM),
    ("agent", signal.SIGTERM),
    ("hub", signal.SIGKILL),
]


class Worker(threading.Thread):
    """Runs one cell after the other in a kernel, by a websocket that is opened again after each loss."""

    def __init__(self, hub: HubOfAccounts, user: str) -> None:
        super().__init__(daemon=True)
        self._hub = hub
        self._token = hub.token_of(user)
        model = hub.gateway("api/kernels", "POST", {"name": "python3.gpu-0.25"}, token=self._token)
        self.kernel_id = str(model["id"])
        self._session = uuid.uuid4().hex
        self._is_over = threading.Event()
        self.cells = 0
        self.lost: list[str] = []
        self.failure: BaseException | None = None
        self.pid = int(self.cell("import os; ran = []; print(os.getpid())"))

    def run(self) -> None:
        """Called by threading."""
        try:
            while not self._is_over.is_set():
                found = self.cell(CELL.format(cell=self.cells, lines=LINES)).splitlines()
                want = [f"cell {self.cells} line {line}" for line in range(LINES)]
                self.lost += [line for line in want if line not in found]
                assert self.lost or found == want
                self.cells += 1
        except BaseException as error:
            self.failure = error

    def finish(self) -> None:
        self._is_over.set()
        self.join(SECONDS)
        if self.failure is not None:
            raise self.failure
        assert not self.is_alive()

    def cell(self, code: str) -> str:
        """Return a cell's output. The request is sent again until a message shows that the kernel has it."""
        message_id, deadline = uuid.uuid4().hex, time.monotonic() + SECONDS
        told = _Told(message_id)
        while not told.is_whole:
            assert time.monotonic() < deadline, f"no end of the cell came; so far {told.text!r}"
            with suppress(OSError, websocket.WebSocketException):
                self._follow(code, message_id, told)
        return told.text

    def _follow(self, code: str, message_id: str, told: _Told) -> None:
        url = f"{self._hub.gateway_url.replace('http', 'ws', 1)}/api/kernels/{self.kernel_id}/channels"
        try:
            channel = websocket.create_connection(
                f"{url}?session_id={self._session}", timeout=30, header=[f"Authorization: token {self._token}"]
            )
        except (OSError, websocket.WebSocketException):
            time.sleep(0.1)
            raise
        try:
            if not told.seen:
                channel.send(_request(code, message_id, self._session))
            while not told.is_whole:
                told.take(json.loads(channel.recv()))
        finally:
            channel.close()


class _Told:
    """The messages of one cell, each once."""

    def __init__(self, message_id: str) -> None:
        self._message_id = message_id
        self.seen: set[str] = set()
        self.text = ""
        self._replies, self._is_idle = 0, False

    @property
    def is_whole(self) -> bool:
        return bool(self._replies) and self._is_idle

    def take(self, message: dict[str, Any]) -> None:
        own = message["header"]["msg_id"]
        if message["parent_header"].get("msg_id") != self._message_id or own in self.seen:
            return
        self.seen.add(own)
        kind, content = message["msg_type"], message["content"]
        assert kind != "error", content
        self.text += content["text"] if kind == "stream" else ""
        self._replies += kind == "execute_reply"
        self._is_idle = self._is_idle or (kind == "status" and content["execution_state"] == "idle")


def _request(code: str, message_id: str, session: str) -> str:
    header = {"msg_id": message_id, "msg_type": "execute_request", "session": session, "username": "", "version": "5.3"}
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    rest = {"parent_header": {}, "metadata": {}, "channel": "shell", "buffers": []}
    return json.dumps({"header": header, "content": content, **rest})


class Machine:
    """The Hub's processes, each by the lock that it holds."""

    def __init__(self, hub: HubOfAccounts) -> None:
        self.hub = hub
        runtime = RuntimeDir(hub.home / "run")
        self._locks = {
            "agent": runtime.agent_lock,
            "relay host": runtime.relay_lock,
            "gateway": runtime.gateway_lock,
        }

    def pid(self, what: str) -> int:
        """Return the process that holds the lock, or held it last."""
        words = self._locks[what].read_text().split()
        return int(words[0]) if words else 0

    def end(self, what: str, number: int) -> None:
        """End it, and return when another one is there and the gateway answers."""
        if what == "hub":
            self.hub.restart(number)
            return
        before = until(lambda: self.pid(what), SECONDS)
        os.kill(before, number)
        until(lambda: self.pid(what) not in (0, before), SECONDS)
        self.hub.wait_for_gateway()


@pytest.fixture(scope="module")
def hub() -> Iterator[HubOfAccounts]:
    if problem := accounts_problem():
        pytest.skip(problem)
    with HubOfAccounts() as hub:
        yield hub


@pytest.mark.soak(alone="ends Hub, gateway, agent and relay host in turn for minutes")
@pytest.mark.timeout(600 + 120 * ROUNDS)
def test_rounds_of_restarts_lose_no_kernel_and_no_line(hub: HubOfAccounts) -> None:
    machine = Machine(hub)
    workers = [Worker(hub, user) for user in ("ada", "bob")]
    for worker in workers:
        worker.start()
    ended: Counter[str] = Counter()
    for round_ in range(ROUNDS):
        what, number = TURNS[round_ % len(TURNS)]
        machine.end(what, number)
        ended[f"{what} {signal.Signals(number).name}"] += 1
        before = {worker: worker.cells for worker in workers}

        def work_again(before: dict[Worker, int] = before) -> bool:
            return all(worker.failure is not None or worker.cells > cells + 1 for worker, cells in before.items())

        until(work_again, SECONDS)
        assert not [worker.failure for worker in workers if worker.failure is not None], (round_, what, number)
    for worker in workers:
        worker.finish()
        told = worker.cell("import os; print(os.getpid(), len(ran), ran == list(range(len(ran))))").split()
        assert told == [str(worker.pid), str(worker.cells), "True"]
    lost = [line for worker in workers for line in worker.lost]
    cells = sum(worker.cells for worker in workers)
    print(
        f"{ROUNDS} rounds, {dict(ended)}: {cells} cells, {cells * LINES} lines; lost kernels 0, lost lines {len(lost)}"
    )
    assert lost == []
