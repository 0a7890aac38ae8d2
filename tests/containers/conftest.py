"""Both engines for container tests, started once for all of them."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# Tests of other folders that need engines use the same fixtures.
sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from tests.containers.container_engines import Engine, EngineUnavailable, start_engine
    from tests.containers.gateway_node import ContainerNode, parts
    from tests.containers.kernels import ContainerKernels
else:
    from container_engines import Engine, EngineUnavailable, start_engine
    from gateway_node import ContainerNode, parts
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
    """The release's own Docker daemon, if it differs: it may not support CDI."""
    yield from _engine("docker-old")


@pytest.fixture(scope="session", params=["podman", "docker"])
def an_engine(request: pytest.FixtureRequest) -> Engine:
    """Run each test on both engines."""
    engine: Engine = request.getfixturevalue(f"a_{request.param}")
    return engine


@pytest.fixture
def kernels(an_engine: Engine) -> Iterator[ContainerKernels]:
    """Kernels on each engine; the fixture ends all that a test started."""
    started = ContainerKernels(an_engine)
    before = set(an_engine.containers())  # of a kernel that a whole module shares
    yield started
    started.close()
    assert set(an_engine.containers()) <= before


@pytest.fixture
def relay_image() -> str:
    """The image of the relay host; empty: a process. A test that needs one parametrizes it."""
    return ""


@pytest.fixture
def a_container_node(an_engine: Engine, relay_image: str) -> Iterator[ContainerNode]:
    """A machine with a gateway's configuration for this engine, and an agent."""
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    node = ContainerNode(folder, an_engine, relay_image)
    yield node
    node.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def open_tab() -> Iterator[Callable[..., Any]]:
    tabs: list[Any] = []

    def open_one(gateway: Any, kernel_id: str) -> Any:
        tabs.append(parts.Tab(gateway, kernel_id))
        return tabs[-1]

    yield open_one
    for tab in tabs:
        tab.close()
