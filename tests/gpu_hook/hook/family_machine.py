"""A state machine over every family of memory: charges equal the device's use after each step.

Rules choose by number (`pick`), so that hypothesis drives them, and a seeded walk, too. The model's
lists keep what a rule leaves behind; `teardown` frees it all and expects no charge.
"""

from __future__ import annotations

import mmap
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jupyter_aliquot.gpu_hook.protocol.codec import HookPage

MIB = 1 << 20
PAGE = mmap.PAGESIZE
SPAN = 2 * MIB
SLOTS = 8  # places for mappings, side by side

SIZES = st.one_of(
    st.integers(1, 4096),
    st.integers(MIB - 600, MIB + 600),
    st.integers(1, 24).map(lambda count: count * MIB),
    st.integers(1, 40 * MIB),
)
PICK = st.integers(0, 1 << 16)


class FamilyMachine(RuleBasedStateMachine):
    """One program under the hook, a second of the same kernel, and a reference without hook."""

    program: Any
    peer: Any
    outsider: Any
    agent: Any
    quota: int
    used_before: int
    window: int
    complaints: list[str]

    def __init__(self) -> None:
        super().__init__()
        self.pointers: list[int] = []  # of the primary context
        self.in_order: list[tuple[int, int]] = []  # pointer and its pool, 0 for the default one
        self.managed: dict[int, int] = {}
        self.arrays: list[tuple[str, int]] = []
        self.host: dict[int, tuple[str, int]] = {}
        self.handles: dict[int, int] = {}  # references that are due
        self.mapped: dict[int, int] = {}  # slot to handle
        self.pools: list[int] = []
        self.execs: list[int] = []
        self.opened: list[tuple[int, int]] = []  # ours, and the peer's name for it
        self.contexts: list[tuple[int, list[int], list[tuple[str, int]]]] = []

    # --- linear memory and contexts

    def live(self) -> list[int]:
        return self.contexts[-1][1] if self.contexts else self.pointers

    def live_arrays(self) -> list[tuple[str, int]]:
        return self.contexts[-1][2] if self.contexts else self.arrays

    @rule(amount=SIZES)
    def allocate(self, amount: int) -> None:
        code, pointer = self.program(f"alloc({amount})")
        if code == 0:
            self.live().append(pointer)

    @rule(width=st.integers(1, 5000), height=st.integers(1, 5000))
    def allocate_rows(self, width: int, height: int) -> None:
        code, pointer, _ = self.program(f"alloc_pitch({width}, {height})")
        if code == 0:
            self.live().append(pointer)

    @precondition(lambda self: self.live())
    @rule(pick=PICK)
    def free(self, pick: int) -> None:
        pointer = self.live()[pick % len(self.live())]
        if pointer not in [ours for ours, _ in self.opened] and self.program(f"free({pointer})") == 0:
            self.live().remove(pointer)

    @rule(pointer=st.integers(1, 1 << 40))
    def free_what_is_not_ours(self, pointer: int) -> None:
        assert self.program(f"free({pointer})") != 0

    @precondition(lambda self: len(self.contexts) < 3)
    @rule()
    def begin_context(self) -> None:
        code, context = self.program("new_context()")
        if code == 0:
            self.contexts.append((context, [], []))

    @precondition(lambda self: self.contexts)
    @rule()
    def end_context(self) -> None:
        while any(pointer in self.contexts[-1][1] for pointer, _ in self.opened):
            self.close_in_peer(0)
        if self.program(f"end_context({self.contexts[-1][0]})") == 0:
            self.contexts.pop()

    @precondition(lambda self: not self.contexts)
    @rule(amount=SIZES)
    def allocate_managed(self, amount: int) -> None:
        code, pointer = self.program(f"alloc_managed({amount})")
        if code == 0:
            self.managed[pointer] = -(-amount // (64 << 10)) * (64 << 10) if amount < MIB else -(-amount // SPAN) * SPAN

    @precondition(lambda self: self.managed and not self.contexts)
    @rule(pick=PICK)
    def free_managed(self, pick: int) -> None:
        pointer = list(self.managed)[pick % len(self.managed)]
        if self.program(f"free({pointer})") == 0:
            del self.managed[pointer]

    # --- pools

    @rule(amount=SIZES, pick=PICK, suffix=st.sampled_from(["", "_ptsz"]))
    def allocate_in_order(self, amount: int, pick: int, suffix: str) -> None:
        pool = [0, *self.pools][pick % (1 + len(self.pools))]
        ask = f"alloc_from_pool({amount}, {pool}, {suffix!r})" if pool else f"alloc_async({amount}, {suffix!r})"
        code, pointer = self.program(ask)
        if code == 0:
            self.in_order.append((pointer, pool))

    @precondition(lambda self: self.in_order)
    @rule(pick=PICK, name=st.sampled_from(["free_later", "free_async", "free"]))
    def free_in_order(self, pick: int, name: str) -> None:
        one = self.in_order[pick % len(self.in_order)]
        if self.program(f"{name}({one[0]})") == 0:
            self.in_order.remove(one)

    @rule(name=st.sampled_from(["cuStreamSynchronize", "cuCtxSynchronize"]))
    def synchronize(self, name: str) -> None:
        self.program(f"synchronize({name!r})")

    @precondition(lambda self: len(self.pools) < 3)
    @rule(keeps=st.sampled_from([0, 8 * MIB, (1 << 64) - 1]))
    def make_pool(self, keeps: int) -> None:
        pool = self.program("new_pool(0)")
        if pool:
            self.program(f"keep({pool}, {keeps})")
            self.pools.append(pool)

    @precondition(lambda self: self.pools)
    @rule(pick=PICK, keep=st.sampled_from([0, 4 * MIB, 32 * MIB]))
    def trim_pool(self, pick: int, keep: int) -> None:
        self.program(f"trim({self.pools[pick % len(self.pools)]}, {keep})")

    @precondition(lambda self: self.pools)
    @rule(pick=PICK)
    def end_pool(self, pick: int) -> None:
        """End a pool without live allocations.

        Memory that outlives its pool is charged as long as the pool's handle is gone.
        """
        pool = self.pools[pick % len(self.pools)]
        if pool not in [own for _, own in self.in_order]:
            self.program("synchronize('cuCtxSynchronize')")
            if self.program(f"end_pool({pool})") == 0:
                self.pools.remove(pool)

    # --- arrays

    @rule(
        shape=st.tuples(st.integers(1, 3000), st.integers(0, 2000)),
        of=st.sampled_from(["u8", "u16", "half", "float"]),
        channels=st.sampled_from([1, 2, 3, 4]),
    )
    def make_array(self, shape: tuple[int, int], of: str, channels: int) -> None:
        code, array = self.program(f"new_array({shape[0]}, {shape[1]}, 0, {of!r}, {channels})")
        if code == 0:
            self.live_arrays().append(("end_array", array))

    @rule(shape=st.tuples(st.integers(1, 1000), st.integers(1, 1000)), levels=st.integers(1, 4))
    def make_mipmapped(self, shape: tuple[int, int], levels: int) -> None:
        code, array = self.program(f"new_mipmapped({shape[0]}, {shape[1]}, {levels})")
        if code == 0:
            self.live_arrays().append(("end_mipmapped", array))

    @precondition(lambda self: self.live_arrays())
    @rule(pick=PICK)
    def end_array(self, pick: int) -> None:
        one = self.live_arrays()[pick % len(self.live_arrays())]
        if self.program(f"{one[0]}({one[1]})") == 0:
            self.live_arrays().remove(one)

    # --- virtual memory

    @rule(spans=st.integers(1, 3))
    def make_handle(self, spans: int) -> None:
        code, handle = self.program(f"create({spans * SPAN}, exported=True)")
        if code == 0:
            self.handles[handle] = self.handles.get(handle, 0) + 1

    @precondition(lambda self: self.handles)
    @rule(pick=PICK)
    def release_handle(self, pick: int) -> None:
        handle = list(self.handles)[pick % len(self.handles)]
        if self.program(f"release({handle})") == 0:
            self.handles[handle] -= 1
            if not self.handles[handle]:
                del self.handles[handle]

    @precondition(lambda self: self.handles and len(self.mapped) < SLOTS)
    @rule(pick=PICK)
    def map_handle(self, pick: int) -> None:
        handle = list(self.handles)[pick % len(self.handles)]
        self.map_at([one for one in range(SLOTS) if one not in self.mapped][pick % (SLOTS - len(self.mapped))], handle)

    @precondition(lambda self: not self.mapped)
    @rule(count=st.integers(2, 4))
    def map_row(self, count: int) -> None:
        """Map memory of its own at each of several places, as for expandable segments."""
        for slot in range(count):
            code, handle = self.program(f"create({SPAN}, exported=True)")
            if code == 0:
                self.handles[handle] = 1
                self.map_at(slot, handle)

    def map_at(self, slot: int, handle: int) -> None:
        if self.program(f"map_at({self.window + slot * SPAN}, {SPAN}, {handle})") == 0:
            self.mapped[slot] = handle

    @precondition(lambda self: self.mapped)
    @rule(pick=PICK, count=st.integers(1, SLOTS))
    def unmap_some(self, pick: int, count: int) -> None:
        """Unmap a run of mappings, side by side, in one call."""
        first = last = sorted(self.mapped)[pick % len(self.mapped)]
        while last - first + 1 < count and last + 1 in self.mapped:
            last += 1
        if self.program(f"unmap({self.window + first * SPAN}, {(last - first + 1) * SPAN})") == 0:
            for slot in range(first, last + 1):
                del self.mapped[slot]

    @precondition(lambda self: self.mapped)
    @rule(pick=PICK)
    def retain_handle(self, pick: int) -> None:
        slot = sorted(self.mapped)[pick % len(self.mapped)]
        code, handle = self.program(f"retain({self.window + slot * SPAN})")
        if code == 0:
            self.handles[handle] = self.handles.get(handle, 0) + 1

    # --- graphs with memory nodes

    @precondition(lambda self: len(self.execs) < 4)
    @rule(amounts=st.lists(SIZES, min_size=1, max_size=3))
    def make_graph(self, amounts: list[int]) -> None:
        code, exec_ = self.program(f"instantiate(graph_of(*{amounts}))")
        if code == 0:
            self.execs.append(exec_)

    @precondition(lambda self: self.execs)
    @rule(pick=PICK, name=st.sampled_from(["cuGraphLaunch", "cuGraphUpload"]))
    def launch_graph(self, pick: int, name: str) -> None:
        self.program(f"launch_graph({self.execs[pick % len(self.execs)]}, {name!r})")

    @precondition(lambda self: self.execs)
    @rule(pick=PICK)
    def end_graph(self, pick: int) -> None:
        exec_ = self.execs[pick % len(self.execs)]
        if self.program(f"end_exec({exec_})") == 0:
            self.execs.remove(exec_)

    @rule()
    def trim_graphs(self) -> None:
        self.program("trim_graphs()")

    # --- page-locked host memory

    @rule(amount=st.integers(1, 3 * MIB), registers=st.booleans())
    def lock_pages(self, amount: int, registers: bool) -> None:
        taken = -(-amount // PAGE) * PAGE
        if registers:
            pointer = self.program(f"pages({amount})")
            code = self.program(f"register({pointer}, {amount})")
        else:
            code, pointer = self.program(f"alloc_host({amount})")
        if code == 0:
            self.host[pointer] = ("unregister" if registers else "free_host", taken)

    @precondition(lambda self: self.host)
    @rule(pick=PICK)
    def unlock_pages(self, pick: int) -> None:
        pointer = list(self.host)[pick % len(self.host)]
        if self.program(f"{self.host[pointer][0]}({pointer})") == 0:
            del self.host[pointer]

    # --- other processes

    @precondition(lambda self: self.pointers and len(self.opened) < 3)
    @rule(pick=PICK)
    def open_in_peer(self, pick: int) -> None:
        pointer = self.pointers[pick % len(self.pointers)]
        code, handle = self.program(f"ipc_handle({pointer})")
        if code == 0:
            code, theirs = self.peer(f"ipc_open({handle!r})")
        if code == 0:
            self.opened.append((pointer, theirs))

    @precondition(lambda self: self.opened)
    @rule(pick=PICK)
    def close_in_peer(self, pick: int) -> None:
        one = self.opened[pick % len(self.opened)]
        if self.peer(f"ipc_close({one[1]})") == 0:
            self.opened.remove(one)

    # --- the claim

    def used(self) -> int:
        _, free_bytes, total = self.outsider("info()")
        return int(total - free_bytes) - self.used_before

    def claim(self, is_true: bool, *facts: object) -> None:
        if not is_true:
            self.complaints.append(repr(facts))
        assert is_true, facts

    @invariant()
    def charged_is_used(self) -> None:
        own, peer = self.agent.process(self.program.pid), self.agent.process(self.peer.pid)
        charged = own.word(0, HookPage.CHARGED) + peer.word(0, HookPage.CHARGED)
        managed = sum(self.managed.values())  # charged in full, and gone from the device as far as it is resident
        self.claim(charged - managed <= self.used() <= charged, charged, managed, self.used())
        self.claim(charged <= self.quota, charged, self.quota)
        locked = sum(taken for _, taken in self.host.values())
        self.claim(own.page_word(HookPage.HOST_CHARGED) == locked, own.page_word(HookPage.HOST_CHARGED), locked)

    def teardown(self) -> None:
        for _ in range(3):  # an injected fault may fail a call, once
            self.free_everything()
        self.program("synchronize('cuCtxSynchronize')")
        self.program("trim(default_pool(0))")
        self.program("trim_graphs() or trim_graphs()")
        own = self.agent.process(self.program.pid)
        left = [own.word(0, HookPage.CHARGED), own.word(0, HookPage.ALLOCATIONS), own.page_word(HookPage.HOST_CHARGED)]
        self.claim([*left, self.used()] == [0, 0, 0, 0], left, self.used())

    def free_everything(self) -> None:
        """Try once to free each thing that is left."""
        for forget, things in (
            (self.close_in_peer, self.opened),
            (lambda _: self.end_context(), self.contexts),
            (self.free, self.pointers),
            (self.free_managed, self.managed),
            (lambda pick: self.free_in_order(pick, "free_async"), self.in_order),
            (self.end_pool, self.pools),
            (self.end_array, self.arrays),
            (lambda _: self.unmap_some(0, 1), self.mapped),
            (self.release_handle, self.handles),
            (self.unlock_pages, self.host),
            (self.end_graph, self.execs),
        ):
            for _ in range(200):
                if things:
                    forget(0)


def configure(node: Any, quota: int, faults: str = "", **env: str) -> type[FamilyMachine]:
    """Return the machine for a kernel with this quota.

    Nothing reaches the quota of host memory.
    """
    outsider = node.outsider()
    outsider("begin()")
    node.agent.host_quota = 1 << 40
    agent = node.grant((outsider("uuid()"), quota))
    program, peer = node.program(ALIQUOT_SOFTGPU_FAULTS=faults, **env), node.program(**env)
    assert program("begin()") == peer("begin()") == 0

    class Configured(FamilyMachine):
        pass

    Configured.program, Configured.peer, Configured.outsider, Configured.agent = program, peer, outsider, agent
    Configured.quota, Configured.complaints = quota, []
    Configured.window = program(f"reserve({SLOTS * SPAN})")[1]
    _, free_bytes, total = outsider("info()")
    Configured.used_before = total - free_bytes
    return Configured
