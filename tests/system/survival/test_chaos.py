"""A gateway that is killed at random under kernels at work.

No kernel, no cell and no line may be lost.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

SOAK = int(os.environ.get("ALIQUOT_SOAK", "1"))
KERNELS = 3 if SOAK == 1 else 50
SECONDS = 8.0 if SOAK == 1 else 15.0 * SOAK
LINES = 25
# The kernel remembers which cells ran: a cell that ran twice is as wrong as one that did not run.
CELL = """
import time
ran = globals().get("ran", []); ran.append({cell})
for line in range({lines}):
    print("cell {cell} line", line, flush=True); time.sleep({pause})
"""


@dataclass
class Worker:
    """Runs one cell after the other in one kernel.

    Its websocket is opened again after each loss.
    """

    gateway: Any
    kernel_id: str
    session: str = field(default_factory=lambda: uuid.uuid4().hex)
    cells: int = 0
    messages: int = 0
    lost: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    twice: int = 0
    reconnections: int = -1

    async def work(self, until: float, pause: float) -> None:
        while time.monotonic() < until:
            found = (await self.run(CELL.format(cell=self.cells, lines=LINES, pause=pause))).splitlines()
            want = [f"cell {self.cells} line {line}" for line in range(LINES)]
            self.lost += [line for line in want if line not in found]
            assert self.lost or found == want
            self.cells += 1

    async def run(self, code: str) -> str:
        """Return a cell's output.

        The same request is sent again until a message shows that the kernel works on it.
        """
        message_id = uuid.uuid4().hex
        text, replies, is_idle, was_seen = "", 0, False, False
        while not (replies and is_idle):
            socket = await self.connect()
            if not was_seen:
                socket.write_message(request(code, message_id, self.session))
            while not (replies and is_idle):
                answer = await socket.read_message()
                if answer is None:
                    break
                message = json.loads(answer)
                self.messages += 1
                if message["parent_header"].get("msg_id") != message_id:
                    continue
                if message["header"]["msg_id"] in self.seen:
                    self.twice += 1
                    continue
                self.seen.add(message["header"]["msg_id"])
                was_seen = True
                kind, content = message["msg_type"], message["content"]
                text += content["text"] if kind == "stream" else ""
                replies += kind == "execute_reply"
                is_idle = is_idle or (kind == "status" and content["execution_state"] == "idle")
            socket.close()
        return text

    async def connect(self) -> WebSocketClientConnection:
        url = f"ws://127.0.0.1:{self.gateway.port}/api/kernels/{self.kernel_id}/channels?session_id={self.session}"
        ask = HTTPRequest(url, headers={"Authorization": f"token {self.gateway.token}"}, request_timeout=60)
        while True:
            try:
                self.reconnections += 1
                return await websocket_connect(ask)
            except HTTPClientError as refusal:
                if refusal.code == 404:
                    pytest.fail(f"kernel {self.kernel_id} is lost: {refusal}")
                await asyncio.sleep(0.1)
            except OSError:
                await asyncio.sleep(0.1)


def request(code: str, message_id: str, session: str) -> str:
    header = {"msg_id": message_id, "msg_type": "execute_request", "session": session, "username": "", "version": "5.3"}
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    return json.dumps(
        {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell", "buffers": []}
    )


async def kill_at_random(a_node: Any, until: float, dice: random.Random) -> Counter[str]:
    """Give each life a few seconds, and end it in one of two ways."""
    ends: Counter[str] = Counter()
    while time.monotonic() < until - 2:
        await asyncio.sleep(dice.uniform(0.5, 2.0 if SOAK == 1 else 6.0))
        how = dice.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
        gateway = a_node.gateways[-1]
        await asyncio.to_thread(gateway.stop, how)
        after = await asyncio.to_thread(a_node.succeed, gateway)
        ends[how.name] += 1
        # Workers find their gateway anywhere; only the token and the port count, and those stay.
        assert after.port == gateway.port
    return ends


@pytest.mark.soak(alone="kills gateways at random")
@pytest.mark.timeout(300 if SOAK == 1 else 600 + 30 * SOAK)
def test_a_gateway_killed_at_random_loses_no_kernel_and_no_line(a_node: Any, eventually: Any) -> None:
    dice = random.Random(int(os.environ.get("ALIQUOT_SEED", "4")))
    gateway = a_node.serve().wait_until_up()
    names = ["python3.gpu-0.01" if number % 2 else "python3" for number in range(KERNELS)]
    workers = [Worker(gateway, gateway.start_kernel(name)) for name in names]

    async def storm() -> Counter[str]:
        for worker in workers:
            await worker.run("ran = []")
        until = time.monotonic() + SECONDS
        # All together print a few hundred lines a second, however many kernels there are.
        work = [worker.work(until, 0.02 * KERNELS / 3) for worker in workers]
        ends, *_ = await asyncio.gather(kill_at_random(a_node, until, dice), *work)
        for worker in workers:
            told = await worker.run("print(ran == list(range(len(ran))), len(ran))")
            assert told.split() == ["True", str(worker.cells)], (worker.kernel_id, told, worker.cells)
        return ends

    ends = asyncio.run(storm())
    last = a_node.gateways[-1]
    found = last.kernel_ids()
    missing = {worker.kernel_id for worker in workers} - found
    lost, twice = [line for worker in workers for line in worker.lost], sum(worker.twice for worker in workers)
    cells, messages = sum(worker.cells for worker in workers), sum(worker.messages for worker in workers)
    print(
        f"{KERNELS} kernels, {SECONDS:g} s, gateway ended {dict(ends)}: {cells} cells, {messages} messages; "
        f"lost kernels {len(missing)}, lost messages {len(lost)}, messages twice {twice}"
    )
    assert sum(ends.values()) > 0, "nothing was ever killed: the storm blew nowhere"
    assert cells >= KERNELS
    assert (missing, lost) == (set(), [])
    for kernel_id in found:
        last.call("DELETE", f"/api/kernels/{kernel_id}")
    eventually(lambda: (a_node.held(), a_node.relays(), a_node.processes()) == ({}, {}, {}))
