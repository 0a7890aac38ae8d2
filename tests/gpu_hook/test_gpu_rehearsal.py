"""The programs for a GPU machine start there.

Their environment has the carried packages alone, without the gateway.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.timeout(900)  # each command in a test has a limit of its own, below
ROOT = Path(__file__).resolve().parents[2]
# A machine with PyTorch has these; tests and agent need nothing else that is not the standard library's.
CARRIED = (
    *("pytest", "_pytest", "py.py", "pytest_timeout.py", "pluggy", "iniconfig", "packaging", "pygments", "pynvml.py"),
    *("xdist", "execnet"),
)


def load(name: str) -> ModuleType:
    """Load a private copy of a module of tools/: no other test sees this test's changes in it."""
    path = str(ROOT / "tools")
    sys.path[:0] = [path] if path not in sys.path else []
    spec = importlib.util.spec_from_file_location(f"rehearsed_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def a_bare_environment(tmp_path: Path) -> dict[str, str]:
    """Make a folder with the carried packages alone.

    It is for an interpreter that reads no other site-packages.
    """
    site = tmp_path / "site"
    site.mkdir()
    installed = Path(sysconfig.get_paths()["purelib"])
    for name in CARRIED:
        if (installed / name).exists():
            (site / name).symlink_to(installed / name)
    for found in installed.glob("*.dist-info"):  # pytest finds its plugins by them
        if found.name.partition("-")[0] in ("pytest", "pytest_timeout", "pytest_xdist"):
            (site / found.name).symlink_to(found)
    headers = installed / "nvidia" / "cu13" / "include"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ALIQUOT_", "PYTEST_", "PYTHON"))}
    return {**kept, "PYTHONPATH": str(site), "CUDA_INCLUDE": str(headers), "NVML_INCLUDE": str(headers)}


@pytest.mark.soak(alone="builds for a bare machine once more")
def test_the_gpu_tests_run_on_a_machine_that_has_no_jupyter(a_bare_environment: dict[str, str], tmp_path: Path) -> None:
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    out = tmp_path / "results"
    command = [str(base), "-S", "tools/gpu_tests.py", "--gpu", "softgpu", "--out", str(out), "--seconds", "200"]
    done = subprocess.run(
        [*command, "-k", "self_check or context_footprint or test_it_sees or vmm_handles and bare"],
        cwd=ROOT, env=a_bare_environment, capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    counts = {path.stem: ElementTree.parse(path).getroot().find("testsuite") for path in out.glob("*.xml")}
    assert set(counts) == {"programs", "conformance"}
    for name, suite in counts.items():
        assert suite is not None
        assert int(suite.attrib["tests"]) > int(suite.attrib["skipped"]), f"{name}: nothing was executed"


# Of a machine with a C compiler and without CMake. The compiler calls an assembler and a linker.
PROGRAMS = ("cc", "gcc", "as", "ld", "sh", "true")


@pytest.fixture
def a_bare_machine(tmp_path: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command of an empty environment's Python without a network, and its variables."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (tmp_path / "bin").mkdir()
    for name in PROGRAMS:
        if found := shutil.which(name):
            (tmp_path / "bin" / name).symlink_to(Path(found).resolve() if name in ("cc", "gcc") else found)
    alone = ["unshare", "-n"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        alone = []  # no right to: nothing there asks for a network, which no test then shows
    env = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    return [*([shutil.which("unshare") or "", "-n"] if alone else []), str(tmp_path / "venv" / "bin" / "python")], env


@pytest.fixture(scope="module")
def the_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    bundle = tmp_path_factory.mktemp("bundle") / "bundle"
    write = [sys.executable, "tools/gpu_bundle", "--out", str(bundle)]
    printed = subprocess.run(write, cwd=ROOT, capture_output=True, text=True, timeout=250, check=True).stdout
    assert f"{bundle}/run.py" in printed
    assert len(printed.splitlines()[-1]) < 2000
    return bundle


def test_the_first_minutes_run_from_the_bundle_alone(
    a_bare_machine: tuple[list[str], dict[str, str]], the_bundle: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    python, env = a_bare_machine
    command = [*python, str(the_bundle / "run.py"), "--gpu", "softgpu", "--out", str(out), "--budget", "400"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=450, check=False)
    found = {one["phase"]: one for one in map(json.loads, (out / "first.jsonl").read_text().splitlines())}
    said = done.stdout[-3000:] + done.stderr[-3000:]
    assert {name: one["outcome"] for name, one in found.items()} == dict.fromkeys(found, "ok"), said
    assert len(found) == 11
    with tarfile.open(out / "details.tar.gz") as archive:
        file = archive.extractfile("trace.jsonl")
        assert file is not None
        trace = [json.loads(line) for line in file]
    traced = {pid for one in trace for pids in one.get("pids", {}).values() for pid in pids}
    sampled = {pid for one in trace for device in one.get("nvml", ()) for pid, _, _ in device["samples"]}
    assert sampled
    assert sampled <= traced
    assert all(one["found"] for one in found.values()), "each phase tells something"
    assert set(found["facts"]["found"][0]["packages"]) == {"pytest", "pytest-timeout", "pytest-xdist", "nvidia-ml-py"}
    assert found["build"]["found"][0]["build"] == "carried"
    assert "there is none: install it" in found["build"]["found"][0]["because"]
    paces = {one["step"]: one["paces"] for one in found["overhead"]["found"] if "step" in one}
    assert paces["hooked, alone"] == ["open"]
    assert "measured" in paces["hooked, beside an idle kernel"]
    assert [one["passed"] for one in found["conformance-swapped"]["found"]] == [2]


def test_the_matrix_of_frameworks_has_a_result_for_each(
    a_bare_machine: tuple[list[str], dict[str, str]], the_bundle: Path, tmp_path: Path
) -> None:
    """The matrix runs with the clients that this machine has.

    CuPy's and cuda-python's runtime refuse a software GPU, which the result says.
    """
    clients = ROOT / "build" / "clients"
    if not (clients / "bin" / "python").exists():
        pytest.skip("no CUDA client is installed in build/clients")
    _, env = a_bare_machine
    env = {**env, "PYTHONPATH": str(clients / "cupy")}
    command = [str(clients / "bin" / "python"), str(the_bundle / "run.py"), "--gpu", "softgpu", "--out", str(tmp_path)]
    command += ["--only", "frameworks"]
    subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=450, check=False)
    found = {one["phase"]: one for one in map(json.loads, (tmp_path / "first.jsonl").read_text().splitlines())}
    told = {one["framework"]: one["result"] for one in found["frameworks"]["found"] if "framework" in one}
    assert told["PyTorch"] == told["NCCL, two processes"] == "not installed: torch"
    assert told["RAPIDS cuDF"] == "not installed: cudf"
    assert told["Numba, copies alone"] == "ok"
    assert told["cuda-python, static runtime"] == told["CuPy"] == "the CUDA runtime refuses a software GPU"
    assert found["frameworks"]["found"][-1] == {"unknown_symbols": []}


def test_a_missing_header_fails_and_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = load("gpu_headers")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(headers.sysconfig, "get_paths", lambda: {"purelib": str(tmp_path), "platlib": str(tmp_path)})
    monkeypatch.setattr(headers, "_TOOLKITS", tmp_path)
    monkeypatch.delenv("CUDA_INCLUDE", raising=False)
    with pytest.raises(headers.HeaderMissingError, match="set CUDA_INCLUDE to its folder"):
        headers.header_folder("cuda.h")
    (tmp_path / "cuda-13.0" / "include").mkdir(parents=True)
    (tmp_path / "cuda-13.0" / "include" / "cuda.h").touch()
    assert headers.header_folder("cuda.h") == tmp_path / "cuda-13.0" / "include"
    monkeypatch.setenv("CUDA_INCLUDE", str(tmp_path))
    (tmp_path / "cuda.h").touch()
    assert headers.header_folder("cuda.h") == tmp_path, "what is named comes first"


def test_benchmarks_end_within_their_time_and_say_what_was_left_out(tmp_path: Path) -> None:
    gpu_tests = load("gpu_tests")
    commands: list[list[str]] = []

    class Run(gpu_tests.Run):  # type: ignore[misc, name-defined]
        """A run in which each benchmark takes 200 seconds."""

        def left(self) -> float:
            return float(max(1.0, self.seconds - 200 * len(commands) - gpu_tests.LAST_WORDS_SECONDS))

    def run_limited(command: list[str], env: dict[str, str], seconds: float) -> int:
        commands.append(command)
        return 0

    gpu_tests.run_limited, gpu_tests.environment = run_limited, lambda gpu: {}
    names = gpu_tests.BENCHMARKS
    assert gpu_tests.run_benchmarks(names, "softgpu", Run(tmp_path, 640), ()) == 0
    assert [command[1] for command in commands] == [f"benchmarks/{name}.py" for name in names]
    assert all(command[command.index("--out") + 1] == str(tmp_path) for command in commands)
    assert commands[-1][-2:] == ["--lease", "220"]
    commands.clear()
    assert gpu_tests.run_benchmarks(names, "softgpu", Run(tmp_path, 430), ()) == gpu_tests.STOPPED
    assert len(commands) == 2
