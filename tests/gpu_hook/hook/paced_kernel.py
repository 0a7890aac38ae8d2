"""A kernel of one process whose agent paces it.

The stand-in gives the orders; the tests read the pages.
"""

from __future__ import annotations

from typing import Any

from shared_words import load_half

from jupyter_aliquot.gpu_hook.protocol.codec import AgentPage, Gate, HookPage, Pace

MIB = 1 << 20
MS = 1_000_000
FOR_EVER = 1 << 62
UUIDS_AND_QUOTA = 64 * MIB


class PacedKernel:
    """A paced kernel.

    ``order`` writes the order for a device until the next one.
    """

    def __init__(self, node: Any) -> None:
        self.node = node
        outside = node.outsider()
        assert outside("init()") == 0
        uuids = [outside(f"uuid({device})") for device in range(outside("count()"))]
        self.agent = node.grant(*((uuid, UUIDS_AND_QUOTA) for uuid in uuids))
        self.program = node.program()
        assert self.program("begin()") == 0
        assert self.program("spinner() and 0") == 0
        self.connection = self.agent.process(self.program.pid)

    def order(
        self,
        pace: Pace = Pace.TIME,
        allowed: int = FOR_EVER,
        beside: int = FOR_EVER,
        cap: int = 0,
        batch_us: int = 1000,
        gaps: tuple[int, int, int] = (0, 0, 0),
        device: int = 0,
        gate: int = Gate.PACED,
    ) -> None:
        self.agent.write(self.connection, device, AgentPage.ALLOWED, allowed)
        self.agent.write(self.connection, device, AgentPage.ALLOWED_WITH_BUSY_PEERS, beside)
        halves = {AgentPage.IN_FLIGHT_CAP: cap, AgentPage.BATCH: batch_us, AgentPage.PACE: pace}
        halves |= dict(
            zip((AgentPage.IDLE_WINDOW_MIN, AgentPage.IDLE_WINDOW_MAX, AgentPage.IDLE_RESUME), gaps, strict=True)
        )
        for offset, value in halves.items():
            self.agent.write_half(device, offset, value)
        self.agent.set_gate(gate)

    def word(self, offset: int, device: int = 0) -> int:
        return int(self.connection.word(device, offset))

    def half(self, offset: int, device: int = 0) -> int:
        at = HookPage.DEVICES + device * HookPage.DEVICE_BYTES + offset
        return load_half(self.connection.hook_page, at)

    def occupied(self, device: int = 0) -> int:
        """Return the time of all launches, once none is in flight."""
        self.agent.wait_for(lambda: self.half(HookPage.IN_FLIGHT, device) == 0)
        return self.word(HookPage.OCCUPIED, device)

    def waits(self, device: int = 0) -> bool:
        return self.half(HookPage.WAITING_LAUNCHES, device) > 0

    def register_again(self) -> None:
        """Register again after the agent's stand-in began anew."""
        self.connection = self.agent.process(self.program.pid)
