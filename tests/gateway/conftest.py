"""Jupyter's own fixtures for a server inside the test's process, for this folder alone.

As a plugin they would make a server and an event loop around every test of the project.
"""

from __future__ import annotations

import gc
import json
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_events import schema as event_schemas
from pytest_jupyter.jupyter_server import *  # noqa: F403  (fixtures and hooks, found by their names)

from jupyter_aliquot.gateway.base import gil


@pytest.fixture(autouse=True)
def no_server_chooses_provisioners_for_later_tests() -> Iterator[None]:
    """Forget the provisioner factory after each test: the whole process shares one."""
    yield
    KernelProvisionerFactory.clear_instance()


@pytest.fixture
def jp_nbconvert_templates() -> None:
    """Copy no templates of nbconvert, fifty files for each server: no test converts a notebook. Called by pytest."""


@pytest.fixture(scope="session", autouse=True)
def each_event_schema_is_checked_once() -> Iterator[None]:
    """Let hundreds of servers in this process check the same six schemas of events but once."""
    checked: set[str] = set()
    check = event_schemas.validate_schema

    def check_once(schema: dict[str, Any]) -> None:
        text = json.dumps(schema, sort_keys=True)
        if text not in checked:
            check(schema)
            checked.add(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_schemas, "validate_schema", check_once)
        yield


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the items between which a background thread may rest, by the thread pool's name."""
    counted: Counter[str] = Counter()

    def giving_way(items: Iterable[Any], *_bounds: object) -> Iterator[Any]:
        for item in items:
            counted[threading.current_thread().name.partition("_")[0]] += 1
            yield item

    monkeypatch.setattr(gil, "giving_way", giving_way)
    return counted


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Switch the collector off: an object is freed by its last reference alone."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
