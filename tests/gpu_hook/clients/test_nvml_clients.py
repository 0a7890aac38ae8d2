"""nvidia-ml-py, nvitop and jupyterlab-nvdashboard, unmodified: in a kernel they show the kernel's own GPU.

What they show agrees with the agent's ledger and with CUDA.
"""

from __future__ import annotations

import contextlib
import json
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import websocket
from ports import free_port

MIB = 1 << 20
_OTHER_EXTENSIONS = (
    "jupyter_aliquot.gateway",
    "jupyterlab",
    "jupyter_lsp",
    "jupyter_server_terminals",
    "notebook_shim",
)
ROOT = Path(__file__).parents[3]
DASHBOARD = ROOT / "build" / "nvdashboard"
needs_dashboard = pytest.mark.skipif(
    not (DASHBOARD / "jupyterlab_nvdashboard").is_dir(),
    reason="jupyterlab-nvdashboard is not in build/nvdashboard: tools/setup.py fetches it for Python 3.11 and newer",
)
_PYNVML = """
import json, pynvml as n
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
v1, v2 = n.nvmlDeviceGetMemoryInfo(h), n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2)
assert (v1.total, v1.used, v1.free) == (v2.total, v2.used, v2.free)
rows = [[p.pid, p.usedGpuMemory] for p in n.nvmlDeviceGetComputeRunningProcesses(h)]
print(json.dumps([v1.total, v1.used, v1.free, sorted(rows)]))
"""
_NVITOP = """
import json, nvitop
device = nvitop.Device(0)
with device.oneshot():
    rows = sorted([pid, process.gpu_memory()] for pid, process in device.processes().items())
    print(json.dumps([device.memory_total(), device.memory_used(), device.memory_free(), rows]))
"""
_LOAD = """
import nvitop
print(nvitop.Device(0).gpu_utilization())
"""
_NVITOP_ALL = """
import json, nvitop
names = [device.name() for device in nvitop.Device.all()]
shots = [device.as_snapshot() for device in nvitop.Device.all()]
cuda = [[device.cuda_index, device.index, device.memory_total()] for device in nvitop.CudaDevice.all()]
print(json.dumps([names, [shot.memory_percent for shot in shots], cuda]))
"""
_DASHBOARD = """
import json
from jupyterlab_nvdashboard.apps import gpu
class Page:
    prev_throughput = None
    def write_message(self, text): print(text)
names = "GPUUtilization", "GPUUsage", "GPUResource", "PCIStats", "NVLinkThroughput"
page = Page()
for name in names: getattr(gpu, name + "WebSocketHandler").send_data(page)
"""


@pytest.mark.parametrize("code", [_PYNVML, _NVITOP], ids=["nvidia-ml-py", "nvitop"])
def test_memory_and_processes_agree_with_cuda_and_the_ledger(a_place: Any, code: str) -> None:
    holder, idle = a_place.program(), a_place.program()
    holder(f"alloc({96 * MIB})")
    want_rows = sorted([[holder.pid, 96 * MIB], [idle.pid, 0]])
    want = [a_place.total_bytes, 96 * MIB, a_place.total_bytes - 96 * MIB, want_rows]
    a_place.until(lambda: a_place.run(code) == want)
    assert holder("info()") == idle("info()") == [0, want[2], want[0]]
    if a_place.is_hooked:
        assert a_place.ledger() == 96 * MIB


def test_other_kernels_are_not_seen(make_kernel: Callable[[str], Any]) -> None:
    mine, other = make_kernel("k"), make_kernel("other")
    holder, stranger = mine.program(), other.program()
    holder(f"alloc({32 * MIB})")
    stranger(f"alloc({64 * MIB})")
    mine.until(lambda: mine.run(_NVITOP)[3] == [[holder.pid, 32 * MIB]])
    other.until(lambda: other.run(_NVITOP)[3] == [[stranger.pid, 64 * MIB]])
    assert mine.run(_NVITOP)[:3] == [512 * MIB, 32 * MIB, 480 * MIB]


def test_load_is_the_kernels_own(make_kernel: Callable[[str], Any]) -> None:
    busy, idle = make_kernel("k"), make_kernel("other")
    program = busy.program()
    busy.until(lambda: program("spin(500)") == 0 and busy.run(_LOAD) > 10)
    assert idle.run(_LOAD) == 0


def test_nvitop_lists_all_devices_and_cudas(a_place: Any) -> None:
    names, percents, cuda = a_place.run(_NVITOP_ALL)
    assert names == ["Aliquot Software GPU"] * 2
    want_full = 100.0  # the device that the kernel was not granted
    assert percents == ([0.0, want_full] if a_place.is_hooked else [0.0, 0.0])
    assert cuda == [[i, i, a_place.total_bytes] for i in range(1 if a_place.is_hooked else 2)]


def test_nvitop_prints_its_table_once(a_place: Any) -> None:
    holder = a_place.program()
    holder(f"alloc({96 * MIB})")
    want_memory = f"96.00MiB / {a_place.total_bytes // MIB}"

    def show() -> str:
        table, _ = a_place.start([sys.executable, "-m", "nvitop", "--once", "--no-unicode"]).communicate(timeout=40)
        return str(table) if want_memory in table else ""

    table = a_place.until(show)
    assert any(str(holder.pid) in line and "96.00MiB" in line for line in table.splitlines())


@needs_dashboard
def test_nvdashactivity_pages_pages_agree_with_cuda(a_place: Any) -> None:
    holder = a_place.program()
    holder(f"alloc({96 * MIB})")
    want_usage = {"memory_usage": [96 * MIB], "total_memory": [a_place.total_bytes]}

    def show() -> list[Any]:
        output, _ = a_place.start([sys.executable, "-c", _DASHBOARD], env={"PYTHONPATH": str(DASHBOARD)}).communicate()
        pages = [json.loads(line) for line in output.splitlines()]
        return pages if pages[1]["memory_usage"][0] == 96 * MIB else []

    load, usage, resource, pci, links = a_place.until(show)
    assert {name: values[:1] for name, values in usage.items()} == want_usage
    assert load == {"gpu_utilization": [0, 0]}
    assert resource["gpu_memory_individual"] == usage["memory_usage"]
    assert (pci["pci_tx"], links["nvlink_rx"]) == ([0, 0], [0, 0])


@pytest.fixture
def a_server(a_place: Any, a_folder: Path) -> Iterator[str]:
    """Start a Jupyter Server with nvdashboard alone; return its address."""
    port = free_port()
    extensions = {"jupyterlab_nvdashboard": True} | dict.fromkeys(_OTHER_EXTENSIONS, False)
    command = [sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root", f"--port={port}"]
    command += ["--IdentityProvider.token=t", f"--ServerApp.root_dir={a_folder}", "--ServerApp.port_retries=0"]
    command += [f"--ServerApp.jpserver_extensions={extensions!r}"]
    env = {"PYTHONPATH": str(DASHBOARD), "JUPYTER_RUNTIME_DIR": str(a_folder), "JUPYTER_CONFIG_DIR": str(a_folder)}
    with (a_folder / "server.log").open("w") as log:
        process = a_place.start(command, env=env, stderr=log)

    def answers() -> bool:
        assert process.poll() is None, (a_folder / "server.log").read_text()
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/api"):
            return True
        return False

    a_place.until(answers)
    yield f"127.0.0.1:{port}/nvdashboard"
    process.terminate()
    process.wait(20)


@needs_dashboard
def test_nvdashboard_serves_a_live_jupyter_server(a_place: Any, a_server: str, a_folder: Path) -> None:
    holder = a_place.program()
    holder(f"alloc({96 * MIB})")
    with urllib.request.urlopen(f"http://{a_server}/accelerators/check?token=t") as answer:
        assert json.load(answer)["ngpus"] == 2
    heard = {}
    for page in ("gpu_utilization", "gpu_usage", "gpu_resource", "pci_stats", "nvlink_throughput"):
        stream = websocket.create_connection(f"ws://{a_server}/{page}?token=t", timeout=40)
        assert json.loads(stream.recv()) == {"status": "connected"}
        stream.send(json.dumps({"updateFrequency": 50, "isPaused": False}))
        if page == "gpu_usage":
            a_place.until(lambda stream=stream: json.loads(stream.recv())["memory_usage"][0] == 96 * MIB)
        heard[page] = [json.loads(stream.recv()) for _ in range(2)][-1]
        stream.close()
    assert heard["gpu_usage"]["total_memory"][0] == a_place.total_bytes
    assert heard["gpu_resource"]["gpu_memory_individual"][0] == 96 * MIB
    assert "Traceback" not in (a_folder / "server.log").read_text()
