"""Reproduce published scheduling results with the planner's own code, and time it.

Completion times are those of Muri's artifact, allocation that of FGD's. Both traces are research
data outside the repository (``--data``); without them those parts are left out, and the benchmark
says so. Only the last part depends on this machine's speed.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from plan import admission, allocation, forecasts, kai_page, published, sharing, throughput
from report import Row, publish, read_arguments

SMOKE = {
    "jobs": 500,
    "seeds": 1,
    "arrived": 0.1,
    "traces": "trace3",
    "nodes": 10,
    "requests": 100,
    "sessions": 4,
    "trace_gpus": "",
    "shared_jobs": 4,
    "shared_kinds": 1,
}
FIRST_SEED = 42


def told(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def measure(arguments: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    if (arguments.data / published.FOLDER).is_dir():
        rows += published.rows(arguments.data, arguments.traces.split(","), told)
    else:
        print(f"plan: the traces {arguments.data / published.FOLDER} are not there; name their folder by --data")
    if (arguments.data / allocation.FOLDER).is_dir():
        seeds = range(FIRST_SEED, FIRST_SEED + arguments.seeds)
        rows += allocation.rows(arguments.data, seeds, arguments.arrived, told)
    else:
        print(f"plan: the trace {arguments.data / allocation.FOLDER} is not there; name its folder by --data")
    judged = kai_page.verdicts(arguments.data)
    if judged:
        rows += kai_page.rows(judged)
        if arguments.kai_page:
            arguments.kai_page.write_text(kai_page.markdown(judged))
    else:
        print(f"plan: the cases {arguments.data / kai_page.FOLDER} are not there; name their folder by --data")
    rows += forecasts.rows(
        arguments.data, arguments.sessions, [int(one) for one in arguments.trace_gpus.split(",") if one], told
    )
    rows += sharing.rows(arguments.data, arguments.shared_jobs, arguments.shared_kinds, told)
    rows += sharing.sweep_rows(arguments.data, arguments.shared_jobs, arguments.shared_kinds)
    rows += admission.rows(arguments.nodes, arguments.requests, told)
    rows += throughput.rows(arguments.jobs, told)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(os.environ.get("ALIQUOT_TRACES", "../shared/data")),
        help="folder of the trace data",
    )
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs of the timed simulation")
    parser.add_argument("--seeds", type=int, default=10, help="orders of arrival for allocation")
    parser.add_argument("--arrived", type=float, default=allocation.DEMAND, help="demand to arrive, times the capacity")
    parser.add_argument("--traces", default=",".join(published.TRACES), help="traces of completion times")
    parser.add_argument("--nodes", type=int, default=1000, help="nodes of the timed plan")
    parser.add_argument("--requests", type=int, default=10_000, help="requests of the timed plan")
    parser.add_argument("--sessions", type=int, default=100, help="made-up sessions whose waits are forecast")
    parser.add_argument("--trace-gpus", default="24,32", help="GPUs for the notebook trace whose waits are forecast")
    parser.add_argument("--shared-jobs", type=int, default=50, help="production jobs, and opportunistic ones")
    parser.add_argument("--shared-kinds", type=int, default=5, help="kinds of jobs that share GPUs")
    parser.add_argument("--kai-page", type=Path, help="file for the table of KAI-Scheduler's cases")
    arguments = read_arguments(parser, SMOKE)
    return 0 if publish(arguments, "plan", "none: simulated time", measure(arguments)) else 1


if __name__ == "__main__":
    sys.exit(main())
