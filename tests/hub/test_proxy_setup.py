"""The message of the set-up where JupyterHub's proxy cannot be installed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from hub_proxy import HubProxy  # noqa: E402  (a script's neighbour, not a package)


def a_program(folder: Path, name: str, says: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho {says}\n")
    path.chmod(0o755)


def a_proxy(root: Path) -> tuple[HubProxy, list[str], list[str]]:
    for name in ("package.json", "package-lock.json"):
        path = root / "examples" / "jupyterhub" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((ROOT / "examples" / "jupyterhub" / name).read_bytes())
    steps: list[str] = []
    said: list[str] = []

    def run_step(title: str, command: Sequence[str]) -> bool:
        steps.append(" ".join(command))
        return False

    def leave_out(part: str, effect: str, reason: str) -> None:
        said.append(f"{part}: {effect}: {reason}")

    return HubProxy(root, run_step, leave_out), steps, said


def test_without_node_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    proxy, steps, said = a_proxy(tmp_path)
    assert proxy.install() == "not found: node and npm (Node 18 or newer; Debian: apt-get install nodejs npm)"
    proxy.install_for_tests()
    assert "the tests with a Hub are skipped" in said[0]
    assert steps == []


def test_a_node_that_is_too_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    a_program(tmp_path, "node", "v16.20.2")
    a_program(tmp_path, "npm", "8.0.0")
    proxy, steps, _ = a_proxy(tmp_path)
    assert proxy.install() == f"Node 18 or newer is needed, but {tmp_path}/node is v16.20.2. Install it"
    assert steps == []


def test_it_is_installed_by_the_lock_file_and_a_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    a_program(tmp_path, "node", "v20.1.0")
    a_program(tmp_path, "npm", "10.0.0")
    proxy, steps, _ = a_proxy(tmp_path)
    assert "npm ci failed" in proxy.install()
    assert steps[0].startswith("npm ci --prefix ")


def test_the_lock_file_names_no_registry() -> None:
    assert "resolved" not in (ROOT / "examples" / "jupyterhub" / "package-lock.json").read_text()
