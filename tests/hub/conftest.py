"""One real JupyterHub for all tests of a module, with its real proxy and the gateway as its service."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hub_process import HubProcess, hub_problem


@pytest.fixture(autouse=True)
def no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend to be no root: tests of a configuration's values must not depend on their user.

    A real Hub is a process of its own.
    """
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


@pytest.fixture(scope="module")
def a_hub(request: pytest.FixtureRequest) -> Iterator[HubProcess]:
    """Users alice (team vision), bob (team speech) and ada (administrator). A module's HUB = {…} has its options."""
    if problem := hub_problem():
        pytest.skip(problem)
    with HubProcess(**getattr(request.module, "HUB", {})) as hub:
        yield hub
