"""Kernels in containers for tests: a folder, a connection file, a plan of the test image, and a client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any

from jupyter_client.blocking.client import BlockingKernelClient

from jupyter_aliquot.provisioner.containers.plan import ContainerPlan, Mount
from jupyter_aliquot.provisioner.engine.runtime import ContainerRuntime
from jupyter_aliquot.provisioner.engine.settings import ContainerSettings
from jupyter_aliquot.provisioner.launch_spec import LaunchSpec
from jupyter_aliquot.provisioner.relay.wire.files import RelayRecord
from jupyter_aliquot.provisioner.resources import KernelProcess
from jupyter_aliquot.provisioner.runtime.base import Launch
from jupyter_aliquot.provisioner.terminations import ProcessEnd

if TYPE_CHECKING:
    from tests.containers.container_engines import HOST_FOLDERS, Engine
else:
    from container_engines import HOST_FOLDERS, Engine

REPLY_SECONDS = 90.0
KERNEL = (sys.executable, "-m", "ipykernel_launcher", "-f")
# Writes nothing into the folders that are mounted from the host.
QUIET = (("PYTHONDONTWRITEBYTECODE", "1"),)


def a_plan(engine: Engine, **changes: Any) -> ContainerPlan:
    """Return a plan of the test image with the host's folders that it needs, hardened as any."""
    fields: dict[str, Any] = {
        "image": engine.image,
        "pull": "never",
        "mounts": tuple(Mount(folder, folder) for folder in HOST_FOLDERS),
        "env": QUIET,
    }
    fields["mounts"] += changes.pop("more_mounts", ())
    return ContainerPlan(**{**fields, **changes})


@dataclass
class ContainerKernels:
    """Kernels on one engine without a relay; the object starts them, and ends those that are left."""

    engine: Engine
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="aqk-", dir="/tmp")))
    settings: ContainerSettings | None = None
    kernels: list[StartedKernel] = field(default_factory=list)
    launched: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.do = self.loop.run_until_complete
        self.runtime = ContainerRuntime(self.settings or ContainerSettings(self.engine.url))

    def launch(self, plan: ContainerPlan, argv: tuple[str, ...] = (), **more: Any) -> Launch:
        kernel_id = str(uuid.uuid4())
        self.launched.append(kernel_id)
        folder = self.folder / "run" / "relays" / kernel_id[:8] / "k"
        folder.mkdir(mode=0o777, parents=True, exist_ok=True)
        folder.chmod(0o777)
        ports = {f"{name}_port": n for n, name in enumerate(("shell", "iopub", "stdin", "control", "hb"), 1)}
        connection = {"transport": "ipc", "ip": str(folder / "s"), "key": "k", "signature_scheme": "hmac-sha256"}
        (folder / "connection.json").write_text(json.dumps({**connection, **ports}))
        words = argv or (*KERNEL, str(folder / "connection.json"))
        spec = LaunchSpec(kernel_id, words, (), more.pop("cwd", None), words[0])
        facts = more.pop("facts", {})
        gateway = facts.get("gateway")
        relay = RelayRecord(kernel_id, folder.parent, {}, 0, 0, "", 1, facts, gateway, is_alive=False)
        return Launch(spec, container=plan, relay=relay, **more)

    def start(self, launch: Launch) -> StartedKernel:
        assert launch.relay is not None
        kernel = StartedKernel(self.runtime, self.do(self.runtime.create(launch)), launch.relay.kernel_folder)
        self.kernels.append(kernel)
        return kernel

    def run(self, plan: ContainerPlan | None = None, **more: Any) -> StartedKernel:
        """Start a kernel; return when it answers."""
        kernel = self.start(self.launch(plan or a_plan(self.engine), **more))
        kernel.connect()
        return kernel

    def ending(self, kernel: StartedKernel) -> ProcessEnd:
        """Wait for its end, and return that."""
        self.do(asyncio.wait_for(self.runtime.wait(kernel.process), REPLY_SECONDS))
        end = self.do(self.runtime.ending(kernel.process))
        assert end is not None
        return end

    def containers(self) -> set[str]:
        """Return the engine's containers of kernels that this object launched."""
        mine = {f"aliquot-{kernel_id}" for kernel_id in self.launched}
        return mine & set(self.engine.containers())

    def close(self) -> None:
        for kernel in self.kernels:
            kernel.disconnect()
            with contextlib.suppress(Exception):
                self.do(self.runtime.remove(kernel.process))
        self.runtime.close()
        self.loop.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass
class StartedKernel:
    """One kernel in its container, and a client."""

    runtime: ContainerRuntime
    process: KernelProcess
    folder: Path
    client: BlockingKernelClient | None = None

    def connect(self) -> BlockingKernelClient:
        client = BlockingKernelClient(connection_file=str(self.folder / "connection.json"))
        client.load_connection_file()
        client.start_channels()
        self.client = client
        deadline = time.monotonic() + REPLY_SECONDS
        while True:
            client.kernel_info()
            with contextlib.suppress(Empty):
                client.get_shell_msg(timeout=1)
                client.get_iopub_msg(timeout=1)  # a late subscription missed this request's messages
                return client
            assert time.monotonic() < deadline, "no answer of the kernel"

    def disconnect(self) -> None:
        if self.client is not None:
            self.client.stop_channels()
            self.client = None

    def execute(self, code: str) -> str:
        """Return the output of a cell, or the error's name and text."""
        client = self.client or self.connect()
        printed: list[str] = []

        def take(message: dict[str, Any]) -> None:
            if message["msg_type"] == "stream":
                printed.append(message["content"]["text"])

        reply = client.execute_interactive(code, allow_stdin=False, output_hook=take, timeout=REPLY_SECONDS)
        content = reply["content"]
        if content["status"] == "error":
            return f"{content['ename']}: {content['evalue']}"
        return "".join(printed).strip()

    def send(self, code: str) -> str:
        assert self.client is not None
        # After an error a kernel aborts the next requests for a moment, unless a request says not
        # to.
        return str(self.client.execute(code, allow_stdin=False, stop_on_error=False))

    def wait_for_text(self, text: str) -> None:
        assert self.client is not None
        while text not in str(self.client.get_iopub_msg(timeout=REPLY_SECONDS)["content"].get("text", "")):
            pass

    def reply(self, message_id: str) -> Any:
        assert self.client is not None
        while True:
            reply = self.client.get_shell_msg(timeout=REPLY_SECONDS)
            if reply["parent_header"].get("msg_id") == message_id:
                return reply["content"]
