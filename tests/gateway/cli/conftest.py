"""Fixtures for the command line: commands run as users run them, in an own runtime folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import warm_start

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
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this machine's clock be that of UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def run_aliquot(an_environment: dict[str, str]) -> RunAliquot:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return warm_start.run(
            warm_start.SERVER, [*warm_start.ALIQUOT, *words], env=an_environment, timeout=START_SECONDS
        )

    return run


@pytest.fixture
def an_agent(
    request: pytest.FixtureRequest, an_environment: dict[str, str], a_runtime_folder: Path
) -> Iterator[subprocess.Popen[bytes] | warm_start.WarmProcess]:
    """Start a node agent on the software GPU by the command; a test may add options as its parameter."""
    words = [*warm_start.ALIQUOT, "agent", "--driver", "softgpu", "--softgpu-memory", "1GiB", "--overcommit", "1"]
    words += [word.format(folder=a_runtime_folder) for word in getattr(request, "param", ())]
    with (a_runtime_folder / "agent.out").open("wb") as log:
        agent = warm_start.start(warm_start.SERVER, words, env=an_environment, stdout=log, stderr=log)
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
