"""Compare compute controllers on this machine's GPU.

Three production programs run next to three opportunistic ones, each pair under each controller,
against the same programs alone in the same run.

The run fits a lease of eight minutes, and ends by itself there. `--gpu softgpu` is a dry run with
programs of the driver API, for developers of this benchmark: none of its results is a property of a
GPU. The benchmark changes none of the device's settings.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpu_loads.node import OPPORTUNISTIC, PRODUCTION, GpuNode, a_node
from gpu_loads.outcome import Alone, Beside, harvest_percent, rows_of, slowdown_percent
from gpu_loads.workers import Step, Worker, start_all
from hook_gpu import describe
from report import ROOT, publish, read_arguments
from subjects import cuda_include

from jupyter_aliquot.gpu_hook import paths

CONTROLLERS = ("measured", "quanta", "none")
ATTRIBUTING = "measured"  # it attributes the device's time: the programs run alone under it, and first
SECONDS = {"nvidia": 10.0, "softgpu": 2.0}
MEMORY_BYTES = {"nvidia": 8 << 30, "softgpu": 256 << 20}
LEASE_SECONDS = 480.0
ENDING_SECONDS = 15.0
SMOKE = {"gpu": "softgpu", "seconds": 0.5, "pairs": 1, "controllers": "measured"}
TORCH = {
    PRODUCTION: {name: [name, "--pauses"] for name in ("convnet", "transformer", "decode")},
    OPPORTUNISTIC: {name: [name] for name in ("convnet", "transformer", "decode")},
}
# Alike in what matters to a controller: input-bound steps, steps without a pause, graphs; launches
# long and short.
DRIVER = {
    PRODUCTION: {
        "input-bound": ["length_us=200", "launches=40", "pause_us=10000"],
        "steady": ["length_us=100", "launches=50"],
        "graphs": ["length_us=50", "launches=20", "kind=graph", "duty=0.4"],
    },
    OPPORTUNISTIC: {
        "long": ["length_us=2000", "launches=10"],
        "short": ["length_us=50", "launches=100"],
        "graphs": ["length_us=500", "launches=10", "kind=graph"],
    },
}
LOAD_PROGRAM = ROOT / "tests" / "gpu_hook" / "load" / "gpu_load.c"


@dataclass(frozen=True)
class Plan:
    """The plan of a run.

    ``programs``: arguments of each load, by class and name; ``command``: the program that gets
    them.
    """

    gpu: str
    command: tuple[str, ...]
    can_repeat: bool
    programs: Mapping[str, Mapping[str, Sequence[str]]]
    controllers: tuple[str, ...]
    seconds: float
    until: float  # by time.monotonic


def compile_load(folder: Path, driver: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("A C compiler is needed, but there is neither cc nor gcc. Install gcc")
    program = folder / "gpu_load"
    command = [compiler, "-std=gnu11", "-O2", f"-I{cuda_include()}", str(LOAD_PROGRAM), str(driver), "-o", str(program)]
    os.spawnvp(os.P_WAIT, command[0], command)
    if not program.exists():
        raise SystemExit(f"{LOAD_PROGRAM.name} could not be compiled: {' '.join(command)}")
    return program


def base_environment(driver: paths.Driver, folder: Path) -> dict[str, str]:
    dropped = ("ALIQUOT_", "LD_PRELOAD", "LD_AUDIT", "CUDA_VISIBLE_DEVICES")
    env = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    env["ALIQUOT_BUILTINS"] = str(ROOT / "gpu_hook" / "builtins.ptx")
    if driver.kind == "softgpu":
        env["ALIQUOT_SOFTGPU_STATE"] = str(paths.softgpu_state_path(paths.RuntimeDir(folder)))
    return env


@contextmanager
def a_crew(plan: Plan, node: GpuNode, folder: Path) -> Iterator[dict[str, dict[str, Worker]]]:
    """A worker for each load, in a kernel of its class.

    The name of the kernel is made of class and load.
    """
    crew = {
        kind: {
            name: Worker(
                kernel_of(kind, name),
                [*plan.command, *arguments],
                node.environments[kernel_of(kind, name)],
                folder / f"{kernel_of(kind, name)}.log",
                plan.can_repeat,
            )
            for name, arguments in plan.programs[kind].items()
        }
        for kind in plan.programs
    }
    try:
        yield crew
    finally:
        for workers in crew.values():
            for worker in workers.values():
                worker.close()


def kernel_of(kind: str, name: str) -> str:
    return f"{kind}-{name}"


def run_together(
    node: GpuNode, workers: Sequence[Worker], seconds: float
) -> tuple[list[float], list[tuple[Step, ...]]]:
    """Run the workers together; return each one's share of the device's time, and its steps."""
    for worker in workers:
        worker.begin()
    time.sleep(seconds / 5)  # until the controller has settled; the steps of this time do not count either
    before, began = [node.own_seconds(worker.name) for worker in workers], time.monotonic()
    time.sleep(seconds * 4 / 5)
    after, took = [node.own_seconds(worker.name) for worker in workers], time.monotonic() - began
    steps = [worker.end() for worker in workers]
    settled = [tuple(step for step in some if step.begin >= seconds / 5 * 1e6) for some in steps]
    return [(late - early) / took for early, late in zip(before, after, strict=True)], settled


def measure_controller(
    plan: Plan, controller: str, folder: Path, env: Mapping[str, str], alone: dict[str, Alone]
) -> tuple[str, list[Beside]]:
    """Measure all pairs under one controller; return the device's name and the pairs.

    Fills ``alone`` under the first controller.
    """
    runtime = folder / controller
    kernels = {kernel_of(kind, name): kind for kind, loads in plan.programs.items() for name in loads}
    found: list[Beside] = []
    state = {"ALIQUOT_SOFTGPU_STATE": str(paths.softgpu_state_path(paths.RuntimeDir(runtime)))}
    base = {**env, **(state if plan.gpu == "softgpu" else {})}
    with (
        a_node(runtime, plan.gpu, controller, kernels, MEMORY_BYTES[plan.gpu], base) as node,
        a_crew(plan, node, folder) as crew,
    ):
        all_workers = [worker for workers in crew.values() for worker in workers.values()]
        for worker in all_workers if not alone else ():
            start_all(all_workers)  # idle, but present: the agent measures no kernel that is alone
            (share,), (steps,) = run_together(node, [worker], plan.seconds)
            alone[worker.name] = Alone(share, steps)
            print(f"{worker.name} alone: {100 * share:.0f} % of the device, {len(steps)} steps", flush=True)
        for name, production in crew[PRODUCTION].items():
            for other, opportunistic in crew[OPPORTUNISTIC].items():
                if time.monotonic() + plan.seconds > plan.until:
                    print(f"left out, for the lease ends: {name} beside {other}, {controller}", flush=True)
                    continue
                start_all(all_workers)
                _, steps = run_together(node, [production, opportunistic], plan.seconds)
                found.append(Beside(controller, production.name, opportunistic.name, *steps))
                show(found[-1], alone)
        return node.device, found


def show(found: Beside, alone: Mapping[str, Alone]) -> None:
    solo = alone[found.production]
    p50, p99 = (slowdown_percent(solo.steps, found.steps, share) for share in (0.5, 0.99))
    harvest = harvest_percent(solo, alone[found.opportunistic], found)
    shown = "nothing to harvest" if harvest is None else f"harvest {harvest:.0f} %"
    names = f"{found.controller:9} {found.production:24} beside {found.opportunistic:28}"
    print(f"{names} p50 {p50:+7.1f} %  p99 {p99:+7.1f} %  {shown}", flush=True)


def make_plan(asked: argparse.Namespace, folder: Path, driver: paths.Driver) -> Plan:
    has_torch = importlib.util.find_spec("torch") is not None
    load = asked.load or ("torch" if asked.gpu == "nvidia" and has_torch else "driver")
    if load == "torch" and not has_torch:
        raise SystemExit(
            f"Requested --load torch, but {sys.executable} has no torch. Install it, or use --load "
            "driver, which needs none"
        )
    programs = TORCH if load == "torch" else DRIVER
    script = str(Path(__file__).parent / "gpu_loads" / "torch_load.py")
    command = (sys.executable, script) if load == "torch" else (str(compile_load(folder, driver.cuda)),)
    chosen = {kind: dict(list(loads.items())[: asked.pairs]) for kind, loads in programs.items()}
    seconds = asked.seconds or SECONDS[asked.gpu]
    until = time.monotonic() + asked.lease - ENDING_SECONDS
    controllers = tuple(asked.controllers.split(","))
    if controllers[0] != ATTRIBUTING:
        raise SystemExit(
            f"Requested --controllers {asked.controllers}, but only {ATTRIBUTING} attributes. Put it first"
        )
    return Plan(asked.gpu, command, load == "torch", chosen, controllers, seconds, until)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", choices=("nvidia", "softgpu"), default="nvidia", help="what to measure on")
    parser.add_argument("--load", choices=("torch", "driver"), help="PyTorch, or the driver's interface alone")
    parser.add_argument("--seconds", type=float, help="of each pair (default 10; 2 on the software GPU)")
    parser.add_argument("--pairs", type=int, default=3, metavar="N", help="N × N of them")
    parser.add_argument("--controllers", default=",".join(CONTROLLERS), help="by name, as compute_agent.py has them")
    parser.add_argument(
        "--lease", type=float, default=LEASE_SECONDS, metavar="SECONDS", help="pairs beyond are left out"
    )
    return read_arguments(parser, SMOKE)


def main() -> None:
    asked = arguments()
    try:
        driver = paths.choose_driver(asked.gpu)
    except paths.PathError as error:
        raise SystemExit(str(error)) from error
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    alone: dict[str, Alone] = {}
    found: list[Beside] = []
    try:
        plan = make_plan(asked, folder, driver)
        for controller in plan.controllers:
            device, pairs = measure_controller(plan, controller, folder, base_environment(driver, folder), alone)
            found += pairs
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    described = describe(asked.gpu, device)
    print(f"{described} · {datetime.date.today().isoformat()}")
    raise SystemExit(0 if publish(asked, "compute-gpu", described, rows_of(alone, found, asked.gpu == "nvidia")) else 1)


if __name__ == "__main__":
    main()
