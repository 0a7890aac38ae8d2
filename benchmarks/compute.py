"""Controllers of compute shares against each other, on the plant: a simulated GPU, in simulated time.

Without arguments all is measured, shown and written. ``--only`` and ``--controller`` are for trying: they measure pairs
of such workloads (part of a name, as in ``llm.idle`` or ``gpt2``) and show them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from compute.controllers import CONTENDERS, OURS
from compute.opportunistic import OPPORTUNISTIC
from compute.pairs import Pair, measure
from compute.production import PRODUCTION

WORKERS = 2


def _measure(task: tuple[str, str, str, int]) -> Pair:
    return measure(*task)


def tasks(only: Sequence[str], controllers: Sequence[str], seed: int) -> list[tuple[str, str, str, int]]:
    return [
        (production, opportunistic, controller, seed)
        for production in PRODUCTION
        for opportunistic in OPPORTUNISTIC
        for controller in controllers
        if all(word in f"{production} × {opportunistic}" for word in only)
    ]


def measured(todo: Sequence[tuple[str, str, str, int]]) -> Iterator[Pair]:
    with ProcessPoolExecutor(WORKERS) as pool:
        yield from pool.map(_measure, todo)


def show_pair(pair: Pair) -> None:
    print(
        f"{pair.name:28} {pair.controller:9} p50 {pair.slowdown_p50:+7.1%}  p99 {pair.slowdown_p99:+7.1%}  "
        f"idle {pair.idle:6.1%}  harvest {pair.harvest:7.1%}  (clairvoyant {pair.bound:6.1%}, {pair.steps} steps)",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="parts of names that a pair must have, all of them")
    parser.add_argument("--controller", action="append", choices=sorted(CONTENDERS), help=f"default {OURS}")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begun = time.monotonic()
    for pair in measured(tasks(options.only, options.controller or [OURS], options.seed)):
        show_pair(pair)
    print(f"{time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
