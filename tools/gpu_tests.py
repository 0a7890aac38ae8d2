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
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "gpu"
FARM = BUILD / "python"
BENCHMARKS = ("hook_gpu", "swap", "compute_gpu")
WORKERS = 4  # of the C suite, where pytest-xdist is there: each claim is a process with a context of its own


def find_header(name: str, variable: str) -> Path:
    """The folder of a CUDA header: named by the variable, in a wheel, or in a toolkit."""
    site = {sysconfig.get_paths()[key] for key in ("purelib", "platlib")} | set(sys.path)
    wheels = [Path(folder) / "nvidia" / part / "include" for folder in site for part in ("cu13", "cuda_runtime")]
    toolkits = sorted(Path("/usr/local").glob("cuda*/include")) + sorted(
        Path("/usr/local").glob("cuda*/targets/*/include")
    )
    named = [Path(os.environ[variable])] if os.environ.get(variable) else []
    for folder in [*named, *wheels, *toolkits]:
        if (folder / name).exists():
            return folder
    raise SystemExit(
        f"asked {name}, found it neither in NVIDIA's wheels nor under /usr/local/cuda: set {variable} to its folder, "
        "or pip install nvidia-cuda-runtime nvidia-nvml-dev"
    )


def build() -> None:
    """Native libraries into build/gpu, and a folder of links that makes aliquot.gpu_hook importable."""
    if shutil.which("cmake") is None:
        raise SystemExit("asked CMake, found none: install it (pip install cmake)")
    options = {
        "CMAKE_BUILD_TYPE": "Release",
        "Python3_EXECUTABLE": sys.executable,
        "CUDA_INCLUDE": find_header("cuda.h", "CUDA_INCLUDE"),
        "NVML_INCLUDE": find_header("nvml.h", "NVML_INCLUDE"),
    }
    flags = [f"-D{name}={value}" for name, value in options.items()]
    commands = (
        ["cmake", "-S", str(ROOT), "-B", str(BUILD), *flags],
        ["cmake", "--build", str(BUILD), "--parallel", str(os.cpu_count() or 1)],
    )
    for command in commands:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{done.stdout[-4000:]}\nfailed: {' '.join(command)}")
    for name, target in {"gpu_hook": ROOT / "gpu_hook", "native": BUILD / "native"}.items():
        link = FARM / "aliquot" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def environment(gpu: str) -> dict[str, str]:
    """What both the tests and benchmarks on a GPU run in."""
    kept = {name: value for name, value in os.environ.items() if name not in ("ALIQUOT_TEST_GPU", "ALIQUOT_GPU")}
    path = [str(FARM), *filter(None, [kept.get("PYTHONPATH")])]
    # The C suite goes to the machine's own GPU where the first is set; tests/gpu to the one that the second names.
    real = {"ALIQUOT_TEST_GPU": "1"} if gpu == "nvidia" else {}
    headers = {"CPATH": str(find_header("nvml.h", "NVML_INCLUDE"))}  # the C suite finds cuda.h by itself
    ours = {"ALIQUOT_GPU": gpu, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}
    return {**kept, **real, **headers, **ours}


def has_nvidia() -> bool:
    """What the node agent would say; asked of the source, for nothing is built yet."""
    spec = importlib.util.spec_from_file_location("aliquot_paths", ROOT / "gpu_hook" / "paths.py")
    assert spec is not None
    assert spec.loader is not None
    paths = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = paths
    spec.loader.exec_module(paths)
    return paths.nvidia_driver() is not None


def run_pytest(env: Mapping[str, str], *arguments: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--timeout=600", *arguments]
    print(f"$ {' '.join(command[1:])}", flush=True)
    # 5: everything was deselected by the caller's own arguments.
    return subprocess.run(command, cwd=ROOT, env=dict(env), check=False).returncode in (0, 5)


def run_benchmarks(names: Sequence[str], gpu: str, arguments: Sequence[str]) -> int:
    """One after the other; the first failure is the result, and stops none of the others."""
    commands = ([sys.executable, f"benchmarks/{name}.py", "--gpu", gpu, *arguments] for name in names)
    codes = [subprocess.run(one, cwd=ROOT, env=environment(gpu), check=False).returncode for one in commands]
    return next((code for code in codes if code), 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--bench", nargs="?", choices=("all", *BENCHMARKS), const="all", help="run benchmarks instead of the tests"
    )
    parser.add_argument("--gpu", choices=("nvidia", "softgpu"), default="nvidia", help="what to run on")
    asked, more = parser.parse_known_args()
    if asked.gpu == "nvidia" and not has_nvidia():
        if os.environ.get("ALIQUOT_TEST_GPU_ALLOW_NONE") != "1":
            print(
                "asked a GPU, found no NVIDIA driver (its two libraries and a device). Run this where there "
                "is one, set ALIQUOT_TEST_GPU_ALLOW_NONE=1 to skip, or GPU=softgpu for a dry run",
                file=sys.stderr,
            )
            return 1
        if asked.bench:
            return 0
        return 0 if run_pytest({**os.environ, "ALIQUOT_GPU": ""}, "-rs", "tests/gpu", *more) else 1
    if asked.bench:
        build()
        return run_benchmarks(BENCHMARKS if asked.bench == "all" else (asked.bench,), asked.gpu, more)
    missing = [name for name in ("pytest", "pytest_timeout", "pynvml") if importlib.util.find_spec(name) is None]
    if missing:
        raise SystemExit(
            f"asked {', '.join(missing)}, not found in {sys.executable}: install pytest-timeout, nvidia-ml-py"
        )
    build()
    env = environment(asked.gpu)
    workers = ["-n", str(WORKERS)] if importlib.util.find_spec("xdist") else []
    suite = run_pytest(env, "-q", *workers, "tests/gpu_hook/conformance", *more)
    programs = run_pytest(env, "-v", "-rsP", "tests/gpu", *more)
    return 0 if suite and programs else 1


if __name__ == "__main__":
    sys.exit(main())
