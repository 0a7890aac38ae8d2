"""The hook is transparent: random programs get the same answers with and without it, and leave nothing behind."""

from __future__ import annotations

import os
import random
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook import paths

HERE = Path(__file__).parent
MIB = 1 << 20
SEEDS = HERE / "seeds.txt"
SOAK = int(os.environ.get("ALIQUOT_SOAK", "1"))
CI_SEQUENCES = 180  # a little more than 10^5 calls
SOAK_SEQUENCES = 1000 * SOAK  # at the usual factor of 20 more than 10^7
PACED_SEQUENCES = 60 * SOAK
BATCH = 500  # sequences of one process
# The hook calls them, too, so the n-th call is another one there.
CALLED_BY_HOOK = {
    *("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuArray3DCreate_v2", "cuArrayDestroy"),
    *("cuMipmappedArrayCreate", "cuMipmappedArrayDestroy", "cuGraphGetNodes", "cuGetProcAddress_v2", "cuInit"),
    *("cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuStreamIsCapturing_ptsz", "cuGraphExecDestroy"),
    *("cuStreamGetCtx", "cuStreamGetFlags", "cuStreamGetId", "cuMemPoolGetAttribute"),  # for stream-ordered memory
}


def seeds() -> list[int]:
    return [int(line) for line in SEEDS.read_text().splitlines() if line and not line.startswith("#")]


def expect_equal(pair: Any, first: int, count: int, folder: Path, keeps_seed: bool = False) -> None:
    """Expect equal answers.

    One sequence of some thousands may meet the driver's own timing after all.
    """
    chances, end = 1 + count // 2000, first + count
    while first < end:
        batch = min(BATCH, end - first)
        found = pair.difference(first, batch)
        if found is None:
            first += batch
            continue
        seed = found[0]
        if chances == 0 or not pair.is_chance(first, seed):
            if keeps_seed and seed not in seeds() and os.access(SEEDS, os.W_OK):
                with SEEDS.open("a") as file:
                    file.write(f"{seed}\n")
            pytest.fail(pair.explain(first, *found, folder / "only"))
        warnings.warn(f"seed {seed} differed once: {found}", stacklevel=2)
        chances -= 1
        first = seed + 1


@pytest.mark.soak
@pytest.mark.timeout(240 + 60 * SOAK)
def test_answers_are_the_same_through_the_hook(make_pair: Callable[..., Any], tmp_path: Path) -> None:
    pair = make_pair()
    first, count = (0, CI_SEQUENCES) if SOAK == 1 else (random.SystemRandom().randrange(1 << 40), SOAK_SEQUENCES)
    print(f"seeds {first} to {first + count - 1}")
    expect_equal(pair, first, count, tmp_path, keeps_seed=True)
    assert pair.calls > 500 * min(count, BATCH)


def test_answers_are_the_same_for_seeds_that_once_failed(make_pair: Callable[..., Any], tmp_path: Path) -> None:
    pair = make_pair()
    for seed in seeds():
        expect_equal(pair, seed, 1, tmp_path)


@pytest.mark.parametrize("quota", [24 * MIB, 70 * MIB], ids=["small", "large"])
def test_answers_are_the_same_up_to_the_quota(make_pair: Callable[..., Any], tmp_path: Path, quota: int) -> None:
    pair = make_pair(quota)
    for seed in range(25):  # in a new process each: answers after the quota differ
        expect_equal(pair, seed, 1, tmp_path)
    assert pair.stopped, "no sequence met the quota"


def test_answers_are_the_same_where_launches_wait(make_pair: Callable[..., Any], tmp_path: Path) -> None:
    pair = make_pair(is_paced=True)
    expect_equal(pair, 5000, PACED_SEQUENCES, tmp_path)
    assert pair.pace.waits, "no launch waited"


def injectable() -> list[str]:
    table = (Path(paths.__file__).parent / "hook" / "interpose" / "entry_points.txt").read_text()
    starred = set(re.findall(r"(cu\w+)(?:\{[\w,]*\})?\*", table))
    called = {name for one in HERE.glob("*.c") for name in re.findall(r"CALL\((cu\w+)\(", one.read_text())}
    return sorted(called - starred - CALLED_BY_HOOK)


@pytest.mark.parametrize("choice", range(3))
def test_answers_are_the_same_when_the_driver_fails(make_pair: Callable[..., Any], tmp_path: Path, choice: int) -> None:
    chance = random.Random(choice)
    codes = (1, 2, 46, 400, 700, 999)
    faults = [f"{name}:{chance.randrange(1, 60)}={chance.choice(codes)}" for name in chance.sample(injectable(), 60)]
    pair = make_pair(ALIQUOT_SOFTGPU_FAULTS=",".join(faults))
    expect_equal(pair, 1000 * choice, 12, tmp_path)


@pytest.mark.parametrize("plant", ["ANOTHER_CODE", "ANOTHER_ORDER", "LOST_FREE"])
def test_a_planted_difference_is_found(plant: str, make_pair: Callable[..., Any], plants: Any, tmp_path: Path) -> None:
    pair = make_pair(hooked={"LD_PRELOAD": str(plants(plant))})
    found = pair.difference(0, 40)
    assert found is not None
    report = pair.explain(0, *found, tmp_path / "only")
    assert f"seed {found[0]}" in report
    if plant == "ANOTHER_CODE":
        bare, hooked = (line for line in report.splitlines() if "cuEventDestroy_v2" in line and line[2] != " ")
        assert "cuEventDestroy_v2: =190" in bare
        assert "cuEventDestroy_v2: =1" in hooked
        assert len(report.splitlines()) < 8, report
