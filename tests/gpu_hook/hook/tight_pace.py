"""An agent's stand-in that paces every process on every device, tightly.

A launch waits now and then, and the reason changes all the time. The paced programs must not see
any of it.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from types import TracebackType
from typing import Any

from shared_words import load_half, store, store_half

from jupyter_aliquot.gpu_hook.protocol.codec import AgentPage, Gate, HookPage, Pace

PAUSE_SECONDS = 0.002
PORTION_NANOSECONDS = 100_000  # of device time, and as many microseconds of a batch at most
FOR_EVER = 1 << 62


class TightPace:
    """Gives another order every few milliseconds.

    ``waits`` counts how often a launch was seen waiting.
    """

    def __init__(self, agent: Any) -> None:
        self.waits = 0
        self._agent = agent
        agent.gate, agent.pace = Gate.PACED, Pace.TIME
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> TightPace:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        chance = random.Random(0)
        for turn in itertools.count():
            if self._stop.wait(PAUSE_SECONDS):
                return
            for connection in list(self._agent.connections):
                for device in range(len(self._agent.devices)):
                    with contextlib.suppress(ValueError, TypeError):  # it has no pages yet, or none any more
                        self._order(connection, device, turn, chance)

    def _order(self, connection: Any, device: int, turn: int, chance: random.Random) -> None:
        page, at = connection.agent_page, AgentPage.DEVICES + device * AgentPage.DEVICE_BYTES
        own = HookPage.DEVICES + device * HookPage.DEVICE_BYTES
        self.waits += load_half(connection.hook_page, own + HookPage.WAITING_LAUNCHES) > 0
        pace = chance.choice([Pace.TIME] * 5 + [Pace.MEASURE, Pace.OFF])
        used = connection.word(device, HookPage.OCCUPIED)
        more = chance.choice([0, 1, 3, PORTION_NANOSECONDS]) if turn % 4 else 20 * PORTION_NANOSECONDS
        store(page, at + AgentPage.ALLOWED, used + more)
        store(page, at + AgentPage.ALLOWED_WITH_BUSY_PEERS, FOR_EVER)
        store_half(page, at + AgentPage.BATCH, chance.choice([1, 50, 1000]))
        store_half(page, at + AgentPage.IN_FLIGHT_CAP, chance.choice([0, 1, 2]) if turn % 4 else 0)
        store_half(page, at + AgentPage.PACE, pace)
        store_half(page, AgentPage.GATE, Gate.OPEN if turn % 97 == 0 else Gate.PACED)
