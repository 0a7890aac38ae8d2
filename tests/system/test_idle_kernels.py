"""The agent's decision whether a kernel is idle.

Real kernels behind relays, a real hook, the software GPU.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import warm_start
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.client.client import AgentClientError, query
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, softgpu_state_path
from jupyter_aliquot.provisioner.provisioner import AliquotProvisioner

SECONDS = 90.0
MIB = 1 << 20
GPU = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert (cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or cuda.cuCtxSetCurrent(context)
        or cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(96 << 20))) == 0
def use():
    cuda.cuCtxSetCurrent(context)
    assert cuda.cuMemsetD8_v2(pointer, 1, ctypes.c_size_t(1 << 20)) == 0
use()
"""


class Node:
    """An agent on a software GPU, and kernels that request their grants themselves."""

    def __init__(self, folder: Path, environment: dict[str, str], specs: KernelSpecManager) -> None:
        self.run_dir, self._folder, self._environment, self._specs = folder / "run", folder, environment, specs
        self._agent: subprocess.Popen[bytes] | warm_start.WarmProcess | None = None
        self._managers: list[KernelManager] = []
        self._clients: list[BlockingKernelClient] = []

    def start(self, *options: str) -> None:
        command = [
            sys.executable,
            "-m",
            "jupyter_aliquot.gpu_hook.agent",
            "--driver",
            "softgpu",
            "--softgpu-memory",
            "1GiB",
        ]
        with (self._folder / "agent.log").open("w") as log:
            files = {"env": self._environment, "stdout": log, "stderr": log}
            self._agent = warm_start.start(warm_start.AGENT, [*command[1:], *options], **files)
        self.until(self._answers)

    def _answers(self) -> bool:
        """Return whether the agent answers: its socket exists a moment before it listens."""
        try:
            return bool(query("status", runtime_dir=self.run_dir))
        except AgentClientError:
            return False

    def restart_agent(self) -> None:
        assert self._agent is not None
        self._agent.kill()
        self._agent.wait(SECONDS)
        (self.run_dir / "agent.sock").unlink()
        self.start()

    def kernel(self, name: str = "half", **config: Any) -> Kernel:
        manager = KernelManager(kernel_name=name, kernel_spec_manager=self._specs)
        self._managers.append(manager)
        manager.start_kernel(env={**self._environment})
        client = manager.blocking_client()
        client.start_channels(hb=False)
        self._clients.append(client)
        client.wait_for_ready(timeout=SECONDS)
        return Kernel(self, manager, client)

    def until(self, claim: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + SECONDS
        while not (found := claim()):
            assert time.monotonic() < deadline, (self._folder / "agent.log").read_text()[-3000:]
            time.sleep(0.02)
        return found

    def close(self) -> None:
        for client in self._clients:
            client.stop_channels()
        for manager in self._managers:
            if manager.has_kernel:
                manager.shutdown_kernel(now=True)
        if self._agent is not None:
            self._agent.send_signal(signal.SIGTERM)
            self._agent.wait(SECONDS)
        remove_state(softgpu_state_path(RuntimeDir(self.run_dir)))


class Kernel:
    def __init__(self, node: Node, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.node, self.manager, self.client = node, manager, client

    @property
    def id(self) -> str:
        provisioner = self.manager.provisioner
        assert isinstance(provisioner, AliquotProvisioner)
        return str(provisioner.kernel_id)

    def run(self, code: str) -> str:
        """Run a cell; return its output."""
        printed: list[str] = []

        def note(message: dict[str, Any]) -> None:
            if message["msg_type"] == "stream":
                printed.append(message["content"]["text"])

        reply = self.client.execute_interactive(code, timeout=SECONDS, output_hook=note, allow_stdin=False)
        assert reply["content"]["status"] == "ok", reply["content"]
        return "".join(printed)

    def status(self) -> dict[str, Any]:
        found = {k["kernel_id"]: k for k in query("status", runtime_dir=self.node.run_dir)["kernels"]}
        return dict(found[self.id])

    def is_here(self) -> bool:
        return self.id in {k["kernel_id"] for k in query("status", runtime_dir=self.node.run_dir)["kernels"]}

    def idle(self) -> tuple[float | None, str]:
        residency = self.status()["residency"]
        return residency["idle_seconds"], residency["idle_reason"]

    def quiet_seconds(self) -> float:
        """Return the seconds since its last cell ended."""
        activity = self.status()["activity"]
        return 0.0 if activity["work"] else time.time() - float(activity["since"])

    def becomes_idle(self, why: str = "nothing is open") -> None:
        self.node.until(lambda: self.idle()[0] is not None and self.idle()[1] == why)

    def becomes_busy(self, why: str) -> None:
        """Wait for a state that lasts as long as the activity: a late look sees it, too."""
        self.node.until(lambda: self.idle() == (None, why))

    def is_seen_busy_after_a_call(self, why: str) -> None:
        """Wait for a state that holds for a moment only.

        On a busy machine it takes several calls until a look comes in time.
        """

        def is_seen() -> bool:
            self.run("use()")
            while (found := self.idle())[0] is None and found[1] != why:
                time.sleep(0.02)
            return found == (None, why)

        self.node.until(is_seen)


@pytest.fixture
def specs(a_folder: Path) -> KernelSpecManager:
    folder = a_folder / "share" / "kernels"
    python = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    for name, config in (
        ("half", {"gpus": "0.5"}),
        ("bare", {"gpus": "0.5", "relay": False}),
        ("whole", {"gpus": "1"}),
    ):
        stanza = {"kernel_provisioner": {"provisioner_name": "aliquot", "config": config}}
        spec = {"argv": python, "display_name": name, "language": "python", "metadata": stanza}
        (folder / name).mkdir(parents=True)
        (folder / name / "kernel.json").write_text(json.dumps(spec))
    return KernelSpecManager(kernel_dirs=[str(folder)])


@pytest.fixture
def node(
    a_folder: Path, an_environment: dict[str, str], specs: KernelSpecManager, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Node]:
    for name, value in an_environment.items():
        monkeypatch.setenv(name, value)
    node = Node(a_folder, an_environment, specs)
    with contextlib.closing(node):
        yield node


LOOPS = """
import asyncio, pathlib, threading, time
def until(path):
    while not pathlib.Path(path).exists():
        use()
        time.sleep(0.05)
async def until_async(path):
    while not pathlib.Path(path).exists():
        use()
        await asyncio.sleep(0.05)
"""
JUST_NOW, SILENT = "it used its devices just now", "its cell runs without using the devices"


def test_what_goes_on_between_cells_is_seen(node: Node, a_folder: Path) -> None:
    """A thread, an asyncio task and a child process use the GPU while Jupyter says idle."""
    node.start()
    kernel = node.kernel()
    kernel.becomes_idle()
    kernel.run(GPU + LOOPS)
    child = a_folder / "child.py"
    child.write_text(GPU + LOOPS + "import sys\nuntil(sys.argv[1])\n")
    works = (
        "work = threading.Thread(target=until, args=({path!r},)); work.start()",
        "work = asyncio.ensure_future(until_async({path!r}))",
        f"import subprocess, sys; work = subprocess.Popen([sys.executable, {str(child)!r}, {{path!r}}])",
    )
    for number, work in enumerate(works):
        kernel.becomes_idle()
        over = a_folder / f"over-{number}"
        kernel.run(work.format(path=str(over)))
        node.until(lambda: kernel.status()["activity"]["work"] == 0)
        # The cell's own calls are no longer recent.
        node.until(lambda: kernel.quiet_seconds() > 2.5 and kernel.idle() == (None, JUST_NOW))
        over.touch()
    kernel.becomes_idle()
    kernel.run("work.wait()")


def test_a_cell_that_waits_for_its_user_is_idle_and_one_in_a_subshell_is_not(node: Node, a_folder: Path) -> None:
    node.start()
    kernel = node.kernel()
    kernel.run(GPU)
    kernel.becomes_idle()
    asked = kernel.client.execute("x = input()", allow_stdin=True)
    kernel.client.get_stdin_msg(timeout=SECONDS)
    kernel.becomes_idle("its cell waits for input")
    control = kernel.client.control_channel
    control.send(kernel.client.session.msg("create_subshell_request", {}))
    subshell = kernel.client.get_control_msg(timeout=SECONDS)["content"]["subshell_id"]
    over = a_folder / "over"
    code = f"import pathlib, time\nwhile not pathlib.Path({str(over)!r}).exists(): time.sleep(0.02)"
    content = {"silent": False, "store_history": False, "allow_stdin": True}
    message = kernel.client.session.msg("execute_request", {**content, "code": code})
    message["header"]["subshell_id"] = subshell
    kernel.client.shell_channel.send(message)
    kernel.becomes_busy(SILENT)
    over.touch()
    kernel.becomes_idle("its cell waits for input")
    kernel.client.input("on")
    while kernel.client.get_shell_msg(timeout=SECONDS)["parent_header"].get("msg_id") != asked:
        pass
    kernel.becomes_idle()


def test_a_long_silent_cell_is_idle_until_its_next_call(node: Node, a_folder: Path) -> None:
    node.start("--lease-silence", "1")
    kernel = node.kernel()
    kernel.run(GPU + LOOPS)
    for command in (
        "import os, time\nwhile not os.path.exists({0}): time.sleep(0.02)",
        "!while [ ! -e {0} ]; do sleep 0.02; done",
    ):
        over, seen = a_folder / f"over-{len(command)}", a_folder / f"seen-{len(command)}"
        kernel.client.execute(f"{command.format(repr(str(over)))}\nuntil({str(seen)!r})")
        kernel.becomes_idle(SILENT)
        assert kernel.status()["activity"]["work"] == 1
        over.touch()
        kernel.becomes_busy(JUST_NOW)
        seen.touch()
        kernel.becomes_idle()


def test_a_callback_that_keeps_a_stream_keeps_the_memory_where_it_is(node: Node, a_folder: Path) -> None:
    """No call reaches the driver, so the kernel counts as idle.

    A swap-out waits for the stream, and gives up.
    """
    over = a_folder / "over"
    code = (
        "import pathlib, time\n"
        "@ctypes.CFUNCTYPE(None, ctypes.c_void_p)\n"
        "def callback(_):\n"
        f"    while not pathlib.Path({str(over)!r}).exists(): time.sleep(0.01)\n"
        "assert cuda.cuLaunchHostFunc(None, callback, None) == 0"
    )
    node.start("--swap-drain", "200")
    kernel = node.kernel()
    kernel.run(GPU + code)
    kernel.becomes_idle()
    query("swap_out", runtime_dir=node.run_dir, kernel_id=kernel.id)
    node.until(lambda: kernel.status()["residency"]["refusal"])
    node.until(lambda: kernel.status()["residency"]["state"] == "resident")
    over.touch()
    kernel.run("assert cuda.cuCtxSynchronize() == 0")


def test_a_kernel_without_a_relay_is_judged_by_its_calls(node: Node) -> None:
    node.start("--lease-silence", "3")
    kernel = node.kernel("bare")
    kernel.run(GPU)
    kernel.is_seen_busy_after_a_call(JUST_NOW)
    kernel.is_seen_busy_after_a_call("no relay tells of its cells")
    kernel.becomes_idle("no relay tells of its cells")
    assert kernel.status()["activity"] is None


def test_a_restarted_kernel_is_idle_again_whatever_it_did_before(node: Node) -> None:
    node.start()
    kernel = node.kernel()
    kernel.run(GPU + LOOPS + "threading.Thread(target=until, args=('/nowhere',), daemon=True).start()")
    kernel.becomes_busy(JUST_NOW)
    kernel.client.execute("while True: pass")
    node.until(lambda: kernel.status()["activity"]["work"] == 1)
    kernel.manager.restart_kernel(now=True)
    kernel.becomes_idle()
    assert kernel.status()["activity"]["work"] == 0
    kernel.client.wait_for_ready(timeout=SECONDS)
    kernel.run(GPU)
    kernel.is_seen_busy_after_a_call(JUST_NOW)
    kernel.becomes_idle()


def test_an_agent_that_comes_back_finds_an_idle_kernel_idle(node: Node) -> None:
    """Its hook registers its table again and gets credit: that is no call."""
    node.start()
    kernel = node.kernel()
    kernel.run(GPU)
    kernel.becomes_idle()
    node.restart_agent()
    node.until(lambda: kernel.is_here() and kernel.status()["devices"][0]["charged_bytes"])
    assert kernel.idle()[1] != JUST_NOW
    kernel.becomes_idle()


def test_an_idle_kernel_returns_what_its_framework_keeps_where_another_shares_the_device(
    node: Node, a_folder: Path, an_environment: dict[str, str]
) -> None:
    """The stand-in keeps real memory of the software GPU.

    The status shows the amount that came back, until it is used again.
    """
    modules = a_folder / "modules"
    modules.mkdir()
    begin = GPU.replace("cuda.cu", "driver.cu").replace("cuda = ctypes", "driver = ctypes")
    (modules / "torch.py").write_text(
        begin + "class cuda:\n"
        "    kept = 96 << 20\n"
        "    is_initialized = staticmethod(lambda: True)\n"
        "    device_count = staticmethod(lambda: 1)\n"
        "    memory_reserved = staticmethod(lambda device=None: cuda.kept)\n"
        "    @staticmethod\n"
        "    def empty_cache():\n"
        "        driver.cuCtxSetCurrent(context)\n"
        "        assert driver.cuMemFree_v2(pointer) == 0\n"
        "        cuda.kept = 0\n"
    )
    text = (
        (modules / "torch.py").read_text().replace("cuda.cu", "driver.cu").replace("cuda = ctypes", "driver = ctypes")
    )
    (modules / "torch.py").write_text(text)
    an_environment["PYTHONPATH"] = str(modules)
    node.start("--trim-after", "1")
    kernel = node.kernel()
    kernel.run("import torch")
    kernel.becomes_idle()
    assert kernel.status()["trimmed"] is None, "nobody could use it"
    node.kernel()
    node.until(lambda: (kernel.status()["trimmed"] or {}).get("bytes") == 96 * MIB)
    node.until(lambda: kernel.status()["residency"]["state"] == "trimmed")
    assert kernel.status()["devices"][0]["charged_bytes"] == 0
    assert kernel.run("print(torch.cuda.kept)") == "0\n"
    kernel.run(GPU)
    node.until(lambda: kernel.status()["residency"]["state"] == "resident")


def test_a_cell_that_waits_for_another_kernels_turn_says_so(node: Node, a_folder: Path) -> None:
    """Two kernels each hold more than half of the device: the second works on, the first waits."""
    node.start("--overcommit", "2", "--lease-hold", "0", "--lease-quantum", "3600")
    most = GPU.replace("96 << 20", "600 << 20")
    first, second, over = node.kernel("whole"), node.kernel("whole"), a_folder / "over"
    first.run(most)
    first.becomes_idle()
    second.run(most + LOOPS + f"threading.Thread(target=until, args=({str(over)!r},)).start()")
    assert first.status()["residency"]["state"] == "swapped"
    cell = first.client.execute("use()\nprint('used')")
    told = first.client.get_iopub_msg(timeout=SECONDS)
    while told["msg_type"] != "stream":
        told = first.client.get_iopub_msg(timeout=SECONDS)
    assert told["parent_header"]["msg_id"] == cell
    assert (told["content"]["name"], told["content"]["text"][:33]) == ("stderr", "[Aliquot: waiting for GPU memory:")
    over.touch()
    shown = []
    while told["msg_type"] != "status" or told["parent_header"]["msg_id"] != cell:
        shown.append(told)
        told = first.client.get_iopub_msg(timeout=SECONDS)
    assert [each["msg_type"] for each in shown][-2:] == ["clear_output", "stream"], "the line goes before the output"
    assert (shown[-2]["content"], shown[-1]["content"]["text"]) == ({"wait": False}, "used\n")
    first.node.until(lambda: first.status()["activity"]["work"] == 0)
    first.node.until(lambda: first.status()["residency"]["state"] == "resident")
