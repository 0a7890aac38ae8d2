"""The smoke runs of benchmarks that start Jupyter servers, relays or a browser."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hub_accounts import accounts_problem
from smoke import smoke_rows

pytestmark = pytest.mark.timeout(600)  # longer than the programs' own bound
WITHOUT_ENGINES = ("--parts", "relay", "memory", "websocket", "adoption")


@pytest.mark.parametrize(
    ("program", "arguments", "want_row"),
    [
        ("gateway", (), "execute round trip, added at the median"),
        ("load", (), "then: kernels left"),
        ("pods", (), "kernels lost"),
        (
            "runtime",
            ("--parts", "relay", "memory", "websocket", "adoption"),
            "round trip over ZeroMQ, added by a relay",
        ),
    ],
)
def test_a_benchmark_of_servers_has_a_smoke_run(
    program: str, arguments: tuple[str, ...], want_row: str, tmp_path: Path
) -> None:
    assert want_row in smoke_rows(program, tmp_path, *arguments)


def test_the_benchmark_of_owners_kernels_has_a_smoke_run(tmp_path: Path) -> None:
    if problem := accounts_problem():
        pytest.skip(problem)
    assert "kernel start of an owner, ratio of medians" in smoke_rows("owner", tmp_path)


@pytest.mark.browser
@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed (Debian: chromium)")
def test_the_benchmark_of_the_browser_has_a_smoke_run(tmp_path: Path) -> None:
    assert "state change to pixel (median)" in smoke_rows("lab", tmp_path)
