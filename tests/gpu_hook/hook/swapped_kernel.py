"""A kernel of one process that the agent's stand-in swaps.

It holds a little memory, and its calls wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from shared_words import load_half, store_half

from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import (
    AgentPage,
    HookPage,
    Lease,
    MessageType,
    MoveOutcome,
    Residency,
    ResidencyMode,
    Swap,
    Wake,
)

MIB = 1 << 20
KEPT = "kept.append(alloc({bytes})[1]) or call('cuMemsetD8_v2', U64(kept[-1]), 7, SIZE({bytes}))"
LOAD = (
    "call('cuModuleLoadData', ctypes.byref(modules[0]), "
    "(Path(os.path.abspath(__file__)).parents[3] / 'gpu_hook' / 'builtins.ptx').read_bytes() + bytes(1))"
)


class Kernel:
    """A kernel of one process, which holds a little memory, and the agent that swaps it."""

    def __init__(self, node: Any, agent: Any, program: Any, make_orders: Callable[..., Any], stack: ExitStack) -> None:
        self.node, self.agent, self.program = node, agent, program
        self._make_orders, self._stack = make_orders, stack
        self.orders = self.new_orders()

    def new_orders(self, drain_milliseconds: int = 10_000) -> Any:
        """Make orders, also for a process that has registered again."""
        made = self._make_orders(self.agent, self.process, [8 * MIB], drain_milliseconds=drain_milliseconds)
        return self._stack.enter_context(made)

    @property
    def process(self) -> Any:
        return self.agent.process(self.program.pid)

    def half(self, offset: int) -> int:
        return load_half(self.process.hook_page, offset)

    def set_lease(self, lease: Lease) -> None:
        store_half(self.process.agent_page, AgentPage.LEASE, lease)

    def await_waiting(self, count: int) -> None:
        self.agent.wait_for(lambda: self.half(HookPage.WAITING_CALLS) == count, 30)

    def wakes(self) -> int:
        return sum(isinstance(one, Wake) for one in self.agent.heard)

    def swap_out(self) -> None:
        moved = self.orders.swap_out()
        assert (moved.outcome, moved.residency) == (MoveOutcome.DONE, Residency.SWAPPED), moved

    def begin(self, kind: MessageType) -> None:
        """Order a move, and do not wait for the answer."""
        order = Swap(kind, 7, drain_milliseconds=30_000, segment_count=0)
        self.process.socket.send(protocol.pack(order))

    def await_residency(self, *wanted: Residency) -> None:
        self.agent.wait_for(lambda: self.half(HookPage.RESIDENCY) in wanted, 30)

    def swap_in(self) -> None:
        moved = self.orders.swap_in()
        assert (moved.outcome, moved.residency) == (MoveOutcome.DONE, Residency.RESIDENT), moved


def make(
    make_node: Callable[..., Any],
    make_orders: Callable[..., Any],
    stack: ExitStack,
    mode: ResidencyMode = ResidencyMode.VMM,
    held: int = 4 * MIB,
    preload: str = "",
    **softgpu: object,
) -> Kernel:
    """Start the node, its agent's stand-in and the process, which holds ``held`` bytes."""
    node = make_node(devices=1, **{"memory": "256MiB", **softgpu})
    node.agent.residency_mode = mode
    node.agent.host_quota = 1 << 40
    program = node.program(LD_PRELOAD=preload)
    program("init()")
    agent = node.grant((program("uuid()"), 128 * MIB))
    assert program("use()") == 0
    assert program("globals().update(kept=[], modules=[ctypes.c_void_p()])") is None
    assert program(LOAD) == 0
    if held:
        assert program(KEPT.format(bytes=held)) == 0
    return Kernel(node, agent, program, make_orders, stack)
