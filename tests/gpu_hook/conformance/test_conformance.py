"""Every claim of the C suite, on the driver itself and through the hook: the answers are the same."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EXIT_SKIPPED = 77
SECONDS = 60
# Memory that is mapped by the virtual-memory API has no legacy IPC handle, on any driver: docs/reference/hook.md.
NOT_ELASTIC = {("ipc_events", "a_stream_waits_for_another_processs_record")}
CLAIMS = [
    (source.stem, name)
    for source in sorted(HERE.glob("*.c"))
    for name in re.findall(r"^TEST\((\w+)\)", source.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize("way", ["bare", "hooked", "elastic"])
@pytest.mark.parametrize(("family", "name"), CLAIMS, ids=[f"{family}-{name}" for family, name in CLAIMS])
def test_driver_behaves_so(
    family: str, name: str, way: str, compile_program: Callable[[str], Path], request: pytest.FixtureRequest
) -> None:
    if way == "elastic" and (family == "ipc_memory" or (family, name) in NOT_ELASTIC):
        pytest.skip("elastic memory is not shared by legacy IPC")
    env = request.getfixturevalue(f"{way}_env")
    done = subprocess.run(
        [str(compile_program(family)), name], env=env, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode == EXIT_SKIPPED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}{done.stderr}"


def test_no_claim_is_named_twice() -> None:
    assert len(set(CLAIMS)) == len(CLAIMS) > 0
