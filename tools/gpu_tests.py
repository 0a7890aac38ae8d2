"""`make test-gpu` and `make bench-gpu`: build the native libraries with CMake, run tests on a GPU.

Needs a C compiler, CMake, and Python with pytest and nvidia-ml-py; no network, no environment of
its own and no installation: the run tests the machine's own software. `--gpu softgpu` runs the same
on the software GPU, for authors of these tests. The module contains no test.
"""

from __future__ import annotations

import argparse
import fcntl
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
BENCHMARKS = ("swap", "hook_gpu", "compute_gpu")  # first the tests that the product depends on most
MOST_WORKERS = 12  # with pytest-xdist, for the C suite: each claim is a process with its own context
BENCH_SECONDS = 580.0  # of all benchmarks together: the limit of one command on a lent machine
LEAST_SECONDS = 20.0  # a benchmark is left out if less is left
LAST_WORDS_SECONDS = 20.0  # for the summary of a run that its limit interrupts
STOPPED = 124  # as timeout(1) returns it


@dataclass(frozen=True)
class Run:
    """The results' folder and the time limit of a run; 0 seconds means no limit."""

    out: Path
    seconds: float
    began: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        """Return the seconds until the limit, at least one; 0 without a limit."""
        if not self.seconds:
            return 0.0
        return max(1.0, self.seconds - (time.monotonic() - self.began) - LAST_WORDS_SECONDS)


def build() -> None:
    """Build the native libraries into build/gpu, and link them for jupyter_aliquot.gpu_hook.

    A folder of links makes the package importable.
    """
    if shutil.which("cmake") is None:
        raise SystemExit("the build needs CMake, and there is none: install it (pip install cmake)")
    try:
        headers = {variable: header_folder(name) for name, variable in VARIABLES.items()}
    except HeaderMissingError as error:
        raise SystemExit(str(error)) from None
    # The interpreter itself, not an environment's link to it: for another path CMake rebuilds
    # everything.
    python = str(Path(sys.executable).resolve())
    options = {"CMAKE_BUILD_TYPE": "Release", "Python3_EXECUTABLE": python, **headers}
    flags = [f"-D{name}={value}" for name, value in options.items()]
    generator = ["-G", "Ninja"] if shutil.which("make") is None and shutil.which("ninja") else []
    commands = (
        ["cmake", "-S", str(ROOT), "-B", str(BUILD), *generator, *flags],
        ["cmake", "--build", str(BUILD), "--parallel", str(os.cpu_count() or 1)],
    )
    # CMake omits folders that CPATH names; the next build, without CPATH, would find no header.
    env = {name: value for name, value in os.environ.items() if name not in ("CPATH", "C_INCLUDE_PATH")}
    BUILD.mkdir(parents=True, exist_ok=True)
    # Two runs that build in one folder at once delete each other's object files.
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
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
    """Return the environment that tests and benchmarks on a GPU share."""
    kept = {name: value for name, value in os.environ.items() if name not in ("ALIQUOT_TEST_GPU", "ALIQUOT_GPU")}
    path = [str(FARM), *filter(None, [kept.get("PYTHONPATH")])]
    # The first variable sends the C suite to the machine's own GPU; the second names the GPU of
    # tests/gpu.
    real = {"ALIQUOT_TEST_GPU": "1"} if gpu == "nvidia" else {}
    headers = {"CPATH": str(header_folder("nvml.h"))}  # the C suite finds cuda.h by itself
    ours = {"ALIQUOT_GPU": gpu, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}
    return {**kept, **real, **headers, **ours}


def commit() -> str:
    """Return the commit of this tree; in a copy without git the one that its file COMMIT names."""
    if (ROOT / "COMMIT").exists():
        return (ROOT / "COMMIT").read_text().strip()
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def load_paths() -> ModuleType:
    """Return the module jupyter_aliquot.gpu_hook.paths, from its source: nothing is built yet."""
    return load_source("paths")


def load_source(name: str) -> ModuleType:
    """Load a module of jupyter_aliquot.gpu_hook that imports none of the others, from its source."""
    spec = importlib.util.spec_from_file_location(f"aliquot_{name}", ROOT / "gpu_hook" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def has_nvidia() -> bool:
    """Return whether the node agent would find NVIDIA GPUs."""
    return load_paths().nvidia_driver() is not None


def run_limited(command: Sequence[str], env: Mapping[str, str], seconds: float) -> int:
    """Run a command, interrupted at its limit so that it still prints its findings.

    Args:
        command: what to run, from the repository's root.
        env: its environment.
        seconds: the limit; 0 for none.

    Returns:
        The exit code.
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
    """Run a part of the tests; write NAME.xml below the run's folder, also if the limit ends it."""
    result = f"--junit-xml={run.out / name}.xml"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--timeout=600", result, *arguments]
    # 5: the caller's own arguments deselected everything.
    return run_limited(command, env, run.left()) in (0, 5)


def run_benchmarks(names: Sequence[str], gpu: str, run: Run, arguments: Sequence[str]) -> int:
    """Run the benchmarks one after the other; return the first failure.

    A failure stops none of the others.
    """
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
    # The product's promises come first: a short lease must not end in the C suite's third hundred.
    programs = run_pytest(env, run, "programs", "-v", "-rsP", "tests/gpu", *more)
    suite = run_pytest(env, run, "conformance", "-q", *workers, "tests/gpu_hook/conformance", *more)
    return 0 if suite and programs else 1


def without_gpu(asked: argparse.Namespace, run: Run, more: Sequence[str]) -> int:
    """Report that there is no GPU, and fail.

    With ALIQUOT_TEST_GPU_ALLOW_NONE=1 it succeeds with tests that give the reason.
    """
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
