"""A seeded walk over the rules of the family machine, for runs that hypothesis cannot replay."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

MIB = 1 << 20
AMOUNTS = (1, 700, MIB - 1, MIB, 3 * MIB, 17 * MIB)
FREES = ("free_later", "free", "free_async")
Move = tuple[str, Callable[[Any], Any], Callable[[Random], tuple[Any, ...]]]
# A rule, what it needs, and its arguments.
MOVES: list[Move] = [
    ("allocate", lambda machine: True, lambda random: (random.choice(AMOUNTS),)),
    ("allocate_rows", lambda machine: True, lambda random: (random.randrange(1, 5000), random.randrange(1, 2000))),
    ("allocate_managed", lambda machine: not machine.contexts, lambda random: (random.choice(AMOUNTS),)),
    ("allocate_in_order", lambda machine: True, lambda random: (random.choice(AMOUNTS), random.randrange(99), "_ptsz")),
    ("begin_context", lambda machine: len(machine.contexts) < 2, lambda random: ()),
    ("end_context", lambda machine: machine.contexts, lambda random: ()),
    ("free", lambda machine: machine.live(), lambda random: (random.randrange(99),)),
    ("free_managed", lambda machine: machine.managed and not machine.contexts, lambda random: (random.randrange(99),)),
    ("free_in_order", lambda machine: machine.in_order, lambda random: (random.randrange(99), random.choice(FREES))),
    ("synchronize", lambda machine: True, lambda random: ("cuCtxSynchronize",)),
    ("make_pool", lambda machine: len(machine.pools) < 3, lambda random: (random.choice([0, 1 << 63]),)),
    ("trim_pool", lambda machine: machine.pools, lambda random: (random.randrange(99), 0)),
    ("end_pool", lambda machine: machine.pools, lambda random: (random.randrange(99),)),
    (
        "make_array",
        lambda machine: True,
        lambda random: ((random.randrange(1, 3000), 500), random.choice(["u8", "half"]), 2),
    ),
    ("make_mipmapped", lambda machine: True, lambda random: ((random.randrange(1, 900), 500), 3)),
    ("end_array", lambda machine: machine.live_arrays(), lambda random: (random.randrange(99),)),
    ("make_handle", lambda machine: True, lambda random: (random.randrange(1, 4),)),
    ("release_handle", lambda machine: machine.handles, lambda random: (random.randrange(99),)),
    ("map_handle", lambda machine: machine.handles and len(machine.mapped) < 8, lambda random: (random.randrange(99),)),
    ("map_row", lambda machine: not machine.mapped, lambda random: (random.randrange(2, 5),)),
    ("unmap_some", lambda machine: machine.mapped, lambda random: (random.randrange(99), random.randrange(1, 8))),
    ("retain_handle", lambda machine: machine.mapped, lambda random: (random.randrange(99),)),
    ("lock_pages", lambda machine: True, lambda random: (random.choice(AMOUNTS), random.random() < 0.5)),
    ("unlock_pages", lambda machine: machine.host, lambda random: (random.randrange(99),)),
    ("make_graph", lambda machine: len(machine.execs) < 4, lambda random: (random.sample(AMOUNTS, 3),)),
    ("launch_graph", lambda machine: machine.execs, lambda random: (random.randrange(99), "cuGraphLaunch")),
    ("end_graph", lambda machine: machine.execs, lambda random: (random.randrange(99),)),
    ("trim_graphs", lambda machine: True, lambda random: ()),
    (
        "open_in_peer",
        lambda machine: machine.pointers and len(machine.opened) < 3,
        lambda random: (random.randrange(99),),
    ),
    ("close_in_peer", lambda machine: machine.opened, lambda random: (random.randrange(99),)),
]


def walk(machine: Any, seed: int, steps: int) -> None:
    """Take so many steps; everything is freed at the end."""
    random = Random(seed)
    for _ in range(steps):
        name, may_go, arguments = random.choice(MOVES)
        if may_go(machine):
            getattr(machine, name)(*arguments(random))
            machine.charged_is_used()
    machine.teardown()
