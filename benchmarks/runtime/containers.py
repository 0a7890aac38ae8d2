"""A kernel in a container, to the end of its first cell: ours against the plain engine.

The engines are the tests' own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from report import Row, at_most
from traitlets.config import Config

from gateway import interleave
from jupyter_aliquot.gpu_hook.client.agent_process import start_agent
from jupyter_aliquot.gpu_hook.client.client import query
from jupyter_aliquot.provisioner.containers.plan import ContainerLimits, ContainerPlan, Mount
from jupyter_aliquot.provisioner.engine.runtime import ContainerRuntime
from jupyter_aliquot.provisioner.engine.settings import ContainerSettings
from jupyter_aliquot.provisioner.resources import Bytes

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "containers"))
from container_engines import HOST_FOLDERS, Engine, EngineUnavailable, start_engine

ANSWER_SECONDS = 60.0
USER = "4321:4321"
LIMITS = ContainerLimits(memory=Bytes(1 << 30), cpus=2.0, pids=256)


class ContainerManager(AsyncKernelManager):
    """Jupyter's manager of one kernel, which knows the engine as the gateway's does."""

    container_runtime: ContainerRuntime


def measure(folder: Path, name: str, starts: int) -> list[Row]:
    """Measure the starts; return only the reason if this machine cannot run the engine."""
    try:
        engine = start_engine(name)
    except EngineUnavailable as reason:
        print(f"{name}: {reason}; not measured")
        return []
    try:
        with _agent(folder, engine), Starts(folder, engine) as measured:
            for which in (0, 1):
                measured.seconds(which)
            took = interleave(measured.seconds, starts, f"containers on {name}")
    finally:
        engine.stop()
    plain, ours = map(statistics.median, took)
    return [
        Row(f"container start to the end of the first cell, plain {name} (median)", plain, "s"),
        Row(f"container start to the end of the first cell, Aliquot on {name} (median)", ours, "s"),
        at_most(f"container start on {name}, ratio of medians", ours / plain, "×", 1.15),
    ]


@contextmanager
def _agent(folder: Path, engine: Engine) -> Iterator[None]:
    arguments = ["--driver", "softgpu", "--cdi-dir", str(engine.cdi_dir)]
    # On a busy machine a plain container may take longer than an idle agent stays.
    start_agent(folder / "run", arguments=arguments, exit_when_idle_seconds=600)
    try:
        yield
    finally:
        query("shutdown", runtime_dir=folder / "run")


class Starts:
    """Starts kernels of both kinds, each with the same image, mounts, user, limits and hardening."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        self.folder, self.engine = folder, engine
        self.client = engine.client()
        self.runtime = ContainerRuntime(ContainerSettings(engine.url, "auto", (str(engine.cdi_dir),)))
        self.loop = asyncio.new_event_loop()
        KernelProvisionerFactory.instance().default_provisioner_name = "aliquot"

    def __enter__(self) -> Starts:
        return self

    def __exit__(self, *_: object) -> None:
        self.runtime.close()
        self.loop.close()

    def seconds(self, which: int) -> float:
        return self.loop.run_until_complete(self._ours() if which else self._plain())

    async def _plain(self) -> float:
        folder = _open_folder(self.folder)
        connection = _write_connection(folder)
        begin = time.perf_counter()
        container = await asyncio.to_thread(self._run, folder, connection)
        client = AsyncKernelClient(connection_file=str(connection))
        client.load_connection_file()
        try:
            await _first_cell(client)
            return time.perf_counter() - begin
        finally:
            client.stop_channels()
            await asyncio.to_thread(container.remove, force=True)
            shutil.rmtree(folder, ignore_errors=True)

    def _run(self, folder: Path, connection: Path) -> Any:
        mounts = [docker.types.Mount(path, path, "bind", read_only=True) for path in HOST_FOLDERS]
        return self.client.containers.run(
            self.engine.image,
            [sys.executable, "-m", "ipykernel_launcher", "-f", str(connection)],
            mounts=[*mounts, docker.types.Mount(str(folder), str(folder), "bind")],
            environment={"HOME": "/home/kernel", "PYTHONDONTWRITEBYTECODE": "1"},
            user=USER,
            network_mode="none",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            read_only=True,
            init=True,
            tmpfs={"/tmp": "mode=1777,exec", "/run": "mode=1777", "/home/kernel": "mode=1777"},
            mem_limit=int(LIMITS.memory or 0),
            memswap_limit=int(LIMITS.memory or 0),
            nano_cpus=int((LIMITS.cpus or 0) * 1e9),
            pids_limit=LIMITS.pids,
            detach=True,
        )

    async def _ours(self) -> float:
        plan = ContainerPlan(
            image=self.engine.image,
            pull="never",  # type: ignore[arg-type]
            mounts=tuple(Mount(path, path) for path in HOST_FOLDERS),
            env=(("PYTHONDONTWRITEBYTECODE", "1"),),
            user=USER,
            limits=LIMITS,
        )
        config = Config({"AliquotProvisioner": {"relay": True, "gpus": "0.25"}})
        manager = ContainerManager(kernel_name="python3", config=config)
        manager.container_runtime = self.runtime
        begin = time.perf_counter()
        await manager.start_kernel(kernel_id=str(uuid.uuid4()), container=plan)
        client = manager.client()
        try:
            await _first_cell(client)
            return time.perf_counter() - begin
        finally:
            client.stop_channels()
            await manager.shutdown_kernel(now=True)


def _open_folder(parent: Path) -> Path:
    """Return a folder that the container's user may write into."""
    folder = Path(tempfile.mkdtemp(prefix="k", dir=parent))
    folder.chmod(0o777)
    return folder


def _write_connection(folder: Path) -> Path:
    ports = {f"{name}_port": number for number, name in enumerate(("shell", "iopub", "stdin", "control", "hb"), 1)}
    connection = {
        "transport": "ipc",
        "ip": str(folder / "s"),
        "key": uuid.uuid4().hex,
        "signature_scheme": "hmac-sha256",
    }
    path = folder / "connection.json"
    path.write_text(json.dumps({**connection, **ports}))
    return path


async def _first_cell(client: AsyncKernelClient) -> None:
    client.start_channels(hb=False, stdin=False, control=False)
    message_id = client.execute("pass", allow_stdin=False)
    deadline = time.perf_counter() + ANSWER_SECONDS
    while time.perf_counter() < deadline:
        with contextlib.suppress(Exception):
            reply = await client.get_shell_msg(timeout=ANSWER_SECONDS)
            if reply["parent_header"].get("msg_id") == message_id:
                return
    raise SystemExit("no kernel in a container answered")
