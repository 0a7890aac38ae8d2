"""Jupyter's own fixtures for a server inside the test's process, for this folder alone.

As a plugin they would make a server and an event loop around every test of the project.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from pytest_jupyter.jupyter_server import *  # noqa: F403  (fixtures and hooks, found by their names)


@pytest.fixture(autouse=True)
def no_server_chooses_provisioners_for_later_tests() -> Iterator[None]:
    """Forget the provisioner factory after each test: the whole process shares one."""
    yield
    KernelProvisionerFactory.clear_instance()


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Switch the collector off: an object is freed by its last reference alone."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
