"""Both engines for container tests, started once for all of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# Tests of other folders that need engines do the same.
sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from tests.containers.container_engines import Engine, EngineUnavailable, start_engine
    from tests.containers.kernels import ContainerKernels
else:
    from container_engines import Engine, EngineUnavailable, start_engine
    from kernels import ContainerKernels


def _engine(name: str) -> Iterator[Engine]:
    try:
        engine = start_engine(name)
    except EngineUnavailable as reason:
        pytest.skip(f"{name}: {reason}")
    yield engine
    engine.stop()


@pytest.fixture(scope="session")
def a_podman() -> Iterator[Engine]:
    """Podman's service; its Docker API drops device requests without an error."""
    yield from _engine("podman")


@pytest.fixture(scope="session")
def a_docker() -> Iterator[Engine]:
    """A Docker daemon that knows CDI."""
    yield from _engine("docker")


@pytest.fixture(scope="session")
def an_old_docker() -> Iterator[Engine]:
    """The release's own Docker daemon, where it differs: it may know no CDI."""
    yield from _engine("docker-old")


@pytest.fixture(scope="session", params=["podman", "docker"])
def an_engine(request: pytest.FixtureRequest) -> Engine:
    """Each test runs on both."""
    engine: Engine = request.getfixturevalue(f"a_{request.param}")
    return engine


@pytest.fixture
def kernels(an_engine: Engine) -> Iterator[ContainerKernels]:
    """Kernels on each engine; all that a test started ends with it."""
    started = ContainerKernels(an_engine)
    before = set(an_engine.containers())  # of a kernel that a whole module shares
    yield started
    started.close()
    assert set(an_engine.containers()) <= before
