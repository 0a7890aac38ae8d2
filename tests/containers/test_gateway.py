"""The whole of it, on each engine: a gateway, an agent, relays, and kernels of the image catalogue in containers."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import docker
import pytest

if TYPE_CHECKING:
    from tests.containers.container_engines import WHOLE_IMAGE, Engine
else:
    from container_engines import WHOLE_IMAGE, Engine

MIB = 1 << 20
USER = 4321
# What a notebook does with CUDA, without a framework: a context, how much there is, an allocation.
GPU = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == cuda.cuCtxSetCurrent(context) == 0
def allocate(mib):
    pointer = ctypes.c_uint64()
    return cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(mib << 20))
def memory():
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return total.value >> 20
"""
CONFIG = """
c.AliquotProvisioner.relay = True
c.ImageCatalogue.images = [{images}]
c.KernelContainers.engine = {engine!r}
c.KernelContainers.cdi_dirs = [{cdi!r}]
c.SharedFolders.roots = [{homes!r}]
c.SharedFolders.home = {homes!r} + "/{{user}}"
c.SharedFolders.make_homes = True
c.SharedFolders.home_owner = "{user}:{user}"
"""


def survival() -> ModuleType:
    """What the tests of process kernels play with: gateways that come and go, and tabs that reconnect."""
    path = Path(__file__).parents[1] / "system" / "survival" / "conftest.py"
    spec = importlib.util.spec_from_file_location("survival_of_processes", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


parts = survival()


class ContainerNode(parts.Node):  # type: ignore[name-defined, misc]
    """A machine whose gateway starts containers on one engine, with a software GPU of 4 GiB."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        super().__init__(folder)
        self.engine = engine
        self.homes = folder / "homes"
        self.homes.mkdir()
        folder.chmod(0o755)
        image = {"name": "pytorch", "display_name": "PyTorch", "version": "2.11", "image": WHOLE_IMAGE, "pull": "never"}
        small = {"name": "small", "image": WHOLE_IMAGE, "pull": "never", "limits": {"memory": "128MiB"}}
        images = json.dumps(image | {"user": f"{USER}:{USER}"}) + ", " + json.dumps(small)
        self.config = folder / "gateway_config.py"
        self.config.write_text(
            CONFIG.format(images=images, engine=engine.url, cdi=str(engine.cdi_dir), homes=str(self.homes), user=USER)
        )
        self.start()

    def start(self) -> None:
        self.start_agent("4GiB", "--cdi-dir", str(self.engine.cdi_dir), "--library-dir", str(self.folder / "libraries"))

    def gateway(self) -> Any:
        return self.serve(f"--config={self.config}").wait_until_up()

    def next(self, gateway: Any) -> Any:
        return self.succeed(gateway, f"--config={self.config}")

    def box(self, kernel_id: str) -> Any:
        """Its container, as the engine describes it."""
        return self.engine.client().containers.get(f"aliquot-{kernel_id}")

    def box_id(self, kernel_id: str) -> str:
        """Empty between one container and the next."""
        with contextlib.suppress(docker.errors.APIError):  # Podman answers 500 for what is being removed
            return str(self.box(kernel_id).id)
        return ""

    def boxes(self) -> list[str]:
        labels = {"label": f"aliquot.dev/runtime-dir={self.runtime.path}"}
        return [str(box.name) for box in self.engine.client().containers.list(all=True, filters=labels)]

    def close(self) -> None:
        super().close()
        for name in self.boxes():
            self.engine.client().containers.get(name).remove(force=True)


@pytest.fixture
def a_node(an_engine: Engine) -> Iterator[ContainerNode]:
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    node = ContainerNode(folder, an_engine)
    yield node
    node.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def open_tab() -> Iterator[Callable[..., Any]]:
    tabs: list[Any] = []

    def open_one(gateway: Any, kernel_id: str) -> Any:
        tabs.append(parts.Tab(gateway, kernel_id))
        return tabs[-1]

    yield open_one
    for tab in tabs:
        tab.close()


def test_a_kernel_of_the_catalogue_has_a_gpu_of_its_size_and_survives_gateway_and_agent(
    a_node: ContainerNode, open_tab: Callable[..., Any]
) -> None:
    gateway = a_node.gateway()
    kernel_id = gateway.start_kernel("pytorch.gpu-0.25")
    tab = open_tab(gateway, kernel_id)
    assert tab.run(f"{GPU}\nprint(memory(), allocate(900), allocate(200))") == "1024 0 2", "a quarter; out of memory"
    assert tab.run("import os; print(os.getuid(), os.environ['HOME'], os.getcwd())").split()[0] == str(USER)
    box = a_node.box(kernel_id)
    labels = box.attrs["Config"]["Labels"]
    assert labels["aliquot.dev/kernel-id"] == kernel_id
    assert labels["aliquot.dev/kernelspec"] == "pytorch.gpu-0.25"
    assert labels["aliquot.dev/gateway"]
    assert box.attrs["HostConfig"]["Memory"] > 0
    assert [k["interception"] for k in parts.query("status", runtime_dir=a_node.runtime.path)["kernels"]] == ["holds"]

    cell = tab.execute("import time\nfor n in range(40):\n    print('line', n, flush=True)\n    time.sleep(0.05)")
    tab.wait_for_text("line 3\n")
    a_node.kill_agent()
    gateway.stop(signal.SIGKILL)
    a_node.start()
    after = a_node.next(gateway)
    assert after.kernel_ids() == {kernel_id}
    tab.reconnect(after)
    assert tab.text(cell) == "".join(f"line {n}\n" for n in range(40))
    assert tab.run("print(allocate(200), allocate(100))") == "2 0", "as before, by the new agent"
    assert a_node.box(kernel_id).id == box.id
    assert a_node.held() == {kernel_id: 25}

    after.call("DELETE", f"/api/kernels/{kernel_id}")
    parts.wait_until(lambda: (a_node.boxes(), a_node.held(), a_node.relays()) == ([], {}, {}))
    assert after.ended(kernel_id)["code"] == "user"


def test_a_kernel_is_interrupted_and_restarted_and_its_lack_of_memory_is_said(
    a_node: ContainerNode, open_tab: Callable[..., Any]
) -> None:
    gateway = a_node.gateway()
    kernel_id = gateway.start_kernel("small")
    tab = open_tab(gateway, kernel_id)
    cell = tab.execute("import time\nprint('begun', flush=True)\ntime.sleep(600)")
    tab.wait_for_text("begun")
    gateway.call("POST", f"/api/kernels/{kernel_id}/interrupt")
    assert tab.find(cell, "execute_reply")["content"]["ename"] == "KeyboardInterrupt"
    first = a_node.box(kernel_id).id

    gateway.call("POST", f"/api/kernels/{kernel_id}/restart")
    assert tab.reconnect(gateway).run("print('again' if 'cell' not in dir() else 'still')") == "again"
    second = a_node.box(kernel_id).id
    assert second != first
    assert a_node.boxes() == [f"aliquot-{kernel_id}"]

    tab.execute("block = b'x' * (400 << 20)")
    parts.wait_until(lambda: a_node.box_id(kernel_id) not in ("", first, second))
    kernels = gateway.call("GET", "/aliquot/api/kernels")["kernels"]
    (crash,) = [kernel["last_crash"] for kernel in kernels if kernel["id"] == kernel_id]
    assert crash["code"] == "oom"
    assert "of 128 MiB host memory" in crash["message"]
    gateway.call("DELETE", f"/api/kernels/{kernel_id}")
    parts.wait_until(lambda: (a_node.boxes(), a_node.relays()) == ([], {}))
