"""Build the hook's and the software GPU's libraries with a sanitizer, in build/sanitized.

A later run rebuilds only changed files.

usage: python tools/sanitized.py builds them for all sanitizers of the tests. The tests build with
the same function.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MADE = ROOT / "build" / "sanitized"
SANITIZERS = ("address,undefined", "thread")
TARGETS = ("softgpu_cuda", "softgpu_nvml", "shim_cuda", "shim_nvml")
FLAGS = "-O1 -g1 -w"


def find_cmake() -> str | None:
    """Return the environment's CMake, or the system's."""
    return shutil.which("cmake", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def build(sanitizer: str, cmake: str) -> Path:
    """Build the libraries; return their folder. Raises subprocess.CalledProcessError."""
    folder = MADE / sanitizer.replace(",", "-")
    folder.mkdir(parents=True, exist_ok=True)
    configure = [cmake, "-S", str(ROOT), "-B", str(folder), f"-DPython3_EXECUTABLE={sys.executable}"]
    configure += [f"-DALIQUOT_SANITIZE={sanitizer}", "-DCMAKE_BUILD_TYPE=None", f"-DCMAKE_C_FLAGS={FLAGS}"]
    targets = [word for target in TARGETS for word in ("--target", target)]
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(configure, check=True, capture_output=True)
        subprocess.run([cmake, "--build", str(folder), "-j2", *targets], check=True, capture_output=True)
    return folder / "native"


def main() -> None:
    cmake = find_cmake()
    if cmake is None:
        raise SystemExit(
            "cmake is needed for the libraries with sanitizers, but it was not found. Run pip install cmake"
        )
    for sanitizer in SANITIZERS:
        try:
            build(sanitizer, cmake)
        except subprocess.CalledProcessError as error:
            told = (error.stdout + error.stderr).decode(errors="replace")
            raise SystemExit(f"the libraries with {sanitizer} do not build:\n{told[-3000:]}") from error


if __name__ == "__main__":
    main()
