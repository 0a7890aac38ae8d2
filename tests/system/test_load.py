"""200 users with 1,000 kernels on one gateway, for some minutes.

They come and go, and at the end nothing is left. The scene is the load benchmark's: a real gateway
and a real node agent, stand-ins behind the relays' interface. Nothing here depends on time: `make
bench-load` measures speed.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from load.scene import Scene, people

KERNELS, USERS = 1000, 200
FEW_KERNELS, FEW_USERS, FEW_SECONDS = 24, 6, 6.0
# Descriptors that are opened once and stay: the history's file, keep-alive connections, threads'
# ends.
SPARE_DESCRIPTORS = 30
# Chance decides which changes happen, and there are fewer on a busy machine.
MORE_ROUNDS = 10
# Minutes at the factor of `make soak`, which is 20.
CHURN_SECONDS = 6.0 * float(os.environ.get("ALIQUOT_SOAK", "1"))


@pytest.fixture
def a_scene(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """The scene. ``request.param``: the number of users."""
    # A short path, for sockets lie below it.
    scene = Scene(tmp_path_factory.mktemp("l"), people(request.param, 2))
    try:
        scene.wait()
        yield scene
    finally:
        scene.close()


def descriptors(scene: Scene) -> int:
    return len(os.listdir(f"/proc/{scene.gateway.pid}/fd"))


@pytest.mark.soak(alone="a thousand kernels for minutes")
@pytest.mark.parametrize("a_scene", [USERS], indirect=True)
def test_a_day_of_many_users_leaves_nothing(a_scene: Scene) -> None:
    leaves_nothing(a_scene, KERNELS, CHURN_SECONDS, 3)


@pytest.mark.parametrize("a_scene", [FEW_USERS], indirect=True)
def test_some_seconds_of_a_few_users_leave_nothing(a_scene: Scene) -> None:
    leaves_nothing(a_scene, FEW_KERNELS, FEW_SECONDS, 20)


def leaves_nothing(scene: Scene, kernels: int, seconds: float, per_second: float) -> None:
    before = descriptors(scene)
    told: list[dict[str, Any]] = []

    def do(**command: Any) -> dict[str, Any]:
        told.append(scene.generate(**command))
        return told[-1]

    def churn() -> dict[str, int]:
        return dict(do(do="churn", seconds=seconds / 2, per_second=per_second)["done"])

    assert do(do="start", count=kernels, at_once=8)["kernels"] == kernels
    do(do="listen")
    changes = Counter(churn())
    do(do="hush")
    scene.start_again()
    do(do="find", count=kernels)
    do(do="listen")
    changes.update(churn())
    for _ in range(MORE_ROUNDS):
        if not all(changes.values()):
            changes.update(churn())
    ended = do(do="end", at_once=8)

    assert all(changes.values()), f"each kind of change happened: {changes}"
    assert (ended["held_gpus"], ended["left"]) == (0, 0)
    assert sum(one["foreign"] for one in told) == 0, "somebody was told of somebody else's kernel"
    assert [failure for one in told for failure in one["failures"]] == []
    assert descriptors(scene) <= before + SPARE_DESCRIPTORS
