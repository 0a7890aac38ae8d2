"""Changed limits of running containers, on an engine whose answers a test chooses."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import docker
import pytest
from lame_engine import Asked, LameEngine

from jupyter_aliquot.provisioner.containers.plan import ContainerLimits
from jupyter_aliquot.provisioner.engine.update import resize_container
from jupyter_aliquot.provisioner.resources import Bytes

GIB = 1 << 30
ID = "c0ffee"


class Kernel:
    """A container as the engine shows it.

    ``changes``: the limits that the engine was asked to change.
    """

    def __init__(self, engine: LameEngine) -> None:
        self.limits: dict[str, Any] = {"Memory": 2 * GIB, "NanoCpus": 2_000_000_000, "PidsLimit": 1024, "ShmSize": 1}
        self.used = {"usage": GIB, "stats": {"inactive_file": GIB // 2}}
        self.changes: list[dict[str, int]] = []
        engine.routes[f"GET /containers/{ID}/json"] = lambda asked: asked.say(200, {"HostConfig": self.limits})
        engine.routes[f"GET /containers/{ID}/stats"] = lambda asked: asked.say(200, {"memory_stats": self.used})
        engine.routes[f"POST /containers/{ID}/update"] = self.change

    def change(self, asked: Asked) -> None:
        self.changes.append(json.loads(asked.body))
        asked.say(200, {"Warnings": None})


@pytest.fixture
def client(a_lame_engine: LameEngine) -> Iterator[docker.APIClient]:
    with contextlib.closing(docker.APIClient(base_url=a_lame_engine.url, version="auto")) as client:
        yield client


def limits(memory: int | None = None, cpus: float | None = None, **others: Any) -> ContainerLimits:
    return ContainerLimits(None if memory is None else Bytes(memory), cpus, **others)


def test_growing_changes_memory_without_swap_cpus_and_processes(
    a_lame_engine: LameEngine, client: docker.APIClient
) -> None:
    kernel = Kernel(a_lame_engine)
    assert resize_container(client, ID, limits(4 * GIB, 3.5, pids=2048)) == ""
    want = {"Memory": 4 * GIB, "MemorySwap": 4 * GIB, "NanoCpus": 3_500_000_000, "PidsLimit": 2048}
    assert kernel.changes == [want]


def test_memory_is_not_put_below_what_a_kernel_uses(a_lame_engine: LameEngine, client: docker.APIClient) -> None:
    kernel = Kernel(a_lame_engine)
    assert resize_container(client, ID, limits(GIB)) == "", "half of what it uses is a cache that goes by itself"
    assert kernel.changes == [{"Memory": GIB, "MemorySwap": GIB, "PidsLimit": 1024}]
    kernel.used = {"usage": GIB, "stats": {"inactive_file": 0}}
    left = resize_container(client, ID, limits(GIB, 1.0))
    assert "requested 1.0 GiB, but it uses 1.0 GiB" in left
    assert kernel.changes[1:] == [{"NanoCpus": 1_000_000_000, "PidsLimit": 1024}]
    kernel.used = {}
    assert "an unknown amount" in resize_container(client, ID, limits(GIB))
    assert resize_container(client, ID, limits(3 * GIB)) == "", "more than it was made with ends nobody"


def test_podman_is_asked_in_its_own_words_where_it_lacks_dockers(
    a_lame_engine: LameEngine, client: docker.APIClient
) -> None:
    kernel = Kernel(a_lame_engine)
    del a_lame_engine.routes[f"POST /containers/{ID}/update"]
    a_lame_engine.routes[f"POST /libpod/containers/{ID}/update"] = kernel.change
    assert resize_container(client, ID, limits(4 * GIB, 1.5)) == ""
    assert kernel.changes == [
        {
            "memory": {"limit": 4 * GIB, "swap": 4 * GIB},
            "cpu": {"period": 100_000, "quota": 150_000},
            "pids": {"limit": 1024},
        }
    ]


def test_an_engine_that_cannot_says_so(a_lame_engine: LameEngine, client: docker.APIClient) -> None:
    Kernel(a_lame_engine)
    a_lame_engine.routes[f"POST /containers/{ID}/update"] = lambda asked: asked.say(500, {"message": "not built in"})
    left = resize_container(client, ID, limits(4 * GIB, shm=Bytes(1 << 21)))
    assert left == (
        "shared memory of 2.0 MiB needs a restart; "
        "the engine does not change limits of a container that runs: not built in"
    )
