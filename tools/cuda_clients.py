"""Install the CUDA clients that tests run unmodified, in build/clients.

The folder is an environment of its own, since the clients need newer headers than the build does.
PyCUDA has no wheel, so set-up compiles it, without CUDA's libraries, which it would not use here.

Set-up skips each client that it cannot install; the client's tests are then skipped, too, and say
so.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

NEWEST = ("numba-cuda[cu13]>=0.30,<0.31", "cuda-bindings>=13,<14", "cuda-core>=1.0,<2")
# Installed in folders of their own: a test puts the folder before the newest release or ignores it.
APART = {
    "bindings-13.0": "cuda-bindings==13.0.*",
    "bindings-12.9": "cuda-bindings==12.9.*",
    "cupy": "cupy-cuda13x>=14,<15",
}
PYCUDA = "pycuda==2026.1"
PYCUDA_BUILD = ("setuptools>=65", "wheel", "nvidia-cuda-profiler-api==13.*")


def offload_compiler() -> dict[str, str]:
    """Return the part of this GCC that compiles OpenMP for GPUs: program and Debian package.

    Empty where Debian has none.
    """
    if platform.machine() != "x86_64" or shutil.which("gcc") is None:
        return {}
    facts = [subprocess.check_output(["gcc", f"-dump{fact}"], text=True).strip() for fact in ("machine", "version")]
    version = facts[1].split(".")[0]
    return {f"{facts[0]}-accel-nvptx-none-gcc-{version}": f"gcc-{version}-offload-nvptx"}


def _has_cxx() -> bool:
    return any(shutil.which(name) for name in ("g++", "c++"))


@dataclass(frozen=True)
class ClientSetup:
    """The installation of the clients.

    ``run_step`` runs a command under a title and returns True when it succeeded; ``leave_out`` is
    setup.py's.
    """

    build: Path
    run_step: Callable[[str, Sequence[str]], bool]
    leave_out: Callable[[str, str, str], None]

    @property
    def folder(self) -> Path:
        return self.build / "clients"

    def install(self) -> None:
        if self._once("newest", " ".join(NEWEST), self._install_newest):
            for name, package in APART.items():
                self._once(name, package, lambda name=name, package=package: self._install_apart(name, package))
            self._once("pycuda", PYCUDA, self._install_pycuda)

    def _once(self, name: str, want: str, install: Callable[[], bool]) -> bool:
        stamp, want = self.folder / f"{name}.stamp", f"{want} for Python {sys.version}"
        if stamp.exists() and stamp.read_text() == want:
            return True
        stamp.unlink(missing_ok=True)
        if not install():
            reason = "its installation failed: see build/setup.log"
            if name == "pycuda" and not _has_cxx():
                reason = "PyCUDA needs a C++ compiler (Debian: apt-get install g++)"
            self.leave_out(f"the CUDA client {name}", "its tests are skipped", reason)
            return False
        stamp.write_text(want)
        return True

    def _pip(self, *words: str) -> list[str]:
        python = str(self.folder / "bin" / "python")
        return [python, "-m", "pip", "--disable-pip-version-check", *words]

    def _install_newest(self) -> bool:
        shutil.rmtree(self.folder, ignore_errors=True)
        make = [sys.executable, "-m", "venv", str(self.folder)]
        title = "installing numba-cuda, cuda-bindings and cuda-core, to run them as clients"
        return self.run_step("creating the environment build/clients", make) and self.run_step(
            title, self._pip("install", "--no-compile", *NEWEST)
        )

    def _install_apart(self, name: str, package: str) -> bool:
        target = self.folder / name
        shutil.rmtree(target, ignore_errors=True)
        options = ("--no-compile", "--no-deps", "--target", str(target))
        return self.run_step(f"fetching {package}", self._pip("install", *options, package))

    def _install_pycuda(self) -> bool:
        """Build PyCUDA, linked with the software GPU as its driver.

        Its configuration is a file in its sources.
        """
        if not _has_cxx():
            return False
        source = self.build / "pycuda"
        shutil.rmtree(source, ignore_errors=True)
        fetch = ("download", "--no-deps", "--no-build-isolation", "--no-binary", "pycuda", "-d", str(source), PYCUDA)
        if not (
            self.run_step("fetching what PyCUDA is built with", self._pip("install", *PYCUDA_BUILD))
            and self.run_step("fetching PyCUDA's sources", self._pip(*fetch))
        ):
            return False
        shutil.unpack_archive(next(source.glob("pycuda-*.tar.gz")), source)
        unpacked = next(path for path in source.glob("pycuda-*") if path.is_dir())
        (unpacked / "siteconf.py").write_text(self._pycuda_configuration(source))
        build = self._pip("install", "--no-build-isolation", str(unpacked))
        return self.run_step("building PyCUDA (a minute)", build)

    def _pycuda_configuration(self, folder: Path) -> str:
        link = folder / "libcuda.so"  # as a driver's development package names it
        link.symlink_to(next(self.build.glob("editable-*/native/softgpu/libcuda.so.1")))
        include = next(self.folder.glob("lib/python*/site-packages/nvidia/cu13/include"))
        lines = (
            "CUDA_ENABLE_CURAND = False",
            f"CUDA_INC_DIR = [{str(include)!r}]",
            f"CUDADRV_LIB_DIR = [{str(folder)!r}]",
            'CXXFLAGS = ["-O0", "-g0", "-w"]',  # called, not measured: an optimized build takes three times as long
        )
        return "\n".join(lines) + "\n"
