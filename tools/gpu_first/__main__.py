"""Read the command's arguments, and run all phases, or one of them in a process of its own."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [str(HERE.parent), *(place for place in sys.path if Path(place or ".").resolve() != HERE)]

from gpu_first import phases, runner  # noqa: E402
from gpu_first.context import Context  # noqa: E402

RESULTS = HERE.parents[1] / "build" / "gpu" / "first"


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu_first", description="Run the first ten minutes on a GPU.")
    names = [phase.name for phase in phases.PHASES]
    parser.add_argument("--gpu", choices=("nvidia", "softgpu"), default="nvidia", help="what to run on")
    parser.add_argument(
        "--out", type=Path, default=RESULTS, help="folder of first.jsonl, summary.txt and details.tar.gz"
    )
    parser.add_argument("--budget", type=float, default=575.0, help="seconds for everything")
    parser.add_argument("--only", action="append", choices=names, help="run this phase alone; may be repeated")
    parser.add_argument(
        "--prebuilt", type=Path, help="folder with the libraries and the probe, where no build succeeds"
    )
    parser.add_argument("--phase", choices=names, help=argparse.SUPPRESS)  # how the command starts itself
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if not asked.budget > 0:
        parser.error(f"--budget {asked.budget:g} is out of range; write seconds above 0")
    if asked.prebuilt and not asked.prebuilt.is_dir():
        parser.error(f"--prebuilt {asked.prebuilt} is no folder; name one that tools/gpu_bundle wrote")
    return asked


def run_phase(asked: argparse.Namespace) -> int:
    """Run one phase here; the exit code is 1 where something in it failed."""
    phase = next(phase for phase in phases.PHASES if phase.name == asked.phase)
    context = Context(phase.name, asked.gpu, asked.work, asked.budget, asked.prebuilt)
    phase.run(context)
    return 1 if context.has_failed else 0


def main() -> int:
    asked = read_arguments()
    if asked.phase:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # also if the parent process ignored SIGINT
        return run_phase(asked)
    os.environ["PYTHONUNBUFFERED"] = "1"
    command = [sys.executable, str(HERE), *(("--prebuilt", str(asked.prebuilt.absolute())) if asked.prebuilt else ())]
    return runner.Runner(asked.gpu, asked.out.absolute(), asked.budget, command).run_all(phases.choose(asked.only))


if __name__ == "__main__":
    sys.exit(main())
