"""Measure swapping on this machine's GPU: copy rates, the time of a restore, the hook's cost.

Four parts in one run: the hook's copying by itself, against a pinned copy and against processors
that copy as often; a kernel that a node agent swaps out, and whose first call restores it; steps of
work with the hook and without; and, on the software GPU, a normal kernel beside a low-priority one
on unified memory. There the yardstick of a copy is memory copies of the same kind; nothing measured
there is a GPU's speed.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from hook_gpu import describe
from report import ROOT, Row, at_least, at_most, publish, read_arguments
from sampling import LOG, Program, in_shuffled_rounds
from subjects import AKernel, Peer, a_kernel, clean_environment, compile_c, peer_subjects
from swap.kernel import Residency
from swap.programs import compile_copies
from swap.unified import Experiment, build_unified, measure_unified

from jupyter_aliquot.gpu_hook import paths

MIB, GB = 1 << 20, 1e9
WAKE_SLACK_SECONDS = 0.1
SMOKE = {"gpu": "softgpu", "mib": 64, "rounds": 2, "cycles": 2, "unified_mib": 64, "steps": 2}


@dataclass(frozen=True)
class Plan:
    """The plan of a run.

    ``mib`` go out and in; ``cold_rounds`` are few, for each allocates its host memory anew.
    """

    mib: int
    threads: int
    rounds: int
    cycles: int
    unified_mib: int
    steps: int


def median(values: list[float]) -> float:
    return statistics.median(values)


def measure_copies(program: Program, plan: Plan, is_real: bool) -> tuple[list[Row], float]:
    """Return rows, and the reference of a copy inwards, in bytes a second."""
    cold = program.ask("out_cold", 1)
    names = ["out", "in", "pinned_out", "pinned_in", "twice_out", "twice_in"]
    questions: dict[str, Callable[[], float]] = {
        name: (lambda name=name: program.ask(name, 2)) for name in names if not (is_real and name.startswith("twice"))
    }
    # A copy in follows a copy out: it reads what that one wrote.
    del questions["in"]
    inwards: list[float] = []

    def out_and_in() -> float:
        speed = program.ask("out", 1)
        inwards.append(program.ask("in", 1))
        return speed

    speeds = in_shuffled_rounds({**questions, "out": out_and_in}, plan.rounds, "copies", seed=7)
    speeds["in"] = inwards
    yardstick = "pinned" if is_real else "twice"
    rows = [Row(f"a pinned copy, {way}", median(speeds[f"pinned_{way}"]), "GB/s") for way in ("out", "in")]
    if not is_real:
        rows += [
            Row(f"processors that copy twice, {way}", median(speeds[f"twice_{way}"]), "GB/s") for way in ("out", "in")
        ]
    for way in ("out", "in"):
        ratios = [a / b for a, b in zip(speeds[way], speeds[f"{yardstick}_{way}"], strict=True)]
        rows.append(Row(f"copy {way}, warm", median(speeds[way]), "GB/s"))
        rows.append(at_least("  of that", 100 * median(ratios), "%", 90))
    rows.append(Row("copy out, cold: into host memory that is made for it", cold, "GB/s"))
    return rows, median(speeds[f"{yardstick}_in"]) * GB


def measure_cycles(kernel: AKernel, hooked: Program, outsider: Program, plan: Plan, link: float) -> list[Row]:
    """Measure a kernel that the node agent swaps out, and whose next launch restores it."""
    residency = Residency(kernel)
    hooked.ask("hold", 0)
    alone = outsider.ask("used_bytes", 1)
    held = hooked.ask("hold", plan.mib)
    wakes, outs, left, wrong = [], [], [], 0.0
    for number in range(plan.cycles):
        hooked.ask("touch", 1)
        outs.append(residency.swap_out())
        left.append(outsider.ask("used_bytes", 1) - alone)
        wakes.append(hooked.ask("first_launch", 1) / 1e9)
        print(f"\rswaps: {number + 1} of {plan.cycles}", end="", file=sys.stderr)
        wrong += hooked.ask("verify", 1) if number in (0, plan.cycles - 1) else 0
    print(file=sys.stderr)
    last_in = residency.last("last_in")
    hooked.ask("hold", 0)
    worst = sorted(wakes)[max(0, -(-len(wakes) * 95 // 100) - 1)]
    bound = held / link + WAKE_SLACK_SECONDS
    return [
        Row("a kernel's memory that is swapped", held / MIB, "MiB"),
        Row("swap out, order to end, median", 1e3 * median([out["seconds"] for out in outs]), "ms"),
        Row("  of it: drain", 1e3 * median([out["drain_seconds"] for out in outs]), "ms"),
        Row("  of it: copy", 1e3 * median([out["copy_seconds"] for out in outs]), "ms"),
        Row("  of it: unmap", 1e3 * median([out["map_seconds"] for out in outs]), "ms"),
        Row("swap in, the last: copy", 1e3 * last_in["copy_seconds"], "ms"),
        Row("swap in, the last: map", 1e3 * last_in["map_seconds"], "ms"),
        Row("wake to first launch, median", 1e3 * median(wakes), "ms"),
        Row("wake to first launch, p95", 1e3 * worst, "ms", f"≤ {1e3 * bound:.0f}: bytes ÷ link + 100", worst <= bound),
        at_most("left on the device beside its context", max(left) / MIB, "MiB", 2),
        at_most("blocks with a wrong byte", wrong, "", 0),
    ]


def measure_steps(programs: dict[str, Program], rounds: int) -> list[Row]:
    """Measure the extra cost of work: each program in turn, paired with bare."""
    questions: dict[tuple[str, str], Callable[[], float]] = {}
    for name, program in programs.items():
        program.ask("step", 5)
        questions[name, "step"] = lambda program=program: program.ask("step", 20)  # type: ignore[misc]
        questions[name, "allocate"] = lambda program=program: program.ask("allocate", 50)  # type: ignore[misc]
    times = in_shuffled_rounds(questions, rounds, "work", seed=3)
    steps, allocations = times["bare", "step"], times["bare", "allocate"]
    rows = [Row("a step of work, bare", median(steps) / 1e6, "ms")]
    for name in programs:
        if name == "bare":
            continue
        percent = median([100 * (a / b - 1) for a, b in zip(times[name, "step"], steps, strict=True)])
        is_ours = name == "vmm"
        rows.append(at_most(f"  {name}, added", percent, "%", 1) if is_ours else Row(f"  {name}, added", percent, "%"))
        more = median([a - b for a, b in zip(times[name, "allocate"], allocations, strict=True)])
        rows.append(Row(f"  {name}, added to cuMemAlloc + cuMemFree of 16 MiB", more / 1e3, "µs"))
    return rows


def measure_managed(program: Program, plan: Plan) -> list[Row]:
    """Measure the other residency mode's move: unified memory that is prefetched."""
    out, back = [], []
    for _ in range(max(3, plan.rounds // 3)):
        out.append(program.ask("managed_out", plan.mib))
        back.append(program.ask("managed_in", plan.mib))
    return [
        Row("unified memory, prefetched to the host", median(out), "GB/s"),
        Row("unified memory, prefetched back", median(back), "GB/s"),
    ]


def start_programs(
    client: Path, kernel: AKernel, cuda: Path, peer: Path | None, folder: Path, stack: ExitStack
) -> dict[str, Program]:
    """Start the same program bare, in a kernel that can be swapped, and behind a peer's library."""
    shared = {"BENCH_BUILTINS": str(ROOT / "gpu_hook" / "builtins.ptx")}
    state = {name: value for name, value in kernel.env.items() if name.startswith("ALIQUOT_SOFTGPU_")}
    plain = {**clean_environment(), **shared, **state, "LD_LIBRARY_PATH": str(cuda.parent)}
    plain["CUDA_VISIBLE_DEVICES"] = kernel.env["CUDA_VISIBLE_DEVICES"]
    environments = {"bare": plain, "vmm": {**kernel.env, **shared}}
    if peer is not None:
        for subject in peer_subjects(Peer("nvshare", peer), plain, folder, stack):
            environments[subject.name] = subject.env
    programs = {}
    for name, env in environments.items():
        programs[name] = Program(name, [client], env, None)
        stack.callback(programs[name].close)
    return programs


def measure(kind: str, plan: Plan, peer: Path | None, folder: Path) -> tuple[str, list[Row]]:
    driver = paths.choose_driver(kind)
    is_real = driver.cuda != paths.softgpu_driver().cuda
    client = compile_c("../swap/client.c", folder / "client", str(driver.cuda))
    copies = compile_copies(folder / "copies", driver.cuda)
    memory = f"{4 * plan.mib}MiB"
    options = ["--swap-threads", str(plan.threads), "--swap-memory", f"{2 * plan.mib}m"]
    with ExitStack() as stack:
        kernel = stack.enter_context(
            a_kernel(folder / "node", "nvidia" if is_real else "softgpu", arguments=options, memory=memory)
        )
        programs = start_programs(client, kernel, driver.cuda, peer, folder, stack)
        rows = measure_steps(programs, plan.rounds)
        rows += measure_managed(programs["bare"], plan)
        bare_env = {**clean_environment(), "LD_LIBRARY_PATH": str(driver.cuda.parent)}
        bare_env |= {
            name: value for name, value in kernel.env.items() if name.startswith(("ALIQUOT_SOFTGPU_", "CUDA_V"))
        }
        program = Program("copies", [copies, str(plan.mib), "64", str(plan.threads)], bare_env, None)
        copy_rows, link = measure_copies(program, plan, is_real)
        program.close()
        rows = copy_rows + measure_cycles(kernel, programs["vmm"], programs["bare"], plan, link) + rows
    if not is_real:
        unified = build_unified(folder, driver.cuda)
        rows += measure_unified(
            Experiment(unified, driver.cuda, plan.unified_mib, plan.steps, max(1, plan.rounds // 5)), folder
        )
    return describe("nvidia" if is_real else "softgpu", kernel.device), rows


def count_threads() -> int:
    return max(2, min(8, len(os.sched_getaffinity(0)) // 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", choices=("auto", "nvidia", "softgpu"), default="auto", help="what to measure on")
    parser.add_argument("--mib", type=int, help="memory that is swapped (default: 8192, on the software GPU 512)")
    parser.add_argument("--threads", type=int, help="that copy (default: half of the processors, 2 to 8)")
    parser.add_argument("--rounds", type=int, default=15, help="samples of each copy and of each step")
    parser.add_argument("--cycles", type=int, default=20, help="swaps of a kernel")
    parser.add_argument("--unified-mib", type=int, default=512, help="of the device for unified memory")
    parser.add_argument("--steps", type=int, default=60, help="of a kernel beside unified memory, in each round")
    parser.add_argument(
        "--nvshare", type=Path, metavar="LIBRARY", help="nvshare's libnvshare.so, its scheduler beside it"
    )
    asked = read_arguments(parser, SMOKE)
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    LOG.unlink(missing_ok=True)
    try:
        is_soft = paths.choose_driver(asked.gpu).cuda == paths.softgpu_driver().cuda
        mib, threads = asked.mib or (512 if is_soft else 8192), asked.threads or count_threads()
        plan = Plan(mib, threads, asked.rounds, asked.cycles, asked.unified_mib, asked.steps)
        device, rows = measure(asked.gpu, plan, asked.nvshare, folder)
    except paths.PathError as error:
        raise SystemExit(str(error)) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{device} · {datetime.date.today().isoformat()}")
    raise SystemExit(0 if publish(asked, "swap", device, rows) else 1)


if __name__ == "__main__":
    main()
