"""Nodes for tests of kernels that outlive their agent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jupyter_aliquot.gpu_hook.paths import PathError, softgpu_driver

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from tests.system.agent_restart.agent_node import AgentNode
else:
    from agent_node import AgentNode


@pytest.fixture
def a_node() -> Iterator[AgentNode]:
    """A node with its agent."""
    try:
        softgpu_driver()
    except PathError as error:
        pytest.skip(f"no software GPU: {error}")
    node = AgentNode()
    node.start()
    yield node
    node.close()
