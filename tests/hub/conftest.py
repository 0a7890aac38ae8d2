"""One real JupyterHub for all tests of a module, with its real proxy and the gateway as its service."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_process import HubProcess, hub_problem


@pytest.fixture(autouse=True)
def no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend to be no root: tests of a configuration's values must not depend on their user.

    A real Hub is a process of its own.
    """
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


@pytest.fixture
def accounts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The accounts of the machine: root, aliquot with a home of its own, homeless without, and ada."""
    if os.getuid() == 0:
        os.chown(tmp_path, 999, 999)
    homes = {"root": (0, "/root"), "aliquot": (tmp_path.stat().st_uid, str(tmp_path)), "homeless": (999, "/nowhere")}
    homes["ada"] = (3001, "/home/ada")

    def getpwnam(name: str) -> pwd.struct_passwd:
        uid, home = homes[name]
        return pwd.struct_passwd((name, "x", uid, uid, "", home, "/bin/sh"))

    def getpwuid(uid: int) -> pwd.struct_passwd:
        return getpwnam(next(name for name in homes if homes[name][0] == uid))

    monkeypatch.setattr(pwd, "getpwnam", getpwnam)
    monkeypatch.setattr(pwd, "getpwuid", getpwuid)
    return tmp_path


@pytest.fixture(scope="module")
def a_hub(request: pytest.FixtureRequest) -> Iterator[HubProcess]:
    """Users alice (team vision), bob (team speech) and ada (administrator). A module's HUB = {…} has its options."""
    if problem := hub_problem():
        pytest.skip(problem)
    with HubProcess(**getattr(request.module, "HUB", {})) as hub:
        yield hub
