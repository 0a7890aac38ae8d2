"""The replica that leads is killed with its machine, again and again, while kernels start, run cells and end."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
import websocket
from memory_cells import CHECK, FILL, GPU

from tests.system.conftest import HttpRefusal, Kernel, Outcome, Server, wait_until
from tests.system.survival.conftest import Tab

from .conftest import Ring, a_ring

SOAK = int(os.environ.get("ALIQUOT_SOAK", "1"))
KILLS = min(3 * SOAK, 20)
USERS = 4
CELLS = 4  # of each kernel
LINES = 30
LEASE = "--KernelPods.lease=gateway"
# The kernel remembers which cells ran: one that ran twice is as wrong as one that did not run.
CELL = """
import time
ran = globals().get("ran", []); ran.append({number})
for line in range({lines}):
    print("cell {number} line", line, flush=True); time.sleep(0.05)
"""
AWAY = (OSError, websocket.WebSocketException)


@dataclass
class Toll:
    """The costs of the storm. A cell that was under way when a leader was killed is counted apart."""

    kernels: int = 0
    unanswered_starts: int = 0
    cells: int = 0
    under_way: int = 0
    not_run: int = 0
    lines_lost: int = 0
    unexplained: list[str] = field(default_factory=list)
    failovers: list[float] = field(default_factory=list)


class Replicas:
    """Two replicas, each with a machine of its own: one leads, and one waits for the Lease."""

    def __init__(self, ring: Ring) -> None:
        self._ring, self._numbers = ring, itertools.count()
        self._threads = ThreadPoolExecutor(2)
        ring.server.stop()
        self.kills: list[float] = []
        self._leader = self._start()
        ring.follow(self._leader[1].result())
        self._standby = self._start()

    def _start(self) -> tuple[int, Future[Server]]:
        number = next(self._numbers)
        return number, self._threads.submit(self._ring.serve, LEASE, run=f"run{number}")

    def kill_leader(self) -> float:
        """Kill the leader and all of its machine; return the seconds until the next one answers."""
        number, server = self._leader
        self.kills.append(time.monotonic())
        server.result().process.kill()
        server.result().process.wait(30)
        self._ring.lose_gateways_machine(f"run{number}")  # the next one's state has the same path: it waits so long
        self._leader = self._standby
        server = self._leader[1].result()
        took = time.monotonic() - self.kills[-1]
        self._ring.follow(server)
        self._standby = self._start()
        return took

    def close(self) -> None:
        """Leave one leader."""
        self._ring.server.stop()
        self._ring.server = self._standby[1].result()
        self._threads.shutdown()


class User:
    """Starts kernels, runs cells in each, and ends it, one after the other."""

    def __init__(
        self, ring: Ring, replicas: Replicas, toll: Toll, is_over: threading.Event, is_lost: threading.Event
    ) -> None:
        self._ring, self._replicas, self._toll = ring, replicas, toll
        self._is_over, self._is_lost = is_over, is_lost

    def work(self) -> None:
        while not self._is_over.is_set():
            kernel_id = self._start()
            self._toll.kernels += 1
            self._run(kernel_id, GPU + FILL.format(seed=1, mebibytes=8), repeats=True)
            ran = [number for number in range(CELLS) if self._cell(kernel_id, number)]
            told = self._run(kernel_id, CHECK + "print(globals().get('ran', []))", repeats=True).text.splitlines()
            if told[-2].split()[1] != "True" or told[-1] != str(ran):
                self._toll.unexplained.append(f"{kernel_id}: {told}, want {ran}")
            self._end(kernel_id)

    def _start(self) -> str:
        while True:
            try:
                return self._ring.server.start("box.gpu-0.25").id
            except AWAY as error:
                # It may be there, unless no replica took the request.
                self._toll.unanswered_starts += not isinstance(getattr(error, "reason", None), ConnectionRefusedError)
                self._pause(0.2)
            except HttpRefusal as refusal:
                if refusal.status != 503:
                    raise
                self._pause(0.2)

    def _cell(self, kernel_id: str, number: int) -> bool:
        """Run a cell once; return whether it ran."""
        began = time.monotonic()
        text, has_run = self._printed(kernel_id, number)
        is_hit = any(began <= at <= time.monotonic() for at in self._replicas.kills)
        want = "".join(f"cell {number} line {line}\n" for line in range(LINES))
        self._toll.cells += 1
        self._toll.under_way += is_hit
        if is_hit:
            self._toll.not_run += not has_run
            self._toll.lines_lost += max(0, LINES - len(text.splitlines())) if has_run else 0
        if text != want and (has_run or not is_hit):
            self._toll.unexplained.append(f"{kernel_id} cell {number}: {text!r}, ran {has_run}, hit {is_hit}")
        return has_run

    def _printed(self, kernel_id: str, number: int) -> tuple[str, bool]:
        """Send a cell once, and read on at the next replica; return what it printed, and whether it ran.

        Its own page asks whether it ran: another page would take the output that waits for this one.
        """
        tab: Tab | None = None
        cell = ""
        while True:
            try:
                server: Any = self._ring.server  # it has what a Gateway has
                tab = Tab(server, kernel_id) if tab is None else tab.reconnect(server)
                if not cell:
                    cell = tab.execute(CELL.format(number=number, lines=LINES))
                # Cells run in order: the answer comes after the cell's end.
                elif tab.text(tab.execute(f"print({number} in globals().get('ran', []))")) != "True\n":
                    tab.close()
                    return "", False
                text = tab.text(cell)
                assert tab.find(cell, "execute_reply")["content"]["status"] == "ok"
                tab.close()
                return text, True
            except websocket.WebSocketBadStatusException as refusal:
                if refusal.status_code == 404:
                    raise AssertionError(f"the kernel {kernel_id} is lost") from refusal
            except AWAY:
                pass
            self._pause(0.1)

    def _run(self, kernel_id: str, code: str, *, repeats: bool = False) -> Outcome:
        """Run code at the replica that leads; *repeats*: again until it is answered, else once."""
        while True:
            kernel = Kernel(self._ring.server, kernel_id)
            text, was_sent = "", False
            try:
                message_id = kernel.send(code)
                was_sent = True
                for part in answers(kernel, message_id):
                    text += part
            except websocket.WebSocketBadStatusException as refusal:
                if refusal.status_code == 404:
                    raise AssertionError(f"the kernel {kernel_id} is lost") from refusal
            except AWAY:
                if was_sent and not repeats:
                    return Outcome("", text, "")
            else:
                return Outcome("ok", text, "")
            finally:
                with contextlib.suppress(*AWAY):
                    kernel.reconnect()
            self._pause(0.1)

    def _pause(self, seconds: float) -> None:
        """Wait before the next try. Raises AssertionError if no replica may answer one."""
        assert not self._is_lost.wait(seconds), "the replicas failed"

    def _end(self, kernel_id: str) -> None:
        while True:
            try:
                self._ring.server.call("DELETE", f"/api/kernels/{kernel_id}")
            except AWAY:
                self._pause(0.2)
            except HttpRefusal as refusal:
                if refusal.status == 404:
                    return
                self._pause(0.2)
            else:
                return


def answers(kernel: Kernel, message_id: str) -> Iterator[str]:
    """Yield the text that a cell prints, until it has ended."""
    is_answered = is_idle = False
    while not (is_answered and is_idle):
        told = json.loads(kernel.connect().recv())
        if told["parent_header"].get("msg_id") != message_id:
            continue
        kind, content = told["msg_type"], told["content"]
        assert kind != "error", content
        is_answered = is_answered or kind == "execute_reply"
        is_idle = is_idle or (kind == "status" and content["execution_state"] == "idle")
        if kind == "stream":
            yield content["text"]


@pytest.fixture
def replicas() -> Iterator[tuple[Ring, Replicas]]:
    with a_ring() as ring:
        made = Replicas(ring)
        try:
            yield ring, made
        finally:
            made.close()


@pytest.mark.soak(alone="kills replicas of a gateway for minutes")
@pytest.mark.timeout(300 + 60 * KILLS)
def test_no_kernel_and_no_grant_is_lost_or_left(replicas: tuple[Ring, Replicas]) -> None:
    ring, both = replicas
    toll, is_over, is_lost = Toll(), threading.Event(), threading.Event()
    with ThreadPoolExecutor(USERS) as threads:
        users = [threads.submit(User(ring, both, toll, is_over, is_lost).work) for _ in range(USERS)]
        try:
            for number in range(KILLS):
                time.sleep(1.0 + number % 4)  # at other moments of their work
                toll.failovers.append(both.kill_leader())
        except BaseException:
            is_lost.set()  # else the executor waits for the users
            raise
        finally:
            is_over.set()
        for user in users:
            user.result()
    seconds = [round(one, 1) for one in sorted(toll.failovers)]
    print(f"{KILLS} kills, {toll}; failover median {statistics.median(seconds)} s, longest {seconds[-1]} s")
    left = ring.server.call("GET", "/api/kernels")
    assert len(left) <= toll.unanswered_starts, "a kernel that was ended is still there"
    for kernel in left:
        ring.server.call("DELETE", f"/api/kernels/{kernel['id']}")
    wait_until(ring.is_empty)
    wait_until(lambda: not ring.documents("record"))
    assert not toll.unexplained, ring.logs()
    assert toll.lines_lost == 0
