"""`make test-gpu` and `make bench-gpu`: builds the native libraries with CMake alone, runs what takes a GPU.

Needs a C compiler, CMake, Python with pytest and nvidia-ml-py, and no network, no environment of its own and nothing
installed: what is on a GPU machine is what is tested. `--gpu softgpu` runs the same on the software GPU, for whoever
writes these tests. Owns no test.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from gpu_headers import VARIABLES, HeaderMissingError, header_folder

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "gpu"
FARM = BUILD / "python"
BENCHMARKS = ("swap", "hook_gpu", "compute_gpu")  # first what the product stands or falls with
MOST_WORKERS = 12  # of the C suite, where pytest-xdist is there: each claim is a process with a context of its own
BENCH_SECONDS = 580.0  # of all benchmarks together: what a machine that is lent gives a command
LEAST_SECONDS = 20.0  # a benchmark with less is left out
LAST_WORDS_SECONDS = 20.0  # for the summary of a run that its limit interrupts
STOPPED = 124  # as timeout(1) has it


@dataclass(frozen=True)
class Run:
    """Where results go, and how long the whole may take; 0 seconds is no limit."""

    out: Path
    seconds: float
    began: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        """Seconds until the limit, at least one; 0 where there is none."""
        if not self.seconds:
            return 0.0
        return max(1.0, self.seconds - (time.monotonic() - self.began) - LAST_WORDS_SECONDS)


def build() -> None:
    """Native libraries into build/gpu, and a folder of links that makes jupyter_aliquot.gpu_hook importable."""
    if shutil.which("cmake") is None:
        raise SystemExit("the build needs CMake, and there is none: install it (pip install cmake)")
    try:
        headers = {variable: header_folder(name) for name, variable in VARIABLES.items()}
    except HeaderMissingError as error:
        raise SystemExit(str(error)) from None
    # The interpreter itself, not an environment's link to it: with another one CMake builds all anew.
    python = str(Path(sys.executable).resolve())
    options = {"CMAKE_BUILD_TYPE": "Release", "Python3_EXECUTABLE": python, **headers}
    flags = [f"-D{name}={value}" for name, value in options.items()]
    generator = ["-G", "Ninja"] if shutil.which("make") is None and shutil.which("ninja") else []
    commands = (
        ["cmake", "-S", str(ROOT), "-B", str(BUILD), *generator, *flags],
        ["cmake", "--build", str(BUILD), "--parallel", str(os.cpu_count() or 1)],
    )
    # CMake leaves out what CPATH names, and the next build, without it, finds no header.
    env = {name: value for name, value in os.environ.items() if name not in ("CPATH", "C_INCLUDE_PATH")}
    for command in commands:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=env
        )
        if done.returncode != 0:
            raise SystemExit(f"{done.stdout[-4000:]}\nfailed: {' '.join(command)}")
    link_package(BUILD / "native")


def link_package(native: Path) -> None:
    """Make jupyter_aliquot.gpu_hook importable, with the native libraries of that folder."""
    for name, target in {"gpu_hook": ROOT / "gpu_hook", "native": native.absolute()}.items():
        link = FARM / "jupyter_aliquot" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def environment(gpu: str) -> dict[str, str]:
    """What both the tests and benchmarks on a GPU run in."""
    kept = {name: value for name, value in os.environ.items() if name not in ("ALIQUOT_TEST_GPU", "ALIQUOT_GPU")}
    path = [str(FARM), *filter(None, [kept.get("PYTHONPATH")])]
    # The C suite goes to the machine's own GPU where the first is set; tests/gpu to the one that the second names.
    real = {"ALIQUOT_TEST_GPU": "1"} if gpu == "nvidia" else {}
    headers = {"CPATH": str(header_folder("nvml.h"))}  # the C suite finds cuda.h by itself
    ours = {"ALIQUOT_GPU": gpu, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}
    return {**kept, **real, **headers, **ours}


def commit() -> str:
    """The commit of this tree; of a copy the one that its file COMMIT names."""
    if (ROOT / "COMMIT").exists():
        return (ROOT / "COMMIT").read_text().strip()
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def load_paths() -> ModuleType:
    """The module jupyter_aliquot.gpu_hook.paths, from its source: nothing is built yet."""
    return load_source("paths")


def load_source(name: str) -> ModuleType:
    """A module of jupyter_aliquot.gpu_hook that imports none of the others, from its source."""
    spec = importlib.util.spec_from_file_location(f"aliquot_{name}", ROOT / "gpu_hook" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def has_nvidia() -> bool:
    """What the node agent would say."""
    return load_paths().nvidia_driver() is not None


def run_limited(command: Sequence[str], env: Mapping[str, str], seconds: float) -> int:
    """The exit code of a command that is interrupted at its limit, so that it still says what it found.

    Args:
        command: what to run, from the repository's root.
        env: its environment.
        seconds: the limit; 0 for none.
    """
    print(f"$ {' '.join(command)}", flush=True)
    process = subprocess.Popen(command, cwd=ROOT, env=dict(env), start_new_session=True)
    try:
        return process.wait(seconds or None)
    except subprocess.TimeoutExpired:
        print(f"stopped at its limit of {seconds:.0f} s", flush=True)
        process.send_signal(signal.SIGINT)
    try:
        process.wait(LAST_WORDS_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return STOPPED


def run_pytest(env: Mapping[str, str], run: Run, name: str, *arguments: str) -> bool:
    """Run a part of the tests; its results go to NAME.xml below the run's folder, also where the limit ends it."""
    result = f"--junit-xml={run.out / name}.xml"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--timeout=600", result, *arguments]
    # 5: everything was deselected by the caller's own arguments.
    return run_limited(command, env, run.left()) in (0, 5)


def run_benchmarks(names: Sequence[str], gpu: str, run: Run, arguments: Sequence[str]) -> int:
    """One after the other; the first failure is the result, and stops none of the others."""
    codes = []
    for name in names:
        if run.seconds and run.left() < LEAST_SECONDS:
            print(f"left out, for the {run.seconds:.0f} s are spent: {name}; run it alone: --bench {name}", flush=True)
            codes.append(STOPPED)
            continue
        command = [sys.executable, f"benchmarks/{name}.py", "--gpu", gpu, "--out", str(run.out), *arguments]
        if name == "compute_gpu" and run.seconds:
            command += ["--lease", f"{run.left():.0f}"]
        codes.append(run_limited(command, environment(gpu), run.left()))
    return next((code for code in codes if code), 0)


def read_arguments() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--bench", nargs="?", choices=("all", *BENCHMARKS), const="all", help="run benchmarks instead of the tests"
    )
    parser.add_argument("--gpu", choices=("nvidia", "softgpu"), default="nvidia", help="what to run on")
    parser.add_argument("--out", type=Path, default=BUILD / "results", help="folder of all results")
    limit = f"the limit of the whole run; 0: none (default: none, of benchmarks {BENCH_SECONDS:.0f})"
    parser.add_argument("--seconds", type=float, help=limit)
    asked, more = parser.parse_known_args()
    if asked.seconds is None:
        asked.seconds = BENCH_SECONDS if asked.bench else 0.0
    if not asked.seconds >= 0:
        parser.error(f"--seconds {asked.seconds:g} is out of range; write 0 or more")
    return asked, more


def main() -> int:
    asked, more = read_arguments()
    run = Run(asked.out.absolute(), asked.seconds)
    if asked.gpu == "nvidia" and not has_nvidia():
        return without_gpu(asked, run, more)
    run.out.mkdir(parents=True, exist_ok=True)
    if asked.bench:
        build()
        return run_benchmarks(BENCHMARKS if asked.bench == "all" else (asked.bench,), asked.gpu, run, more)
    missing = [name for name in ("pytest", "pytest_timeout", "pynvml") if importlib.util.find_spec(name) is None]
    if missing:
        raise SystemExit(f"{sys.executable} lacks {', '.join(missing)}: install pytest, pytest-timeout, nvidia-ml-py")
    build()
    env = environment(asked.gpu)
    workers = ["-n", str(min(MOST_WORKERS, os.cpu_count() or 1))] if importlib.util.find_spec("xdist") else []
    # What the product promises comes first: a short lease must not end in the C suite's third hundred.
    programs = run_pytest(env, run, "programs", "-v", "-rsP", "tests/gpu", *more)
    suite = run_pytest(env, run, "conformance", "-q", *workers, "tests/gpu_hook/conformance", *more)
    return 0 if suite and programs else 1


def without_gpu(asked: argparse.Namespace, run: Run, more: Sequence[str]) -> int:
    """Say that there is no GPU, and fail; with ALIQUOT_TEST_GPU_ALLOW_NONE=1 succeed with tests that say why."""
    if os.environ.get("ALIQUOT_TEST_GPU_ALLOW_NONE") != "1":
        print(
            "no NVIDIA driver is here (its two libraries and a device). Run this where there is one, set "
            "ALIQUOT_TEST_GPU_ALLOW_NONE=1 to skip, or GPU=softgpu for a dry run",
            file=sys.stderr,
        )
        return 1
    if asked.bench:
        return 0
    run.out.mkdir(parents=True, exist_ok=True)
    return 0 if run_pytest({**os.environ, "ALIQUOT_GPU": ""}, run, "programs", "-rs", "tests/gpu", *more) else 1


if __name__ == "__main__":
    sys.exit(main())
