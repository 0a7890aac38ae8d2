"""200 users with 1,000 kernels on one gateway, for some minutes: they come and go, and at the end nothing is left.

The scene is the load benchmark's: a real gateway and a real node agent, stand-ins behind the relays' interface.
Nothing here is a matter of time: how fast it goes, `make bench-load` measures.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from load.scene import Scene, people

KERNELS, USERS = 1000, 200
# What is opened once and stays: the history's file, keep-alive connections, threads' ends.
SPARE_DESCRIPTORS = 30
# Minutes at the factor of `make soak`, which is 20.
CHURN_SECONDS = 6.0 * float(os.environ.get("ALIQUOT_SOAK", "1"))


@pytest.fixture
def a_scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    # Short, for sockets lie below it.
    scene = Scene(tmp_path_factory.mktemp("l"), people(USERS, 2))
    try:
        scene.wait()
        yield scene
    finally:
        scene.close()


def descriptors(scene: Scene) -> int:
    return len(os.listdir(f"/proc/{scene.gateway.pid}/fd"))


@pytest.mark.soak
@pytest.mark.skipif("ALIQUOT_SOAK" not in os.environ, reason="a thousand kernels for minutes: make soak")
def test_a_day_of_many_users_leaves_nothing(a_scene: Scene) -> None:
    before = descriptors(a_scene)
    told: list[dict[str, Any]] = []

    def do(**command: Any) -> dict[str, Any]:
        told.append(a_scene.generate(**command))
        return told[-1]

    assert do(do="start", count=KERNELS, at_once=8)["kernels"] == KERNELS
    do(do="listen")
    changed = do(do="churn", seconds=CHURN_SECONDS / 2, per_second=3)["done"]
    do(do="hush")
    a_scene.start_again()
    do(do="find", count=KERNELS)
    do(do="listen")
    do(do="churn", seconds=CHURN_SECONDS / 2, per_second=3)
    ended = do(do="end", at_once=8)

    assert all(changed.values()), "each kind of change happened"
    assert (ended["held_gpus"], ended["left"]) == (0, 0)
    assert sum(one["foreign"] for one in told) == 0, "somebody was told of somebody else's kernel"
    assert [failure for one in told for failure in one["failures"]] == []
    assert descriptors(a_scene) <= before + SPARE_DESCRIPTORS
