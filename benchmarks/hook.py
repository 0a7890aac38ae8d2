"""Measure what the hook adds to a driver call: one null driver, bare and behind each hook.

All are measured in shuffled rounds of one run. Every value is the median of paired differences to
the bare driver. Bare against bare (want: nothing) and a hook of known cost (want: that cost) show
whether the values mean anything. `--peer NAME=PATH` measures a preload library that was built
elsewhere in the same run, for example HAMi-core's libvgpu.so and nvshare's libnvshare.so.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from measured import a_measured_kernel
from report import Row, at_most, between, publish, read_arguments
from sampling import LOG, Program, added, in_shuffled_rounds, open_log
from subjects import (
    REDIRECTED,
    SPIN_NANOSECONDS,
    THREADED,
    Peer,
    Subject,
    a_kernel,
    build,
    own_subjects,
    peer_subjects,
    redirected,
    threaded,
)

FEW, MANY = 10, 10_000  # live allocations
MEASURED = "ours, measured"
MEASURED_WANT_NANOSECONDS = 100.0
# The questions: the program's measure, its calls in one sample, live allocations, the largest
# addition that we want.
CALLS = {
    "cuLaunchKernel": ("launch", 30_000, FEW, 5.0),
    "cuLaunchKernelEx": ("launch_ex", 30_000, FEW, 5.0),
    "cuGraphLaunch": ("graph_launch", 30_000, FEW, 5.0),
    "cuLaunchKernel, 8 threads": ("launch_threads", 5_000, FEW, None),
    "cuMemcpyHtoDAsync": ("copy", 30_000, FEW, None),
    "cuMemsetD8Async": ("set", 30_000, FEW, None),
    "cuStreamQuery": ("stream_query", 30_000, FEW, None),
    "cuMemGetInfo": ("mem_info", 10_000, FEW, 50.0),
    "cuMemAlloc + cuMemFree, 10 live": ("alloc_free", 5_000, FEW, 1000.0),
    "cuMemAlloc + cuMemFree, 10,000 live": ("alloc_free", 600, MANY, 1000.0),
    "cuMemAllocAsync + cuMemFreeAsync": ("alloc_free_async", 5_000, FEW, 1000.0),
    "cuMemAlloc + cuMemFree of 256 MiB": ("credit", 150, FEW, None),
}
START_PARTS = ("start to main", "finding the functions", "cuInit to first launch", "process start to first launch")
START_WANT_MICROSECONDS = 100.0
SMOKE = {"generations": 1, "rounds": 1, "starts": 3}
Samples = dict[tuple[str, str], list[float]]


def sample_calls(client: Path, subjects: list[Subject], generations: int, rounds: int, seed: int) -> Samples:
    """Return nanoseconds by (subject, call).

    Each generation starts new processes: a process's layout in memory is luck.
    """
    cpu = max(os.sched_getaffinity(0))
    samples: Samples = {(subject.name, call): [] for subject in subjects for call in CALLS}
    for generation in range(generations):
        programs = {
            (subject.name, live): Program(subject.name, [client, str(live)], subject.env, cpu)
            for subject in subjects
            for live in (FEW, MANY)
        }
        questions: dict[tuple[str, str], Callable[[], float]] = {
            (subject.name, call): partial(programs[subject.name, live].ask, measure, count)
            for subject in subjects
            for call, (measure, count, live, _) in CALLS.items()
        }
        title = f"calls, processes {generation + 1} of {generations}"
        for key, found in in_shuffled_rounds(questions, rounds, title, seed + generation).items():
            samples[key] += found
        for program in programs.values():
            program.close()
    return samples


def time_a_start(client: Path, subject: Subject) -> list[float]:
    """Return the microseconds of each of START_PARTS.

    They run in a process of its own that may use every processor.
    """
    reader, writer = os.pipe()
    with open_log() as log:
        begin = time.monotonic_ns()
        pid = os.posix_spawn(
            client,
            [str(client), "start", str(begin)],
            subject.env,
            file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_DUP2, log.fileno(), 2)],
        )
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    _, status = os.waitpid(pid, 0)
    if status != 0 or not text:
        raise SystemExit(f"the program with {subject.name!r} ended with status {status}; see {LOG}")
    return [int(part) / 1000 for part in text.split()]


def sample_starts(client: Path, subjects: list[Subject], rounds: int, seed: int) -> Samples:
    """Return microseconds by (subject, part)."""
    samples: Samples = {(subject.name, part): [] for subject in subjects for part in START_PARTS}

    def start(subject: Subject) -> float:
        for part, value in zip(START_PARTS, time_a_start(client, subject), strict=True):
            samples[subject.name, part].append(value)
        return samples[subject.name, START_PARTS[-1]][-1]

    in_shuffled_rounds({one.name: partial(start, one) for one in subjects}, rounds, "starts", seed)
    return samples


def control_rows(calls: Samples) -> list[Row]:
    """Return the method's own readings: nothing, a jump, and a known spin."""
    launch = "cuLaunchKernel"
    bare = calls["bare", launch]
    return [
        Row("cuLaunchKernel, bare", statistics.median(bare), "ns"),
        between(
            "negative control: bare again, added to cuLaunchKernel",
            added(calls["bare again", launch], bare),
            "ns",
            -1.0,
            1.0,
        ),
        between(
            f"positive control: a hook that spins {SPIN_NANOSECONDS} ns, added to cuLaunchKernel",
            added(calls["spin", launch], bare),
            "ns",
            0.85 * SPIN_NANOSECONDS,
            1.15 * SPIN_NANOSECONDS,
        ),
        Row("a bare forwarder, added to cuLaunchKernel", added(calls["forwarder", launch], bare), "ns"),
    ]


def call_rows(calls: Samples, peers: list[str]) -> list[Row]:
    """Return ours with its bounds, then each peer next to it."""
    rows = []
    for call, (_, _, _, want) in CALLS.items():
        ours = added(calls["ours", call], calls["bare", call])
        name = f"{call}, added"
        rows.append(Row(name, ours, "ns") if want is None else at_most(name, ours, "ns", want))
        theirs = {peer: added(calls[peer, call], calls["bare", call]) for peer in peers}
        rows += [Row(f"{call}, added by {peer}", value, "ns") for peer, value in theirs.items()]
        hami = [value for peer, value in theirs.items() if call == "cuLaunchKernel" and "HAMi" in peer]
        if hami:
            rows.append(at_most("cuLaunchKernel, ours ÷ HAMi-core's without SM limit", ours / hami[0], "×", 0.25))
    return rows


def measured_rows(calls: Samples) -> list[Row]:
    """Return the rows where the agent orders launches to be measured.

    Events cost nothing on this driver.
    """
    launches = [call for call in CALLS if "Launch" in call]
    found = {call: added(calls[MEASURED, call], calls["bare", call]) for call in launches}
    want = MEASURED_WANT_NANOSECONDS
    return [
        at_most(f"{call}, added where it is measured", value, "ns", want)
        if call == "cuLaunchKernel"
        else Row(f"{call}, added where it is measured", value, "ns")
        for call, value in found.items()
    ]


def start_rows(starts: Samples, peers: list[str]) -> list[Row]:
    whole = START_PARTS[-1]
    rows = [Row(f"{whole}, bare", statistics.median(starts["bare", whole]), "µs")]
    for part in START_PARTS:
        ours = added(starts["ours", part], starts["bare", part])
        name = f"{part}, added"
        rows.append(at_most(name, ours, "µs", START_WANT_MICROSECONDS) if part == whole else Row(name, ours, "µs"))
        others = [*(["bare again"] if part == whole else []), "forwarder", THREADED, *peers]
        rows += [
            Row(f"{part}, added by {other}", added(starts[other, part], starts["bare", part]), "µs") for other in others
        ]
    more = added(starts[REDIRECTED, whole], starts["ours", whole])
    rows.append(Row(f"{whole}, added to ours by the redirector of absolute paths", more, "µs"))
    return rows


def read_peer(text: str) -> Peer:
    name, separator, path = text.partition("=")
    library = Path(path).absolute()
    if not separator or not name or not library.is_file():
        raise argparse.ArgumentTypeError(
            f"The peer {text!r} is not valid. Use NAME=PATH of a preload library that is there"
        )
    return Peer(name, library)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--peer",
        type=read_peer,
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="a preload library to measure in the same run; may be repeated",
    )
    parser.add_argument("--generations", type=int, default=4, help="times that all processes are started anew")
    parser.add_argument("--rounds", type=int, default=6, help="samples of each call in each generation")
    parser.add_argument("--starts", type=int, default=600, help="process starts of each subject")
    parser.add_argument("--seed", type=int, default=3, help="of the order within rounds")
    asked = read_arguments(parser, SMOKE)
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    LOG.unlink(missing_ok=True)
    try:
        with ExitStack() as stack:
            built = build(folder)
            kernel = stack.enter_context(a_kernel(folder / "node"))
            subjects = own_subjects(built, kernel)
            paced = stack.enter_context(a_measured_kernel(folder / "measured", subjects[-1].env["BENCH_UUID"]))
            measured = Subject(MEASURED, {**subjects[-1].env, "ALIQUOT_KERNEL_DIR": str(paced)})
            peers = [one for peer in asked.peer for one in peer_subjects(peer, subjects[0].env, folder, stack)]
            names = [peer.name for peer in peers]
            calls = sample_calls(
                built.client, [*subjects, measured, *peers], asked.generations, asked.rounds, asked.seed
            )
            starts = sample_starts(
                built.client,
                [*subjects, threaded(built, subjects[0]), redirected(built, subjects[-1]), *peers],
                asked.starts,
                asked.seed,
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = [*control_rows(calls), *call_rows(calls, names), *measured_rows(calls), *start_rows(starts, names)]
    raise SystemExit(0 if publish(asked, "hook", "null driver", rows) else 1)


if __name__ == "__main__":
    main()
