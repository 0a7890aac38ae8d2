"""Cells that run through a storm.

The browser sends each once; its kernel writes down that it ran, and the browser keeps its output.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import websocket

LINES = 5
AHEAD = 3  # cells of a kernel under way at a time: fewer could not change places
PAUSE_SECONDS = 0.05
PATIENCE_SECONDS = 30.0
# Writes to a file, which outlives the kernel's process.
CELL = """
import os
ran = os.open({path!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT); os.write(ran, b"{number}\\n"); os.close(ran)
{gpu}
for line in range({lines}):
    print("cell {number} line", line, flush=True)
"""
GPU = """
if "cuda" not in globals():
    import ctypes
    cuda = ctypes.CDLL("libcuda.so.1"); context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    found = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context)]
    assert found == [0, 0, 0], found
found = [cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)), cuda.cuMemFree_v2(pointer)]
assert found == [0, 0], found
"""


@dataclass
class Cell:
    """One cell as its browser saw it. Times are of the monotonic clock."""

    number: int
    sent_at: float
    begun_at: float = float("inf")
    settled_at: float = float("inf")
    text: str = ""
    status: str = ""
    error: str = ""
    is_idle: bool = False

    @property
    def is_answered(self) -> bool:
        return bool(self.status) and self.is_idle


@dataclass(frozen=True)
class Blow:
    """The target of a blow, and its time. If ``kernel_id`` is None: all kernels."""

    kind: str
    at: float
    kernel_id: str | None = None
    until: float = 0.0


@dataclass
class Toll:
    """The costs of a storm. ``unexplained``: those that no blow explains."""

    cells: int = 0
    ran: int = 0
    twice: int = 0
    reordered: int = 0
    lost: int = 0
    output_lost: int = 0
    output_reordered: int = 0
    messages_twice: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)


class Browser(threading.Thread):
    """Sends one kernel cell after cell, over a websocket that it opens again after each loss."""

    def __init__(self, gateway: Any, kernel_id: str, folder: Path, has_gpu: bool) -> None:
        super().__init__(daemon=True)
        self.kernel_id = kernel_id
        self.cells: dict[str, Cell] = {}  # by the ids of their messages
        self.messages_twice = 0
        self._port, self._token = gateway.port, gateway.token
        self._ran = folder / f"ran-{kernel_id}"
        self._gpu = GPU if has_gpu else ""
        self._session = uuid.uuid4().hex
        self._socket: websocket.WebSocket | None = None
        self._open: list[str] = []
        self._seen: set[str] = set()
        self._finishing = threading.Event()

    def run(self) -> None:
        """Send cells until all have an answer or are given up. Called by Thread.start."""
        while not self._finishing.is_set() or self._open:
            try:
                self._turn()
            except websocket.WebSocketTimeoutException:
                pass
            except (OSError, ValueError, websocket.WebSocketException):
                self._disconnect()
                self._finishing.wait(0.1)
            self._give_up()
        self._disconnect()

    def finish(self) -> None:
        """Send no more cells, and wait for those under way."""
        self._finishing.set()
        self.join(4 * PATIENCE_SECONDS)
        assert not self.is_alive(), f"the browser of kernel {self.kernel_id} hangs"

    def ran(self) -> list[int]:
        """Return the numbers of the cells that ran, in the order of their runs."""
        return [int(line) for line in self._ran.read_text().split()] if self._ran.exists() else []

    def _turn(self) -> None:
        if self._socket is None:
            url = f"ws://127.0.0.1:{self._port}/api/kernels/{self.kernel_id}/channels?session_id={self._session}"
            header = [f"Authorization: token {self._token}"]
            self._socket = websocket.create_connection(url, header=header, timeout=PATIENCE_SECONDS)
            self._socket.settimeout(PAUSE_SECONDS)
        if len(self._open) < AHEAD and not self._finishing.is_set():
            self._send()
        self._take(json.loads(self._socket.recv()))

    def _send(self) -> None:
        assert self._socket is not None
        message_id, number = uuid.uuid4().hex, len(self.cells)
        code = CELL.format(path=str(self._ran), number=number, lines=LINES, gpu=self._gpu)
        self.cells[message_id] = Cell(number, time.monotonic())
        self._open.append(message_id)
        header = {"msg_id": message_id, "msg_type": "execute_request", "session": self._session, "version": "5.3"}
        content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False, "stop_on_error": False}
        message = {"header": {**header, "username": ""}, "parent_header": {}, "metadata": {}, "content": content}
        self._socket.send(json.dumps({**message, "channel": "shell", "buffers": []}))

    def _take(self, message: dict[str, Any]) -> None:
        cell = self.cells.get(message["parent_header"].get("msg_id", ""))
        if cell is None:
            return
        if message["header"]["msg_id"] in self._seen:
            self.messages_twice += 1
            return
        self._seen.add(message["header"]["msg_id"])
        cell.begun_at = min(cell.begun_at, time.monotonic())
        kind, content = message["msg_type"], message["content"]
        if kind == "stream" and content["name"] == "stdout":
            cell.text += content["text"]
        elif kind == "execute_reply":
            cell.status, cell.error = content["status"], f"{content.get('ename', '')}: {content.get('evalue', '')}"
        cell.is_idle = cell.is_idle or (kind == "status" and content["execution_state"] == "idle")

    def _give_up(self) -> None:
        """Give cells up.

        A cell is settled after its answer, after the answer of a later cell, and after a time
        limit.
        """
        now = time.monotonic()
        answered = [place for place, name in enumerate(self._open) if self.cells[name].is_answered]
        settled = self._open[: answered[-1] + 1] if answered else []
        settled += [
            name for name in self._open if name not in settled and now > self.cells[name].sent_at + PATIENCE_SECONDS
        ]
        for name in settled:
            self.cells[name].settled_at = now
            self._open.remove(name)

    def _disconnect(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError, websocket.WebSocketException):
                self._socket.close()
        self._socket = None


def count(browsers: Iterable[Browser], blows: list[Blow], fatal: frozenset[str]) -> Toll:
    """Return the fates of all cells.

    ``fatal``: the kinds of blows that may cost the cells under way. An allocation fails if the
    agent is away for longer than hooks wait (5 s): those cells are explained, too.
    """
    toll = Toll()
    away = [blow for blow in blows if blow.kind.endswith("_agent")]
    for browser in browsers:
        mine = [blow for blow in blows if blow.kind in fatal and blow.kernel_id in (None, browser.kernel_id)]
        _count_runs(browser, mine, toll)
        for cell in browser.cells.values():
            _count_output(browser, cell, [blow for blow in mine if blow.kernel_id], away, toll)
        toll.messages_twice += browser.messages_twice
    return toll


def _count_runs(browser: Browser, blows: list[Blow], toll: Toll) -> None:
    ran = browser.ran()
    distinct = list(dict.fromkeys(ran))
    toll.cells += len(browser.cells)
    toll.ran += len(distinct)
    toll.twice += len(ran) - len(distinct)
    toll.reordered += sum(after < before for before, after in itertools.pairwise(distinct))
    for cell in browser.cells.values():
        if cell.number not in distinct:
            toll.lost += 1
            if not _explains(blows, cell):
                toll.unexplained.append(f"cell {cell.number} of kernel {browser.kernel_id} did not run: {cell}")


def _count_output(browser: Browser, cell: Cell, blows: list[Blow], away: list[Blow], toll: Toll) -> None:
    if cell.status == "error":
        toll.failed[cell.error] += 1
        if not _explains(away, cell):
            toll.unexplained.append(f"cell {cell.number} of kernel {browser.kernel_id} failed: {cell}")
    if cell.status != "ok":
        return
    found, want = cell.text.splitlines(), [f"cell {cell.number} line {line}" for line in range(LINES)]
    if set(want) - set(found):
        toll.output_lost += 1
        if not _explains(blows, cell):
            toll.unexplained.append(f"cell {cell.number} of kernel {browser.kernel_id} lost output: {cell}")
    elif found != want:
        toll.output_reordered += 1


def _explains(blows: list[Blow], cell: Cell) -> bool:
    """Return whether a blow fell while the cell was under way.

    A message to a socket of the dead goes a moment later.
    """
    return any(blow.at <= cell.settled_at and cell.sent_at - 0.5 <= max(blow.at, blow.until) for blow in blows)


class Prober(threading.Thread):
    """Sends the gateway requests all the time; records those without an answer, and failures."""

    def __init__(self, ask: Any, refusal: type[Exception]) -> None:
        super().__init__(daemon=True)
        self.failures: Counter[str] = Counter()
        self.slowest_seconds = 0.0
        self.asked = 0
        self._ask, self._refusal = ask, refusal
        self._finishing = threading.Event()

    def run(self) -> None:
        """Send requests. Called by Thread.start."""
        paths = ("/api/kernels", "/aliquot/api/v1/kernels", "/aliquot/api/v1/history")
        while not self._finishing.wait(0.3):
            path = paths[self.asked % len(paths)]
            began = time.monotonic()
            self.asked += 1
            try:
                self._ask(path)
            except self._refusal as refusal:
                self.failures[f"{getattr(refusal, 'status', '?')} {path}"] += 1
            except (OSError, ValueError):
                continue  # killed during its answer, or not up
            self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)

    def finish(self) -> None:
        self._finishing.set()
        self.join(PATIENCE_SECONDS * 4)
