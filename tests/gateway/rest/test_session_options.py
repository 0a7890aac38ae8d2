"""CPUs, memory and folders beside a size: what a user may choose, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

from jupyter_aliquot.gateway.containers.planner import ContainerStart
from jupyter_aliquot.gateway.kernels.kernel import ManagedKernel
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, HostPart, Request

from .conftest import Ask
from .test_contract import check

PATH = "/aliquot/api/v1/session-options"
GIB = 1 << 30
_UNNAMED = ("x.gpu-1", "a.with-b", "none")  # names of folders that no kernelspec's name can carry


@pytest.fixture
def host(tmp_path: Path) -> Path:
    host = Path(os.path.realpath(tmp_path)) / "host"
    for name in ("homes/alice", "sets", "more", *_UNNAMED):
        (host / name).mkdir(parents=True)
    return host


@pytest.fixture
def jp_server_config(jp_server_config: Config, host: Path) -> Config:
    images = [
        {"name": "open", "image": "registry.example/open:1", "version": "1"},
        {"name": "fixed", "image": "registry.example/open:1", "limits": {"cpus": 1}},
    ]
    jp_server_config.ImageCatalogue = Config({"images": images})
    folders = [
        {"name": name, "source": f"{host}/{name}", "target": f"/data/{name}", "users": ["alice"]}
        for name in ("sets", "more", *_UNNAMED)
    ]
    jp_server_config.SharedFolders = Config(
        {"roots": [str(host)], "home": f"{host}/homes/{{user}}", "folders": folders}
    )
    sizes = {"0.25": {"cpus": 0.5, "memory": "1GiB", "most_cpus": 1, "most_memory": "2GiB"}}
    jp_server_config.HostLimits = Config({"sizes": sizes})
    return jp_server_config


async def options(ask: Ask, kernelspec: str, status: int = 200, **query: Any) -> Any:
    answer = await ask("alice", "GET", PATH, params={"kernelspec": kernelspec, **query})
    assert answer.status == status, answer.body
    return check(answer, PATH)


async def test_a_choice_is_answered_with_its_name(ask: Ask) -> None:
    found = await options(ask, "open.gpu-0.25-low", cpus="1", ram="2GiB", folders="sets")
    assert found["name"] == "open.gpu-0.25-1cpu-2ram-low.with-sets"
    assert found["cpus"] == {"least": 0.5, "most": 1, "by_default": 0.5, "step": 0.5}
    assert found["ram_bytes"] == {"least": GIB, "most": 2 * GIB, "by_default": GIB}
    assert found["folders"] == ["sets", "more"]
    assert (found["image"], found["reason"], found["problem"]) == ("registry.example/open:1", None, None)
    spec = (await ask("alice", "GET", f"api/kernelspecs/{found['name']}")).json["spec"]
    assert spec["metadata"]["aliquot"] | {"cpus": "1", "ram": "2GiB", "folders": "sets"} == spec["metadata"]["aliquot"]
    assert spec["display_name"].endswith("0.25 GPU · 1 CPU · 2 GiB RAM · low · with sets")


async def test_a_stale_choice_has_a_reason_and_the_nearest_allowed_one(ask: Ask) -> None:
    found = await options(ask, "open.gpu-0.25-64cpu-512ram.with-gone")
    assert "64 CPUs, but a kernel of this size may have 0.5 to 1 CPUs here" in found["problem"]
    assert found["chosen"] == {"cpus": 1, "ram_bytes": 2 * GIB, "folders": []}
    assert found["name"] == "open.gpu-0.25-1cpu-2ram.with-none"
    fixed = await options(ask, "fixed.gpu-0.25")
    assert (fixed["cpus"], fixed["ram_bytes"]["most"]) == (None, 2 * GIB)


@pytest.mark.parametrize("folder", _UNNAMED)
async def test_a_folder_that_no_name_carries_is_not_offered(ask: Ask, folder: str) -> None:
    found = await options(ask, "open.gpu-0.25", folders=f"{folder},sets")
    assert (found["folders"], found["chosen"]["folders"]) == (["sets", "more"], ["sets"])
    assert f"Requested the folder {folder}, but the folders sets, more" in found["problem"]


async def test_every_choice_is_answered_with_a_name_that_can_be_started_or_refused(ask: Ask) -> None:
    assert (await options(ask, "open.gpu-0.25", folders="sets,sets"))["name"] == "open.gpu-0.25.with-sets"
    for ram in ("9" * 400, "99999999999GiB"):
        answer = await ask("alice", "GET", PATH, params={"kernelspec": "open.gpu-0.25", "ram": ram})
        assert (answer.status, "Choose less than" in answer.json["message"]) == (400, True), answer.body


async def test_a_process_that_nothing_limits_is_offered_nothing(ask: Ask) -> None:
    found = await options(ask, "python3.gpu-0.25", cpus="1")
    assert (found["cpus"], found["ram_bytes"], found["folders"]) == (None, None, None)
    assert "own account, which cannot limit" in found["reason"]
    assert found["name"] == "python3.gpu-0.25"
    for name in ("python3", "python3.gpu-0.25-1.3cpu", "nothing.gpu-0.25"):
        await options(ask, name, 400 if name == "python3" else 404)
    await options(ask, "open.gpu-0.25", 400, cpus="many")


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("python3.gpu-0.25-1cpu", "own account, which cannot limit their CPUs and memory"),
        ("open.gpu-0.25-8cpu", "may have 0.5 to 1 CPUs here"),
        ("open.gpu-0.25-64ram", "may have 1.0 GiB to 2.0 GiB here"),
        ("open.gpu-0.25.with-gone", "the folders sets, more can be chosen here"),
        ("fixed.gpu-0.25-1cpu", "cannot be chosen here"),
    ],
)
async def test_a_start_beyond_the_bounds_is_refused_with_the_reason(ask: Ask, name: str, want: str) -> None:
    answer = await ask("alice", "POST", "api/kernels", body={"name": name})
    assert (answer.status, want in answer.json["message"]) == (400, True), answer.body


@pytest.mark.parametrize(
    ("name", "hundredths", "want"),
    [
        ("open.gpu-1-8cpu-64ram.with-sets", 25, "open.gpu-0.25-1cpu-2ram.with-sets"),
        ("open.gpu-0.25-1cpu-2ram.with-none", 100, "open.gpu-1.with-none"),
        ("fixed.gpu-1-8cpu", 25, "fixed.gpu-0.25"),
    ],
)
async def test_another_size_takes_a_name_that_can_be_started(
    a_server: ServerApp, name: str, hundredths: int, want: str
) -> None:
    services, specs = a_server.kernel_manager.services, a_server.kernel_spec_manager
    kernel = ManagedKernel(services=services, kernel_name=name, kernel_spec_manager=specs)
    grant = Grant("k", "alice", Request(GpuShare(hundredths)), "node", (), "/nowhere", (), 1)
    kernel.take_grant(grant)
    assert kernel.kernel_name == want


async def test_a_container_gets_the_chosen_part_of_its_host(a_server: ServerApp, host: Path) -> None:
    planner = a_server.kernel_manager.services.containers
    chosen = HostPart(1, Bytes(2 * GIB), ("sets",))
    plan = await planner.plan(ContainerStart("open.gpu-0.25", "alice", GpuShare(25), chosen))
    assert (plan.limits.cpus, plan.limits.memory) == (1, 2 * GIB)
    assert [mount.source for mount in plan.mounts] == [f"{host}/homes/alice", f"{host}/sets"]
    assert planner.limits_of("open.gpu-0.25", GpuShare(25), chosen).cpus == 1, "also at a resize of the GPU"
