"""Set the project up in `.venv`: environment, Python packages, native libraries.

For tests it also installs Chromium, engines, clang and more.

Needs only Python with its venv module, a C compiler, make and a package index. It prints each step,
how long the step takes, and what to do if it fails; the full output of each step is in
build/setup.log. It contains no project logic.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import left_out
from cuda_clients import ClientSetup, offload_compiler
from hub_proxy import HubProxy

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BUILD = ROOT / "build"
LOG = BUILD / "setup.log"
HEARTBEAT_SECONDS = 10.0
MACHINES = ("x86_64", "aarch64")  # those that the hook has assembly for
PROXY_HELP = "behind a proxy set HTTPS_PROXY, and for a mirror of the index PIP_INDEX_URL"
# The user allows set-up to install Debian packages: nothing else of it changes the machine.
MAY_INSTALL = "ALIQUOT_SYSTEM_PACKAGES"
TORCH_VENV = BUILD / "torch"  # an environment of its own: several GB, and only `make test-torch` needs it
TORCH_PACKAGES = ("torch==2.11.0", "numpy>=2,<3", "nvidia-ml-py>=12.560", "nvidia-cuda-crt==13.0.*")
BUILD_REQUIREMENTS = (
    "scikit-build-core>=1.0,<2",
    "nvidia-cuda-runtime==13.0.*",
    "nvidia-nvml-dev==13.0.*",
)
CMAKE_NEEDED = (3, 20)  # cmake_minimum_required of CMakeLists.txt
CMAKE_REQUIREMENT = "cmake>=3.20,<5"  # the program in a wheel; scikit-build-core finds it in the environment
# Kept out of the environment, for their extensions would run in every Jupyter server that the tests start.
# Folder below build/: requirement, what is without it.
KEPT_APART = {
    "nvdashboard": ("jupyterlab-nvdashboard>=0.15,<0.16", "a client of NVML (it needs Python 3.11)"),
    "resource-usage": ("jupyter-resource-usage>=1.3,<2", "figures of kernels by jupyter-resource-usage"),
    "notebook7": ("notebook>=7.6,<8", "Notebook 7 in the browser"),
}
EXTRAS = {"hub": "lab,hub"}  # those of pyproject.toml; other files have the name of what they stamp
# Program: Debian package.
SYSTEM_PACKAGES = {
    **{"chromium": "chromium", "clang": "clang", "kubectl": "kubernetes-client"},
    **{"strace": "strace", "valgrind": "valgrind"},
}
# What makes the bare systems that releases, the README and the image of Binder are tried on.
SYSTEMS_PACKAGES = {"mmdebstrap": "mmdebstrap"}
# Chromium without windows: a page costs the browser tests two fifths less. They use Chromium where
# the distribution has no such package.
HEADLESS = "chromium-headless-shell"
# Another apt may be at work, as after the start of a machine: wait for it.
APT = ["apt-get", "-q", "-y", "-o", "Dpkg::Use-Pty=0", "-o", "DPkg::Lock::Timeout=300"]
# The container engines that tests start themselves, with the system packages that they need.
ENGINE_PACKAGES = {
    "podman": "podman",
    "netavark": "netavark",  # in a folder of Podman's own, not on PATH
    "aardvark-dns": "aardvark-dns",  # likewise: containers of one network resolve each other's names
    "catatonit": "catatonit",
    "runc": "runc",
    "dockerd": "docker.io",
    "containerd": "containerd",
    "tini-static": "tini",
    "iptables": "iptables",
}
ENGINE_FOLDERS = os.pathsep.join(["/usr/sbin", "/sbin", "/usr/lib/podman", "/usr/libexec/podman"])


def say(text: str) -> None:
    print(text, flush=True)


def run_step(title: str, command: Sequence[str]) -> bool:
    """Run one command with its output in the log; return True when it succeeded.

    While the command is silent, it prints a line each heartbeat.
    """
    say(f"[setup] {title} …")
    begin = time.monotonic()
    done = threading.Event()

    def beat() -> None:
        while not done.wait(HEARTBEAT_SECONDS):
            say(f"[setup]   {title}: {time.monotonic() - begin:.0f} s")

    beater = threading.Thread(target=beat, daemon=True)
    with LOG.open("a") as log:
        log.write(f"\n$ {' '.join(command)}\n")
        log.flush()
        beater.start()
        code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, check=False).returncode
    done.set()
    beater.join()
    if code == 0:
        say(f"[setup]   done in {time.monotonic() - begin:.0f} s")
    return code == 0


def leave_out(part: str, effect: str, reason: str = "") -> None:
    """Go on without a part that only some tests need.

    Set-up and the tests name it in their last lines.
    """
    left_out.add(part, effect, reason or f"its installation failed: see {LOG.relative_to(ROOT)}")
    say(f"[setup]   left out: {part}")


def say_what_was_left_out() -> None:
    for part, effect, reason in left_out.entries():
        say(f"[setup] left out: {part}, so {effect}. Reason: {reason}")


def fail(what: str, remedy: str) -> None:
    tail = "\n".join(LOG.read_text(errors="replace").splitlines()[-25:]) if LOG.exists() else ""
    raise SystemExit(f"{tail}\n[setup] failed: {what}\n[setup] {remedy} (whole output: {LOG.relative_to(ROOT)})")


def fingerprint(extra: str) -> str:
    """Return a fingerprint of all inputs of the installation; a change repeats the set-up."""
    digest = hashlib.sha256(f"{sys.version}{extra}".encode())
    for path in [
        ROOT / "pyproject.toml",
        ROOT / "CMakeLists.txt",
        *sorted((ROOT / "jupyter-config").rglob("*.json")),
    ]:
        digest.update(path.read_bytes())
    for path in sorted((ROOT / "labextension").glob("dist/**/*")):
        digest.update(str(path.relative_to(ROOT)).encode())
    return digest.hexdigest()


def check_host() -> None:
    """End in one sentence where this machine cannot build Aliquot."""
    if sys.platform != "linux":
        name = {"darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)
        raise SystemExit(
            f"[setup] Aliquot runs on Linux, but this machine has {name}. Use a machine, a virtual machine or a "
            "container with Linux"
        )
    if platform.machine() not in MACHINES:
        raise SystemExit(
            f"[setup] Aliquot is built for {' and '.join(MACHINES)}, but this machine is {platform.machine()}. "
            "Use one of these"
        )
    if platform.machine() == "aarch64":
        say("[setup] note: Aliquot is built for arm64, and has not been tested on it")
    if sys.version_info < (3, 10):  # noqa: UP036 (the python3 that calls make may be old)
        raise SystemExit(
            f"[setup] Python 3.10 or newer is needed, but this is {sys.version.split()[0]}. Run make "
            "PYTHON=/path/to/python3.12 …"
        )
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        raise SystemExit("[setup] no C compiler found: install gcc (Debian: apt-get install gcc)")


def find_cmake() -> str | None:
    """Return the environment's cmake or else the machine's; None if neither is new enough."""
    path = os.pathsep.join([str(VENV / "bin"), os.environ.get("PATH", os.defpath)])
    program = shutil.which("cmake", path=path)
    if program is None:
        return None
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"(\d+)\.(\d+)", told)
    return program if version and (int(version[1]), int(version[2])) >= CMAKE_NEEDED else None


def build_requirements() -> tuple[str, ...]:
    """Return the build's requirements from the package index, with cmake if the machine has none."""
    return BUILD_REQUIREMENTS if find_cmake() else (*BUILD_REQUIREMENTS, CMAKE_REQUIREMENT)


def make_environment() -> None:
    if (VENV / "bin" / "python").exists():
        return
    # What is left of an environment has links to a Python that is gone: venv keeps them without --clear.
    if not run_step("creating the environment .venv", [sys.executable, "-m", "venv", "--clear", str(VENV)]):
        shutil.rmtree(VENV, ignore_errors=True)
        fail("python -m venv", "on Debian: apt-get install python3-venv")


def remove_former_name() -> None:
    """Remove the distribution's former name, ``aliquot``.

    Next to today's it leaves each entry point twice in the environment.
    """
    for file in VENV.glob("lib/python*/site-packages/aliquot-*.dist-info/direct_url.json"):
        found = json.loads(file.read_text())
        if found.get("url") == ROOT.as_uri() and found.get("dir_info", {}).get("editable"):
            pip = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "uninstall", "-y"]
            if not run_step("removing Aliquot under its former name", [*pip, "aliquot"]):
                fail("pip uninstall aliquot", "the lines above name the cause; or begin anew with `make clean`")
    shutil.rmtree(BUILD / "editable" / "aliquot", ignore_errors=True)


def install_packages(extra: str) -> None:
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install"]
    if not run_step("fetching build requirements", [*pip, *build_requirements()]):
        fail("pip install of the build requirements", f"is the package index reachable? {PROXY_HELP}")
    title = f"installing Aliquot [{extra}], its Python packages and native libraries"
    strict = ["--config-settings=cmake.define.ALIQUOT_WERROR=ON"] if extra == "test" else []
    if not run_step(title, [*pip, "--no-build-isolation", *strict, "--editable", f".[{extra}]"]):
        fail("pip install --editable .", "the lines above name the cause")


def install_torch() -> None:
    """Install PyTorch's CUDA wheel, in an environment of its own."""
    stamp = BUILD / "torch.stamp"
    want = " ".join(TORCH_PACKAGES) + sys.version
    python = TORCH_VENV / "bin" / "python"
    if stamp.exists() and stamp.read_text() == want and python.exists():
        return
    if not run_step("creating the environment build/torch", [sys.executable, "-m", "venv", str(TORCH_VENV)]):
        fail("python -m venv", "on Debian: apt-get install python3-venv")
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install"]
    if not run_step("installing PyTorch (several GB)", [*pip, *TORCH_PACKAGES]):
        fail("pip install of PyTorch", "is the package index reachable, and are 8 GB of disk free?")
    stamp.write_text(want)


def may_install() -> bool:
    """Return whether the user allows set-up to install Debian packages."""
    return os.environ.get(MAY_INSTALL, "") == "1"


def install_system_packages(more: Mapping[str, str]) -> None:
    """Install Chromium, clang, kubectl, valgrind, engines and more, as root on Debian, if the user allows it."""
    wanted = {**SYSTEM_PACKAGES, **offload_compiler(), **ENGINE_PACKAGES, **more}
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), ENGINE_FOLDERS])
    missing = [package for program, package in wanted.items() if shutil.which(program, path=path) is None]
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        reason = "set-up installs packages as root on Debian only: install them to run all tests"
        leave_out(f"the Debian packages {', '.join(missing)}", "tests that need them are skipped", reason)
        return
    if not may_install():
        reason = f"set-up installs them only if you allow it: {MAY_INSTALL}=1 make test"
        leave_out(f"the Debian packages {', '.join(missing)}", "tests that need them are skipped", reason)
        return
    say(f"[setup] {MAY_INSTALL}=1: installing the Debian packages {', '.join(missing)} and what they need")
    install = [*APT, "install", "--no-install-recommends", *missing, "fonts-dejavu-core"]
    if not (run_step("apt-get update", [*APT, "update"]) and run_step(f"installing {', '.join(missing)}", install)):
        leave_out(f"the Debian packages {', '.join(missing)}", "tests that need them are skipped")


def install_headless_chromium() -> None:
    """Install the browser that the browser tests prefer, as root, where the distribution has it."""
    if shutil.which(HEADLESS) or os.geteuid() != 0 or not may_install() or shutil.which("apt-cache") is None:
        return
    if subprocess.run(["apt-cache", "show", HEADLESS], capture_output=True, check=False).returncode == 0:
        run_step(f"installing {HEADLESS}", [*APT, "install", "--no-install-recommends", HEADLESS])


def install_kept_apart() -> None:
    """Install packages that only some tests need, each in a folder of its own.

    Their own requirements are in the environment.
    """
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--no-deps"]
    for name, (requirement, what) in KEPT_APART.items():
        folder = BUILD / name
        stamp = folder / "setup.stamp"
        if stamp.exists() and stamp.read_text() == requirement:
            continue
        shutil.rmtree(folder, ignore_errors=True)
        if run_step(f"fetching {requirement}", [*pip, "--target", str(folder), requirement]):
            stamp.write_text(requirement)
        else:
            leave_out(requirement, f"the tests of {what} are skipped")


def install_node_packages() -> None:
    """Install packages that check the browser bundle; without Node, use the committed bundle."""
    stamp = BUILD / "node-packages.stamp"
    want = hashlib.sha256((ROOT / "yarn.lock").read_bytes() + (ROOT / "package.json").read_bytes()).hexdigest()
    if shutil.which("node") is None:
        leave_out("Node", "the check of the browser bundle is skipped", "node is not on the PATH: install Node 20")
    elif not (stamp.exists() and stamp.read_text() == want and (ROOT / "node_modules").is_dir()):
        if run_step("fetching the browser bundle's packages", [str(VENV / "bin" / "jlpm"), "install", "--immutable"]):
            stamp.write_text(want)
        else:
            leave_out("the browser bundle's packages", "the check of the browser bundle is skipped")


def fetch_oracle() -> None:
    """Fetch NVIDIA's driver library, which tests compare the hook's answers with.

    Debian's package tools fetch it.
    """
    if not run_step("fetching NVIDIA's driver library to compare with", [sys.executable, "tools/fetch-oracle"]):
        leave_out("NVIDIA's driver library", "the tests that compare with it are skipped")


def fetch_engines() -> None:
    """Fetch a Docker daemon that supports CDI; the Debian release's own may be older."""
    if not (BUILD / "engines" / "docker").is_dir() and not run_step(
        "fetching a Docker daemon that knows CDI", [sys.executable, "tools/fetch-engines"]
    ):
        leave_out("a Docker daemon that knows CDI", "the container tests that need it are skipped")


def fetch_upstream_tests() -> None:
    """Fetch the test suites of Jupyter's packages; our provisioner and relays have to pass them."""
    if not run_step("fetching Jupyter's own test suites", [str(VENV / "bin" / "python"), "tools/fetch-upstream-tests"]):
        leave_out("Jupyter's own test suites", "they are not run")


def fetch_wheels() -> None:
    """Fetch the wheels for the images of deploy/: the tests build those without a registry."""
    if not run_step("fetching wheels for images", [str(VENV / "bin" / "python"), "tools/fetch-wheels"]):
        leave_out("wheels for images", "the test that builds the images is skipped")


def build_native() -> None:
    """Rebuild changed C code; a fraction of a second if nothing changed."""
    folders, cmake = sorted(BUILD.glob("editable-*")), find_cmake()
    if folders and cmake is None:
        needed = ".".join(map(str, CMAKE_NEEDED))
        fail(f"CMake {needed} or newer", "install it, or begin anew with `make clean`: set-up then fetches it")
    for folder in folders:
        if not run_step("native libraries", [str(cmake), "--build", str(folder)]):
            fail("the native build", "the lines above name the cause")


def build_sanitized() -> None:
    """Build the libraries for the hook's tests under sanitizers; a second if nothing changed."""
    if not run_step("native libraries with sanitizers", [str(VENV / "bin" / "python"), "tools/sanitized.py"]):
        leave_out("native libraries with sanitizers", "the tests under sanitizers fail")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extra", choices=["demo", "docs", "lab", "hub", "test"], help="what to set up for")
    parser.add_argument("--torch", action="store_true", help="PyTorch's CUDA wheel too")
    parser.add_argument("--upstream", action="store_true", help="the test suites of Jupyter's own packages too")
    parser.add_argument("--systems", action="store_true", help="what makes bare systems of Debian and Ubuntu, too")
    options = parser.parse_args()
    extra = options.extra
    check_host()
    left_out.begin()
    remove_former_name()
    stamp = BUILD / f"setup-{extra}.stamp"
    want = fingerprint(extra)
    if not (stamp.exists() and stamp.read_text() == want and (VENV / "bin" / "python").exists()):
        LOG.write_text("")
        make_environment()
        install_packages(EXTRAS.get(extra, extra))
        stamp.write_text(want)
    else:
        build_native()
    proxy = HubProxy(ROOT, run_step, leave_out)
    if extra == "hub" and (problem := proxy.install()):
        raise SystemExit(f"[setup] failed: JupyterHub's proxy: {problem} (whole output: {LOG.relative_to(ROOT)})")
    if extra == "test":
        proxy.install_for_tests()
        install_system_packages(SYSTEMS_PACKAGES if options.systems else {})
        install_headless_chromium()
        install_kept_apart()
        ClientSetup(BUILD, run_step, leave_out).install()
        install_node_packages()
        if not all((BUILD / "oracle" / release).is_dir() for release in ("bookworm", "trixie")):
            fetch_oracle()
        fetch_engines()
        fetch_wheels()
        build_sanitized()
    if options.upstream:
        fetch_upstream_tests()
    if options.torch:
        install_torch()
    say_what_was_left_out()


if __name__ == "__main__":
    main()
