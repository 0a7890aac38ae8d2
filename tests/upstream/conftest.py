"""Jupyter's own test suites, run as their projects run them.

Once plain, and then with our provisioner and relays below, whose kernels are processes or pods.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import pytest

from jupyter_aliquot.gpu_hook.paths import RuntimeDir

UPSTREAM = Path(__file__).resolve().parents[2] / "build" / "upstream"
# Upstream turns warnings into errors; this one is tornado's about jupyter_server's own tests.
_TORNADO = "ignore:The method, uri, and version arguments:DeprecationWarning"


@dataclass(frozen=True)
class Suite:
    """A package's tests. ``seconds`` bounds one run of all of them."""

    package: str
    tests: tuple[str, ...]
    seconds: int

    @property
    def folder(self) -> Path:
        return UPSTREAM / f"{self.package}-{version(self.package)}"


@dataclass(frozen=True)
class Below:
    """The plugins of pytest and the variables below a suite."""

    plugins: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


PLAIN = Below()
RELAYS = Below(environment={"JUPYTER_DEFAULT_PROVISIONER_NAME": "aliquot"})


class Upstream:
    """Runs suites in a home of their own."""

    def __init__(self, home: Path, runtime: RuntimeDir) -> None:
        self.runtime = runtime
        self._home = home
        self.log = home  # of the last run

    def run(self, suite: Suite, below: Below) -> dict[str, str]:
        """Return each test's outcome by its name: passed, failed or skipped."""
        if not suite.folder.is_dir() or not (UPSTREAM / "packages").is_dir():
            pytest.skip(f"{suite.folder.name} is not in build/upstream: tools/fetch-upstream-tests (or make soak)")
        report = self._home / f"report-{time.monotonic_ns()}.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=120", "-o", "log_cli=0"]
        command += ["--timeout-method=signal"]  # a test that hangs fails, and ends no other
        command += ["-W", _TORNADO, f"--junit-xml={report}", *suite.tests]
        command += [word for plugin in below.plugins for word in ("-p", plugin)]
        with open(report.with_suffix(".log"), "wb") as log:
            environment = self._environment(below)
            subprocess.run(
                command, cwd=suite.folder, env=environment, stdout=log, stderr=log, timeout=suite.seconds, check=False
            )
        assert report.exists(), report.with_suffix(".log").read_text()[-3000:]
        self.log = report.with_suffix(".log")
        return _outcomes(report)

    def _environment(self, below: Below) -> dict[str, str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "JPY"))}
        environment |= {
            "PYTHONPATH": os.pathsep.join(map(os.fspath, (UPSTREAM / "packages", Path(__file__).parent))),
            "HOME": os.fspath(self._home),
            "IPYTHONDIR": os.fspath(self._home / "ipython"),
            "ALIQUOT_RUNTIME_DIR": os.fspath(self.runtime.path),
            "JUPYTER_PLATFORM_DIRS": "1",
        }
        return environment | below.environment

    def relays_left(self, within_seconds: float = 15.0) -> list[Path]:
        """Return relays that did not end in time with their kernel and its owner."""
        deadline = time.monotonic() + within_seconds
        while left := list(self.runtime.relays.iterdir()) if self.runtime.relays.is_dir() else []:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        return left

    def end(self) -> None:
        """End the relay host; the ends of their kernels and owners end the relays."""
        try:
            pid = int(self.runtime.relay_lock.read_text().split()[0])
            os.kill(pid, signal.SIGTERM)
        except (OSError, ValueError, IndexError):
            return


def _outcomes(report: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        name = f"{case.get('classname')}::{case.get('name')}"
        # A test and its teardown may have two reports: the worse counts.
        found[name] = "failed" if "failed" in (outcome, found.get(name)) else outcome
    return found


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[Upstream]:
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    folder.chmod(0o700)
    upstream = Upstream(tmp_path, RuntimeDir(folder))
    yield upstream
    upstream.end()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def pods() -> Iterator[Below]:
    """A cluster of one node whose agent has a software GPU, and kernels that run there as pods."""
    from tests.system.conftest import wait_until
    from tests.system.pods.conftest import GpuNode, a_cluster

    with a_cluster() as (double, folder, environment):
        # No gateway that it could dial: the plugin asks the agent at its socket.
        node = GpuNode(double, "gpu-a", folder, environment, 9, "--kernel-slots", "64", "--softgpu-memory", "64GiB")
        try:
            wait_until(lambda: node.node.kubelet.amounts().get("aliquot.dev/kernel", (0, 0))[1])
            told = {"KUBECONFIG": environment["KUBECONFIG"], "ALIQUOT_TEST_NODE": str(node.run_dir)}
            yield Below(("pods_plugin",), {**RELAYS.environment, **told})
        finally:
            node.close()
