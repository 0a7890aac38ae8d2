"""Compare controllers of compute shares on the plant: a simulated GPU, in simulated time.

Without arguments the benchmark measures, shows and writes everything. ``--only`` is for
experiments: it measures the pairs of workloads whose names contain these words (``llm.idle``,
``gpt2``), and shows them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from compute import chart, dynamics, fairness, rows, tables
from compute.controllers import CONTENDERS, OURS, TGS, contender
from compute.opportunistic import OPPORTUNISTIC
from compute.pairs import Pair, measure
from compute.production import PRODUCTION
from report import Row, publish, read_arguments, result_file

WORKERS = 2
STARTING = ("resnet50", "resnet50.idle", "bert.idle", "llm.idle")
RETURNING_UNDER = ("gpt2", "dlrm", "frames")
DEVICE = "a simulated GPU: time slices of 2 ms, 50 µs for each switch between contexts"

SMOKE_PAIR = ("notebook.idle", "gpt2")  # the shortest workload

Task = tuple[Callable[..., Any], tuple[Any, ...], Callable[..., Any]]  # measure, its arguments, its rows


def pair_tasks(only: Sequence[str], controllers: Sequence[str], seed: int) -> list[tuple[str, str, str, int]]:
    return [
        (production, opportunistic, controller, seed)
        for production in PRODUCTION
        for opportunistic in OPPORTUNISTIC
        for controller in controllers
        if all(word in f"{production} × {opportunistic}" for word in only)
    ]


def _call(task: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
    return task[0](*task[1])


def in_parallel(todo: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]]) -> Iterator[Any]:
    with ProcessPoolExecutor(WORKERS) as pool:
        yield from pool.map(_call, todo)


def show_pair(pair: Pair) -> None:
    print(
        f"{pair.name:28} {pair.controller:9} p50 {pair.slowdown_p50:+7.1%}  p99 {pair.slowdown_p99:+7.1%}  "
        f"idle {pair.idle:6.1%}  harvest {pair.harvest:7.1%}  (clairvoyant {pair.bound:6.1%}, {pair.steps} steps)",
        flush=True,
    )


def dynamic_tasks(controllers: Sequence[str], seed: int) -> list[Task]:
    todo: list[Task] = []
    for name in controllers:
        for one in STARTING:
            todo.append(
                (
                    dynamics.convergence,
                    (one, "gpt2", name, seed),
                    lambda r, o=one, n=name: [rows.of_convergence(o, n, r)],
                )
            )
        for one in RETURNING_UNDER:
            todo.append((dynamics.recovery, (one, name, seed), lambda r, o=one, n=name: rows.of_return(o, n, r)))
    return todo


def share_tasks(controllers: Sequence[str], seed: int) -> list[Task]:
    todo: list[Task] = []
    for name in controllers:
        for kind in fairness.KINDS:
            for want in fairness.SHARES:
                todo.append(
                    (fairness.capped_alone, (kind, want, name, seed),
                     lambda r, k=kind, n=name: [rows.of_share(f"capped, {k} alone", n, r)])
                )  # fmt: skip
                for neighbour in ("gpt2", "batch-llm"):
                    todo.append(
                        (fairness.beside_busy, (kind, neighbour, want, name, True, seed),
                         lambda r, k=kind, o=neighbour, n=name: [rows.of_share(f"of {k} beside {o}", n, r)])
                    )  # fmt: skip
        for count in (2, 4, 8, 16):
            todo.append((fairness.jain, (count, name, seed), lambda r, c=count, n=name: [rows.of_jain(c, n, r)]))
        for count in (2, 4, 8):
            todo.append(
                (fairness.cost_of_one_more, (count, name, seed), lambda r, c=count, n=name: [rows.of_cost(c, n, r)])
            )
    return todo


def measure_rows(todo: Sequence[Task]) -> list[Row]:
    made: list[Row] = []
    for number, (task, result) in enumerate(zip(todo, in_parallel([(t[0], t[1]) for t in todo]), strict=True)):
        made += task[2](result)
        if number % 20 == 0:
            print(f"{number} of {len(todo)}: {task[0].__name__} {task[1]}", flush=True)
    return made


def one_of_each(todo: Sequence[Task]) -> list[Task]:
    """Return the first task of each measure."""
    return list({task[0]: task for task in reversed(todo)}.values())


def all_pairs(only: Sequence[str], seed: int) -> rows.Pairs:
    pairs: dict[tuple[str, str], Pair] = {}
    todo = pair_tasks(only, list(CONTENDERS), seed)
    for pair in in_parallel([(measure, task) for task in todo]):
        pairs[pair.name, pair.controller] = pair
        show_pair(pair)
    return pairs


def everything(asked: argparse.Namespace) -> bool:
    """Measure, show and write every row; in a smoke run one pair and one of each other measure."""
    begun = time.monotonic()
    seed = asked.seed
    pairs = all_pairs(SMOKE_PAIR if asked.smoke else (), seed)
    tasks = dynamic_tasks(list(CONTENDERS), seed) + share_tasks([OURS, "none", "hami", "quanta"], seed)
    others = measure_rows(one_of_each(tasks) if asked.smoke else tasks)
    names = dict.fromkeys(name for name, _ in pairs)
    of_pairs = [row for name in names for row in rows.of_pair(pairs, name)]
    overview = [row for controller in CONTENDERS for row in rows.summary(pairs, controller)]
    chart.draw(
        result_file(asked, "compute.svg"),
        "Pairs of workloads with idle time in production; green: what is wanted",
        {
            name: [(100 * p.harvest, 100 * p.slowdown_p99) for (_, n), p in pairs.items() if n == name and p.has_idle]
            for name in CONTENDERS
        },
    )
    tables.write(result_file(asked, "compute.md"), pairs)
    made = [*overview, *others, *of_pairs]
    holds = publish(asked, "compute", DEVICE, made, [*overview, *others, *rows.failing(of_pairs)])
    print(f"{len(pairs)} pairs; {time.monotonic() - begun:.0f} s; TGS settles for {CONTENDERS[TGS].settles / 1e9:g} s")
    return holds


def controller_name(text: str) -> str:
    try:
        contender(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="parts of names that a pair must have, all of them")
    parser.add_argument(
        "--controller",
        action="append",
        type=controller_name,
        help=f"one of {', '.join(CONTENDERS)}; {OURS}@8 is ours with a slowdown target of 8 %% (default {OURS})",
    )
    parser.add_argument("--seed", type=int, default=1)
    options = read_arguments(parser, {})
    if options.only is None and not options.controller:
        return 0 if everything(options) else 1
    todo = pair_tasks(options.only or [], options.controller or [OURS], options.seed)
    for pair in in_parallel([(measure, task) for task in todo]):
        show_pair(pair)
    return 0


if __name__ == "__main__":
    sys.exit(main())
