"""Fixtures for the command line: commands run as users run them, in an own runtime folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_aliquot.gpu_hook.client.client import AgentClientError, query

START_SECONDS = 90.0

RunAliquot = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def a_runtime_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def an_environment(a_runtime_folder: Path) -> dict[str, str]:
    """Return an environment without the user's Jupyter settings, kernelspecs and agents."""
    home = a_runtime_folder / "home"
    home.mkdir()
    cleared = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER_", "ALIQUOT_", "XDG_"))}
    return cleared | {"ALIQUOT_RUNTIME_DIR": str(a_runtime_folder), "HOME": str(home)}


@pytest.fixture
def run_aliquot(an_environment: dict[str, str]) -> RunAliquot:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "jupyter_aliquot.gateway.cli.app", *words]
        return subprocess.run(
            command,
            env=an_environment,
            capture_output=True,
            text=True,
            timeout=90,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    return run


@pytest.fixture
def an_agent(an_environment: dict[str, str], a_runtime_folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a node agent on the software GPU by the command."""
    command = [
        sys.executable,
        "-m",
        "jupyter_aliquot.gateway.cli.app",
        "agent",
        "--driver",
        "softgpu",
        "--softgpu-memory",
        "1GiB",
        "--overcommit",
        "1",
    ]
    with (a_runtime_folder / "agent.out").open("wb") as log:
        agent = subprocess.Popen(command, env=an_environment, stdout=log, stderr=log)
    deadline = time.monotonic() + START_SECONDS
    while not _answers(a_runtime_folder):
        assert agent.poll() is None, (a_runtime_folder / "agent.out").read_text()
        assert time.monotonic() < deadline, "the agent did not answer in time"
        time.sleep(0.02)
    yield agent
    if agent.poll() is None:
        agent.send_signal(signal.SIGTERM)
        agent.wait(60)


def _answers(runtime_folder: Path) -> bool:
    """Return whether the agent answers: its socket exists a moment before it listens."""
    try:
        query("status", runtime_dir=runtime_folder)
    except AgentClientError:
        return False
    return True
