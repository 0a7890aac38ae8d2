"""The fuzzer's random programs with wrong arguments, under the address sanitizer, bare and through the hook."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FUZZ = Path(__file__).parents[1] / "fuzz"
SANITIZER = "address,undefined"
SEQUENCES = 40


@pytest.mark.parametrize("quota", [1 << 62, 24 << 20], ids=["unlimited", "small"])
def test_random_programs_touch_nothing_that_is_not_theirs(
    quota: int,
    build_with: Callable[[str], Any],
    compile_with: Callable[..., Path],
    make_machine: Callable[..., Any],
    differential: Any,
    tmp_path: Path,
) -> None:
    build = build_with(SANITIZER)
    sources = [one for one in sorted(FUZZ.glob("*.c")) if one.stem != "planted"]
    program = compile_with(SANITIZER, sources, str(build.softgpu / "libcuda.so.1"), "-lpthread")
    envs = [make_machine(build, one, devices=2, memory="256MiB") for one in (None, quota)]
    pair = differential.Pair(program, envs[0].plain_env, envs[1].hooked_env, 500, has_quota=quota < 1 << 62)
    # Answers differ after a quota was met: then each sequence has a process of its own.
    runs = [(seed, 1) for seed in range(8)] if pair.has_quota else [(0, SEQUENCES)]
    for first, count in runs:
        found = pair.difference(first, count)
        assert found is None, pair.explain(first, *found, tmp_path / "only")
