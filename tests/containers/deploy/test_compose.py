"""The images of deploy/ are built without a registry.

Their services give a notebook's cell a quarter of a GPU.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from tests.containers.container_engines import Engine
    from tests.containers.deploy.composed import ComposeError, read_compose
    from tests.containers.deploy.conftest import Deployment
    from tests.containers.deploy.server import Server
else:
    from composed import ComposeError, read_compose

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
# With the driver's own interface, for the image contains only a kernel.
CELL = """
import ctypes, json, os
cuda = ctypes.CDLL("libcuda.so.1")
count, free, total, pointer = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(64 << 20)) == 0
too_much = cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(total.value))
open("mine", "w").write("kept")
secrets = [name for name, value in os.environ.items() if "a-token-of-this-test" in value]
print(json.dumps([count.value, total.value, too_much, os.getcwd(), os.getuid(), secrets]))
"""


@pytest.mark.soak(alone="builds all images of the deployment")
@pytest.mark.timeout(900)
def test_the_composed_services_run_a_cell_on_a_quarter_of_a_gpu(
    deploy: Callable[[Engine], Deployment], a_docker: Engine
) -> None:
    run_a_cell(deploy(a_docker))


@pytest.mark.soak(alone="builds all images once more")
@pytest.mark.timeout(900)
def test_they_do_on_podman_too(deploy: Callable[[Engine], Deployment], a_podman: Engine) -> None:
    run_a_cell(deploy(a_podman))


def run_a_cell(deployed: Deployment) -> None:
    services, server = deployed.services, deployed.server
    services.up()
    status = "/aliquot/api/v1/status"
    services.wait_for("the gateway and its agent", lambda: agent_of(server.ask("GET", status)) == "ok")
    kernel = server.ask("POST", "/api/kernels", {"name": "python.gpu-0.25"})["id"]
    services.wait_for("the kernel", lambda: state_of(server, kernel) == "on_gpu")
    devices, total, too_much, folder, user, secrets = json.loads(server.execute(kernel, CELL))
    [device] = server.ask("GET", "/aliquot/api/v1/status")["devices"]
    assert (devices, total, too_much) == (1, device["memory_bytes"] // 4 // (2 << 20) * (2 << 20), 2)
    assert (folder, user, secrets) == ("/home/user", 1000, [])
    [home] = (deployed.folder / "homes").iterdir()
    assert (home / "mine").read_text() == "kept"
    [report] = services.wait_for("its use of the GPU", lambda: using(server, 64 << 20))
    assert (report["name"], report["gpus"], report["interception"]) == ("python.gpu-0.25", 0.25, "active")
    server.execute(kernel, "x = 42")
    services.replace("gateway")
    services.wait_for("the next gateway", lambda: agent_of(server.ask("GET", "/aliquot/api/v1/status")) == "ok")
    assert server.execute(kernel, "print(x)") == "42"
    server.ask("DELETE", f"/api/kernels/{kernel}")
    assert server.ask("GET", "/api/kernels") == []


def using(server: Server, least: int) -> list[Any]:
    kernels = server.ask("GET", "/aliquot/api/v1/status")["kernels"]
    return [kernel for kernel in kernels if kernel["used_bytes"] >= least]


def agent_of(status: Any) -> str | None:
    return None if status is None else str(status["node"]["agent"])


def state_of(server: Server, kernel_id: str) -> str:
    report = server.ask("GET", f"/aliquot/api/v1/kernels/{kernel_id}")
    assert report["state"] != "ended", report["reason"]
    return str(report["state"])


def test_the_compose_file_asks_for_a_token() -> None:
    with pytest.raises(ComposeError, match="ALIQUOT_TOKEN"):
        read_compose(DEPLOY / "compose.yaml", {})


@pytest.mark.parametrize("files", [("compose.yaml",), ("compose.yaml", "compose.nvidia.yaml")])
def test_a_compose_tool_reads_the_file_as_these_tests_do(files: tuple[str, ...]) -> None:
    if importlib.util.find_spec("podman_compose") is None:
        pytest.skip("podman-compose is not installed: pip install podman-compose")
    chosen = [word for name in files for word in ("-f", str(DEPLOY / name))]
    command = [sys.executable, "-m", "podman_compose", *chosen, "config"]
    others = {name: value for name, value in os.environ.items() if not name.startswith("ALIQUOT_")}
    environment = {**others, "ALIQUOT_TOKEN": "-"}
    told = yaml.safe_load(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)["services"]
    ours = read_compose(DEPLOY / "compose.yaml", {"ALIQUOT_TOKEN": "-"})
    assert set(told) == set(ours.started())
    for name, service in told.items():
        want = dict(ours.services[name])
        if len(files) > 1 and name == "agent":
            assert service["deploy"]["resources"]["reservations"]["devices"][0]["driver"] == "nvidia"
            want["command"] = [word.replace("softgpu", "nvidia") for word in want["command"]]
        for field in ("image", "command", "pid", "ipc", "network_mode", "cap_add", "volumes", "environment"):
            assert service.get(field) == want.get(field), (name, field)


def test_no_image_of_the_services_is_pulled_from_a_registry() -> None:
    """A registry's images of these names are another project's."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert {name: service["pull_policy"] for name, service in services.items()} == dict.fromkeys(services, "never")


def test_aliquot_comes_into_the_images_as_the_wheel_of_this_tree_and_never_by_name() -> None:
    installs = re.findall(r"pip .*\binstall\b(.*)", (DEPLOY / "Dockerfile").read_text())
    named = [words for words in installs if "jupyter_aliquot" in words]
    assert named
    assert all("/wheels/jupyter_aliquot-*.whl" in words for words in named)
    assert not any(re.search(r"\saliquot\b", words) for words in named)


def test_the_nvidia_variant_changes_services_that_there_are() -> None:
    variant = yaml.safe_load((DEPLOY / "compose.nvidia.yaml").read_text())["services"]
    usual = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert set(variant) <= set(usual)
    want = [word.replace("softgpu", "nvidia") for word in usual["agent"]["command"]]
    assert variant["agent"]["command"] == want
    assert "UNTESTED" in (DEPLOY / "compose.nvidia.yaml").read_text()
