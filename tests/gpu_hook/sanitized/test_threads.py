"""Threads that use everything at once, under sanitizers: the software GPU alone, and the hook in front of it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
MIB = 1 << 20
ROUNDS = 80


@pytest.mark.parametrize("quota", [None, 12 * MIB], ids=["bare", "hooked"])
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_threads_that_use_everything_at_once_are_clean(
    sanitizer: str,
    quota: int | None,
    build_with: Callable[[str], Any],
    compile_with: Callable[..., Path],
    make_machine: Callable[..., Any],
) -> None:
    build = build_with(sanitizer)
    libraries = [str(build.softgpu / name) for name in ("libcuda.so.1", "libnvidia-ml.so.1")]
    program = compile_with(sanitizer, [HERE / "threads.c"], *libraries, "-lpthread")
    node = make_machine(build, quota)
    env = node.plain_env if quota is None else node.hooked_env
    done = subprocess.run(
        [str(program), str(ROUNDS)], env=env, capture_output=True, text=True, check=False, timeout=250
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    succeeded, refused, looks = map(int, done.stdout.split())
    assert succeeded > 4 * ROUNDS  # a sanitizer that leaves no room for the address window would let nothing succeed
    assert looks > 0
    assert (refused > 0) == (quota is not None)
